package rules

import (
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
)

// reader checks the fields of one rule and returns their values. It reports every problem;
// a value returned with a problem is not used.
type reader struct {
	p     *problems
	list  string // the path of the list that the rule is in
	index int    // its position there; -1: no list
	under string // the path within the rule that field names are relative to
}

func (v *reader) bad(name, format string, args ...any) {
	at := v.list
	if v.index >= 0 {
		at = field.Index(at, v.index)
	}
	v.p.add(field.Join(at, field.Join(v.under, name)), format, args...)
}

func (v *reader) id(id string) {
	switch {
	case id == "":
		v.bad("id", "is required; give the rule a name of its own")
	case len(id) > maxName || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		v.bad("id", "must be 1 to %d characters of a-z, 0-9 and - (got %s)", maxName, field.Shown(id))
	}
}

// word returns the index of a value among the accepted names; an absent value is the first.
func (v *reader) word(name, got string, names ...string) int {
	if got == "" {
		return 0
	}
	for i, known := range names {
		if known == got {
			return i
		}
	}
	v.bad(name, "unknown value %s%s", field.Shown(got), field.SuggestOr(got, names...))
	return 0
}

func (v *reader) algorithm(got string) limiter.Algorithm {
	all := limiter.Algorithms()
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = a.String()
	}
	if got == "" {
		return limiter.RollingWindow
	}
	return all[v.word("algorithm", got, names...)]
}

func (v *reader) duration(name, got string) (time.Duration, bool) {
	d, err := time.ParseDuration(got)
	if err == nil {
		return d, true
	}
	// A day is not always 24 hours, so time.ParseDuration has no unit for it.
	for unit, hours := range map[string]int64{"d": 24, "w": 7 * 24} {
		if n, err := strconv.ParseInt(strings.TrimSuffix(got, unit), 10, 32); err == nil && strings.HasSuffix(got, unit) {
			v.bad(name, "has no unit for days or weeks; write %dh (got %s)", n*hours, field.Shown(got))
			return 0, false
		}
	}
	v.bad(name, "must be a duration such as 50ms, 1m or 24h (got %s)", field.Shown(got))
	return 0, false
}

func (v *reader) number(name, text, word string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text != strconv.FormatInt(n, 10) {
		v.bad(name, "must be a whole number or %s (got %s)%s", word, field.Shown(text), field.Suggest(text, word))
		return 0, false
	}
	return n, true
}

// values checks a list: not empty, and no duplicates. each returns the canonical form to
// compare a value by, or false after a problem.
func (v *reader) values(name string, list []string, each func(at, value string) (string, bool)) []string {
	if list != nil && len(list) == 0 {
		v.bad(name, "is empty and would match nothing; name at least one value, or remove it")
	}
	first := make(map[string]int, len(list))
	out := make([]string, 0, len(list))
	for i, value := range list {
		at := field.Index(name, i)
		if value == "" {
			v.bad(at, "must not be empty; give a value, or remove it")
			continue
		}
		canonical, ok := each(at, value)
		if !ok {
			continue
		}
		if earlier, twice := first[canonical]; twice {
			v.bad(at, "repeats %s[%d]; remove one of them (%s)", field.Join(v.under, name), earlier, field.Shown(canonical))
			continue
		}
		first[canonical] = i
		out = append(out, canonical)
	}
	return out
}

func (v *reader) hosts(list []string) []string {
	return v.values("hosts", list, func(at, host string) (string, bool) {
		name := strings.ToLower(host)
		rest := strings.TrimPrefix(name, "*.")
		switch {
		case strings.Contains(rest, "*"):
			v.bad(at, "can have * only as the whole first label, as in *.example.com (got %s)", field.Shown(host))
		case strings.HasSuffix(rest, "."):
			v.bad(at, "must not end in a dot; write %s", field.Shown(strings.TrimRight(name, ".")))
		case strings.Contains(rest, "/"):
			v.bad(at, "must be a host name alone, without scheme or path (got %s)", field.Shown(host))
		case !strings.HasPrefix(rest, "[") && strings.Contains(rest, ":"):
			v.bad(at, "must not have a port: hosts match on any; write %s", field.Shown(name[:strings.Index(name, ":")]))
		case !hostName(rest):
			v.bad(at, "must be a host name of letters, digits, - and _ (got %s)", field.Shown(host))
		default:
			return name, true
		}
		return "", false
	})
}

