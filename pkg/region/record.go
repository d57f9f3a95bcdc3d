package region

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-edge/weir/pkg/field"
)

// The types of static records.
const (
	TypeA     = "A"
	TypeAAAA  = "AAAA"
	TypeCAA   = "CAA"
	TypeCNAME = "CNAME"
	TypeMX    = "MX"
	TypeTXT   = "TXT"
)

var recordTypes = []string{TypeA, TypeAAAA, TypeCAA, TypeCNAME, TypeMX, TypeTXT}

const (
	// Apex is the name of a record at the zone itself.
	Apex = "@"
	// FactsLabel in front of the zone is above the names by which routers ask each other.
	FactsLabel = "_weir-facts"
	// The bounds of static records. Within them every answer fits into one message.
	maxRecords = 1000
	maxValues  = 50
	maxText    = 1000 // bytes of one value
	// maxAliases is the most CNAMEs that may follow one another.
	maxAliases = 8
	// defaultRecordTTL and maxRecordTTL are in seconds.
	defaultRecordTTL = 300
	maxRecordTTL     = 86400
)

// Record is a static record: DNS answers it to every client.
type Record struct {
	// Name is relative to the zone: @ is the zone itself; *.x is every name below x that
	// does not exist.
	Name string `json:"name" yaml:"name"`
	Type string `json:"type" yaml:"type"`         // A, AAAA, CAA, CNAME, MX or TXT
	TTL  *int   `json:"ttl,omitempty" yaml:"ttl"` // in seconds; absent: 300
	// Values are written as the type requires. Names in them are full.
	Values []string `json:"values" yaml:"values"`
}

// TTLSeconds returns how long a resolver may keep the record.
func (r *Record) TTLSeconds() uint32 {
	if r.TTL == nil {
		return defaultRecordTTL
	}
	return uint32(*r.TTL)
}

// normalize makes names lower case and relative to the zone.
func (r *Record) normalize(zone string) {
	r.Type, r.Name = strings.ToUpper(r.Type), strings.ToLower(r.Name)
	if full := strings.TrimSuffix(r.Name, "."); full == zone {
		r.Name = Apex
	} else if inside, ok := strings.CutSuffix(full, "."+zone); ok && zone != "" {
		r.Name = inside
	}
	for i, v := range r.Values {
		if a, err := netip.ParseAddr(v); err == nil && (r.Type == TypeA || r.Type == TypeAAAA) {
			r.Values[i] = a.Unmap().String()
		} else if r.Type == TypeCNAME || r.Type == TypeMX && v != "0 ." {
			r.Values[i] = strings.TrimSuffix(strings.ToLower(v), ".")
		}
	}
}

func (t *Topology) checkRecords(f *field.Errors) {
	if len(t.Records) > maxRecords {
		f.Add("records", "has %d; the maximum is %d; remove some", len(t.Records), maxRecords)
		return
	}
	seen, at := map[[2]string]string{}, map[string][]int{}
	for i := range t.Records {
		r, here := &t.Records[i], field.Index("records", i)
		sound := len(*f)
		r.check(here, t.Zone, f)
		if first, twice := seen[[2]string{r.Name, r.Type}]; twice {
			f.Add(here, "%s of %s is already at %s; list all values there", r.Type, r.Name, first)
		} else if len(*f) == sound {
			at[r.Name] = append(at[r.Name], i)
		}
		seen[[2]string{r.Name, r.Type}] = here
	}
	for i, r := range t.Records {
		if r.Type == TypeCNAME && len(at[r.Name]) > 1 {
			f.Add(field.Index("records", i), "a CNAME must stand alone, but %s has other records too; remove it or them", r.Name)
		}
	}
	if len(*f) == 0 {
		t.checkAliases(f)
	}
}

func (r *Record) check(here, zone string, f *field.Errors) {
	r.checkName(here+".name", zone, f)
	if r.TTL != nil && (*r.TTL < 1 || *r.TTL > maxRecordTTL) {
		f.Add(here+".ttl", "must be 1 to %d seconds (got %d)", maxRecordTTL, *r.TTL)
	}
	if !slices.Contains(recordTypes, r.Type) {
		f.Add(here+".type", "must be one of %s (got %q)", strings.Join(recordTypes, ", "), r.Type)
		return
	}
	if n := len(r.Values); n == 0 || n > maxValues {
		f.Add(here+".values", "must name 1 to %d (got %d)", maxValues, n)
	} else if r.Type == TypeCNAME && n > 1 {
		f.Add(here+".values", "must name exactly one: a CNAME leads to one name (got %d)", n)
	}
	if apex := r.Name == Apex; apex && r.Type != TypeCAA && r.Type != TypeMX && r.Type != TypeTXT {
		f.Add(here+".type", "must be CAA, MX or TXT at the zone itself, whose addresses are those of the nearest PoP (got %s)", r.Type)
	}
	for i, v := range r.Values {
		if err := r.checkValue(v); err != nil {
			f.Add(field.Index(here+".values", i), "%v (got %.80q)", err, v)
		} else if first := slices.Index(r.Values, v); first < i {
			f.Add(field.Index(here+".values", i), "is already at values[%d]; remove one of them", first)
		}
	}
}

