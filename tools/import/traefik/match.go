package traefik

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// A router's rule is parsed into alternatives, each of which holds if all of its conditions
// do.

var matcher = regexp.MustCompile("^([A-Za-z]+)\\(((?:`[^`]*`|\"[^\"]*\"|[,\\s])*)\\)")
var argument = regexp.MustCompile("`([^`]*)`|\"([^\"]*)\"")

// parse parses a router's rule. An error says what rules cannot match by.
func parse(rule string) ([]rules.Conditions, error) {
	p := &matching{rest: rule}
	list, err := p.either(0)
	if err == nil && strings.TrimSpace(p.rest) != "" {
		err = fmt.Errorf("unexpected %q", p.rest)
	}
	if err != nil {
		return nil, err
	}
	return join(list), nil
}

type matching struct{ rest string }

func (p *matching) skip(mark string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSpace(p.rest), mark)
	if ok {
		p.rest = rest
	}
	return ok
}

const deepest = 16

func (p *matching) either(depth int) (list []rules.Conditions, err error) {
	for {
		one, err := p.both(depth)
		if err != nil {
			return nil, err
		}
		if list = append(list, one...); !p.skip("||") {
			return list, nil
		}
	}
}

func (p *matching) both(depth int) (list []rules.Conditions, err error) {
	list = []rules.Conditions{{}}
	for {
		one, err := p.one(depth)
		if err != nil {
			return nil, err
		}
		var next []rules.Conditions
		for _, a := range list {
			for _, b := range one {
				c, err := and(a, b)
				if err != nil {
					return nil, err
				}
				next = append(next, c)
			}
		}
		const most = 64
		if list = next; len(list) > most {
			return nil, fmt.Errorf("has more than %d alternatives", most)
		}
		if !p.skip("&&") {
			return list, nil
		}
	}
}

func (p *matching) one(depth int) ([]rules.Conditions, error) {
	if depth > deepest {
		return nil, fmt.Errorf("is nested more than %d deep", deepest)
	}
	if p.skip("(") {
		list, err := p.either(depth + 1)
		if err == nil && !p.skip(")") {
			err = fmt.Errorf("a ( is not closed")
		}
		return list, err
	}
	if p.skip("!") {
		return nil, fmt.Errorf("rules cannot match by ! (not)")
	}
	text := strings.TrimSpace(p.rest)
	m := matcher.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("cannot be read at %q", text)
	}
	p.rest = text[len(m[0]):]
	var args []string
	for _, a := range argument.FindAllStringSubmatch(m[2], -1) {
		args = append(args, a[1]+a[2])
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("%s has no value", m[1])
	}
	return conditions(m[1], args)
}

// conditions translates one matcher.
func conditions(name string, args []string) ([]rules.Conditions, error) {
	var c rules.Conditions
	switch name {
	case "Host":
		for _, a := range args {
			c.Hosts = append(c.Hosts, strings.ToLower(a))
		}
	case "Path", "PathPrefix":
		for _, a := range args {
			if strings.ContainsAny(a, "{}*") {
				return nil, fmt.Errorf("rules cannot match by the expression in %s(`%s`)", name, a)
			}
			if name == "PathPrefix" {
				a += "*"
			}
			c.Paths = append(c.Paths, a)
		}
	case "Method":
		for _, a := range args {
			c.Methods = append(c.Methods, strings.ToUpper(a))
		}
	case "ClientIP":
		c.Clients = args
	case "Header", "Headers":
		if len(args) != 2 {
			return nil, fmt.Errorf("%s needs a name and a value", name)
		}
		c.Headers = map[string]string{http.CanonicalHeaderKey(args[0]): args[1]}
	default:
		return nil, fmt.Errorf("rules cannot match by %s", name)
	}
	return []rules.Conditions{c}, nil
}

// lists are the parts of conditions that are lists.
func lists(c *rules.Conditions) [4]*[]string {
	return [...]*[]string{&c.Hosts, &c.Paths, &c.Methods, &c.Clients}
}

// and joins conditions that must both hold.
func and(a, b rules.Conditions) (rules.Conditions, error) {
	la, lb := lists(&a), lists(&b)
	for i := range la {
		if *la[i] != nil && *lb[i] != nil {
			return a, fmt.Errorf("rules cannot match by two conditions on one part of a request")
		}
		if *la[i] == nil {
			*la[i] = *lb[i]
		}
	}
	if a.Headers != nil && b.Headers != nil {
		return a, fmt.Errorf("rules cannot match by two conditions on headers")
	}
	if a.Headers == nil {
		a.Headers = b.Headers
	}
	return a, nil
}

// join merges alternatives that differ in only one list.
func join(list []rules.Conditions) (out []rules.Conditions) {
next:
	for _, c := range list {
		for i := range out {
			if part := differ(&out[i], &c); part >= 0 {
				to, from := lists(&out[i])[part], *lists(&c)[part]
				for _, v := range from {
					if !slices.Contains(*to, v) {
						*to = append(slices.Clip(*to), v)
					}
				}
				continue next
			}
		}
		out = append(out, c)
	}
	return out
}

// differ returns the index of the one list in which two conditions differ, 0 if in none, or
// -1.
func differ(a, b *rules.Conditions) int {
	part := 0
	la, lb := lists(a), lists(b)
	n := 0
	for i := range la {
		if !slices.Equal(*la[i], *lb[i]) {
			if *la[i] == nil || *lb[i] == nil {
				return -1
			}
			part = i
			n++
		}
	}
	if n > 1 || len(a.Headers) != len(b.Headers) {
		return -1
	}
	for name, value := range a.Headers {
		if b.Headers[name] != value {
			return -1
		}
	}
	return part
}

// disjoint reports whether no request meets both conditions.
func disjoint(a, b *rules.Conditions) bool {
	apart := func(one, other []string, meet func(x, y string) bool) bool {
		if one == nil || other == nil {
			return false
		}
		return !slices.ContainsFunc(one, func(x string) bool {
			return slices.ContainsFunc(other, func(y string) bool { return meet(x, y) })
		})
	}
	same := func(x, y string) bool { return x == y }
	for name, value := range a.Headers {
		if v, ok := b.Headers[name]; ok && v != value {
			return true
		}
	}
	return apart(a.Hosts, b.Hosts, same) || apart(a.Methods, b.Methods, same) || apart(a.Paths, b.Paths, func(x, y string) bool {
		return begins(x, y) || begins(y, x)
	})
}

// begins reports whether a path pattern matches everything that another does.
func begins(pattern, other string) bool {
	if start, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(other, start)
	}
	return pattern == other
}