func hostName(s string) bool {
	if address, ok := strings.CutPrefix(s, "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(address, "]"))
		return err == nil && a.Is6() && strings.HasSuffix(s, "]")
	}
	if len(s) > maxHost {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

func (v *reader) paths(list []string) []string {
	return v.values("paths", list, func(at, path string) (string, bool) {
		star := strings.Index(path, "*")
		switch {
		case path == "*":
			v.bad(at, "would match every path; remove paths, or write /* for all paths that begin with /")
		case path[0] != '/':
			v.bad(at, "must begin with / (got %s)", field.Shown(path))
		case len(path) > maxPath:
			v.bad(at, "must be at most %d bytes (got %d)", maxPath, len(path))
		case star >= 0 && star < len(path)-1:
			v.bad(at, "can have * only at the end, where it matches the rest; write %s", field.Shown(path[:star+1]))
		case strings.ContainsAny(path, "?#"):
			v.bad(at, "is matched without query and fragment; write %s", field.Shown(path[:strings.IndexAny(path, "?#")]))
		case percent(path):
			v.bad(at, "is matched after decoding; write the characters themselves instead of %%XX (got %s)", field.Shown(path))
		case strings.Contains(path, "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../"):
			v.bad(at, "must not contain //, /./ or /../: origins differ in how they read these; write the resulting path (got %s)", field.Shown(path))
		case !printableText(path):
			v.bad(at, "must not contain control characters (got %s)", field.Shown(path))
		default:
			return path, true
		}
		return "", false
	})
}

func percent(s string) bool {
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '%' && isHex(s[i+1]) && isHex(s[i+2]) {
			return true
		}
	}
	return false
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func printableText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// isToken implements the grammar of methods and of header and cookie names (RFC 9110,
// 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func (v *reader) methods(list []string) []string {
	if len(list) > maxMethods {
		v.bad("methods", "has more than %d values (got %d)", maxMethods, len(list))
		return nil
	}
	return v.values("methods", list, func(at, method string) (string, bool) {
		switch upper := strings.ToUpper(method); {
		case !isToken(method):
			v.bad(at, "must be a method such as GET (got %s)", field.Shown(method))
		case upper != method:
			v.bad(at, "must be in upper case; write %s", upper)
		default:
			return method, true
		}
		return "", false
	})
}

func (v *reader) clients(list []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	v.values("clients", list, func(at, text string) (string, bool) {
		prefix, err := netip.ParsePrefix(text)
		if address, single := netip.ParseAddr(text); single == nil && address.Zone() == "" {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		switch {
		case err != nil:
			v.bad(at, "must be an address or a network such as 203.0.113.0/24 (got %s)", field.Shown(text))
		case prefix.Addr().Is4In6():
			v.bad(at, "is IPv4 written as IPv6; write it as IPv4, such as %s", prefix.Addr().Unmap())
		case prefix != prefix.Masked():
			v.bad(at, "has bits set beyond the network; write %s for the network, or %s for the one address (got %s)",
				prefix.Masked(), prefix.Addr(), field.Shown(text))
		default:
			out = append(out, prefix)
			return prefix.String(), true
		}
		return "", false
	})
	return out
}

// headers returns the conditions on headers, ordered by name.
func (v *reader) headers(want map[string]string) []header {
	if want != nil && len(want) == 0 {
		v.bad("headers", "is empty; name at least one header, or remove it")
	}
	if len(want) > maxHeaders {
		v.bad("headers", "has more than %d headers (got %d)", maxHeaders, len(want))
	}
	var out []header
	written := make(map[string]string, len(want))
	for name, value := range sorted(want) {
		at := "headers." + field.Name(name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch other := written[canonical]; {
		case !isToken(name):
			v.bad(at, "must have a header name of at most %d characters", maxName)
		case other != "":
			v.bad(at, "is the same header as %s; keep one", other)
		case value == "":
			v.bad(at, "must not be empty; give the value that the header must have")
		case len(value) > maxValue:
			v.bad(at, "must be at most %d bytes (got %d)", maxValue, len(value))
		case value != strings.TrimSpace(value) || !printableText(value):
			v.bad(at, "can match nothing: header values have no space around them and no control characters (got %s)", field.Shown(value))
		default:
			written[canonical] = name
			out = append(out, header{canonical, value})
		}
	}
	return out
}