// checkName checks a name that normalize has made relative to the zone.
func (r *Record) checkName(here, zone string, f *field.Errors) {
	plain := strings.TrimPrefix(r.Name, "*.")
	top := plain[strings.LastIndexByte(plain, '.')+1:]
	switch {
	case r.Name == Apex || r.Name == "*":
	case strings.HasSuffix(r.Name, "."):
		f.Add(here, "is not in the zone %s; write names in it, full or without the zone (got %q)", zone, r.Name)
	case !validName(plain, maxName) || len(r.Name)+1+len(zone) > maxName:
		f.Add(here, "must be @, or a name such as www, *.dev or _acme-challenge in front of the zone (got %q)", r.Name)
	case top == "pop" || top == "region" || top == FactsLabel:
		f.Add(here, "must not be %s or below it: these names belong to PoPs, regions and routers (got %q)", top, r.Name)
	}
}

func (r *Record) checkValue(v string) (err error) {
	switch r.Type {
	case TypeA, TypeAAAA:
		if a, err := netip.ParseAddr(v); err != nil || a.Is4() != (r.Type == TypeA) || a.Zone() != "" {
			return fmt.Errorf("must be an IPv%d address", map[string]int{TypeA: 4, TypeAAAA: 6}[r.Type])
		}
	case TypeCNAME:
		if !validName(v, maxName) {
			return errors.New("must be a full domain name such as abc.acm-validations.aws")
		}
	case TypeMX:
		_, _, err = ParseMX(v)
	case TypeCAA:
		_, _, _, err = ParseCAA(v)
	default:
		if v == "" || len(v) > maxText || !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			return fmt.Errorf("must be 1 to %d bytes in one line", maxText)
		}
	}
	return err
}

// ParseMX parses the value of an MX record, such as 10 mail.example.com. The host ""
// means "0 .": mail is not accepted (RFC 7505).
func ParseMX(v string) (preference uint16, host string, err error) {
	number, host, _ := strings.Cut(v, " ")
	n, err := strconv.ParseUint(number, 10, 16)
	if err == nil && v == "0 ." {
		return 0, "", nil
	}
	if err != nil || !validName(host, maxName) {
		return 0, "", errors.New("must be a preference and a full domain name, such as 10 mail.example.com")
	}
	return uint16(n), host, nil
}

// ParseCAA parses the value of a CAA record, such as 0 issue "letsencrypt.org".
func ParseCAA(v string) (flag uint8, tag, text string, err error) {
	number, rest, _ := strings.Cut(v, " ")
	tag, text, _ = strings.Cut(rest, " ")
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	printable := !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' })
	if number != "0" && number != "128" || !slices.Contains([]string{"issue", "issuewild", "issuemail", "issuevmc", "iodef"}, tag) || len(text) > 255 || !printable {
		return 0, "", "", errors.New(`must be a flag (0 or 128), a tag (issue, issuewild, issuemail, issuevmc or iodef) and a text, such as 0 issue "letsencrypt.org"`)
	}
	if number == "128" {
		flag = 128
	}
	return flag, tag, text, nil
}

// checkAliases refuses CNAMEs that loop or form too long a chain.
func (t *Topology) checkAliases(f *field.Errors) {
	targets := map[string]string{"pop": "", "region": ""} // of every name that exists; empty: not a CNAME
	for _, r := range t.Records {
		for name, more := r.Name, true; more; _, name, more = strings.Cut(name, ".") {
			targets[name] += "" // a name exists if one below it does
		}
		if r.Type == TypeCNAME {
			targets[r.Name] = r.Values[0]
		}
	}
	for i, r := range t.Records {
		name := r.Name
		for links := 0; r.Type == TypeCNAME; links++ {
			target, ok := strings.CutSuffix(targets[name], "."+t.Zone)
			if !ok {
				break
			}
			if links == maxAliases {
				f.Add(field.Index(field.Index("records", i)+".values", 0), "leads back to itself, or through more than %d CNAMEs", maxAliases)
				break
			}
			name = standsFor(targets, target)
		}
	}
}

// standsFor returns the name itself, or the wildcard that answers for it; "" if there is
// neither.
func standsFor(names map[string]string, name string) string {
	if _, exists := names[name]; exists {
		return name
	}
	for above, more := name, true; more; {
		if _, above, more = strings.Cut(above, "."); !more {
			return "*"
		}
		if _, exists := names[above]; exists {
			return "*." + above
		}
	}
	return ""
}
