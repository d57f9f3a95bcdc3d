package nginx

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// expression is text with variables in it.
type expression []segment

// segment is literal text, or the name of a variable.
type segment struct {
	text     string
	variable bool
}

func parseExpression(text string) (e expression, err error) {
	for text != "" {
		i := strings.IndexByte(text, '$')
		if i < 0 {
			return append(e, segment{text: text}), nil
		}
		if i > 0 {
			e = append(e, segment{text: text[:i]})
		}
		text = text[i+1:]
		if inner, ok := strings.CutPrefix(text, "{"); ok {
			name, rest, closed := strings.Cut(inner, "}")
			if !closed {
				return nil, fmt.Errorf("a ${ is not closed")
			}
			e, text = append(e, segment{name, true}), rest
			continue
		}
		n := 0
		for n < len(text) && (text[n] == '_' || text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z' || text[n] >= '0' && text[n] <= '9') {
			n++
		}
		if n == 0 {
			return nil, fmt.Errorf("a $ without the name of a variable")
		}
		e, text = append(e, segment{text[:n], true}), text[n:]
	}
	return e, nil
}

// String writes an expression as nginx reads it.
func (e expression) String() string {
	var b strings.Builder
	for _, s := range e {
		if s.variable {
			b.WriteString("${" + s.text + "}")
		} else {
			b.WriteString(s.text)
		}
	}
	return b.String()
}

// variable is a variable that a map or a geo defines.
type variable struct {
	name     string
	geo      bool
	source   expression // for a map; for a geo, the address
	standard expression // the default
	cases    []variant
	at       string
}

// variant is a case of a map or geo.
type variant struct {
	value   string // exact, in any letter case; of a map
	regexp  *regexp.Regexp
	network netip.Prefix // of a geo
	result  expression
}

func (c *config) variable(d *directive) error {
	v := &variable{at: d.at, geo: d.name == "geo"}
	switch {
	case v.geo && len(d.args) == 1:
		v.name, v.source = d.args[0], expression{{"remote_addr", true}}
	case len(d.args) == 2:
		var err error
		if v.source, err = parseExpression(d.args[0]); err != nil {
			return err
		}
		v.name = d.args[1]
	default:
		return fmt.Errorf("needs a source and a variable")
	}
	v.name = strings.TrimPrefix(v.name, "$")
	for i := range d.block {
		b := &d.block[i]
		switch b.name {
		case "hostnames", "volatile", "delete", "proxy", "proxy_recursive", "ranges", "include":
			c.lost(b.at, "%s %s: %s cannot be kept; what depends on it may differ", d.name, v.name, b.name)
			continue
		}
		if len(b.args) != 1 {
			return fmt.Errorf("%s: %s: needs one value", b.at, b.name)
		}
		result, err := parseExpression(b.args[0])
		if err != nil {
			return fmt.Errorf("%s: %w", b.at, err)
		}
		if b.name == "default" {
			v.standard = result
			continue
		}
		one := variant{value: strings.TrimPrefix(b.name, `\`), result: result}
		if v.geo {
			if one.network, err = network(b.name); err != nil {
				c.lost(b.at, "geo %s: %s is not a network; it is left out", v.name, b.name)
				continue
			}
		} else if expression, is := strings.CutPrefix(b.name, "~"); is {
			if rest, folded := strings.CutPrefix(expression, "*"); folded {
				expression = "(?i)" + rest
			}
			if one.regexp, err = regexp.Compile(expression); err != nil {
				c.lost(b.at, "map %s: the regular expression %s cannot be read here; it is left out", v.name, b.name)
				continue
			}
		}
		v.cases = append(v.cases, one)
	}
	c.variables[v.name] = v
	return nil
}

// of returns the result for a value of the source.
func (v *variable) of(value string) expression {
	if v.geo {
		a, err := netip.ParseAddr(value)
		best, longest := v.standard, -1
		for _, one := range v.cases {
			if err == nil && one.network.Contains(a) && one.network.Bits() > longest {
				best, longest = one.result, one.network.Bits()
			}
		}
		return best
	}
	for _, one := range v.cases {
		if one.regexp == nil && strings.EqualFold(one.value, value) {
			return one.result
		}
	}
	for _, one := range v.cases {
		if one.regexp != nil && one.regexp.MatchString(value) {
			return one.result
		}
	}
	return v.standard
}
