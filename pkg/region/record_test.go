package region

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordsOf returns a topology with these records.
func recordsOf(list string) string {
	return "{zone: edge.example.com, regions: [{name: r, pops: [{name: p, addresses: [192.0.2.1]}]}], records: [" + list + "]}"
}

func TestParseRecords(t *testing.T) {
	topology := mustParse(t, recordsOf(`
		{name: _Acme.Edge.Example.com., type: cname, values: [A.acm-validations.AWS.]}, {name: www, type: CNAME, values: [x.edge.example.com], ttl: 60},
		{name: Edge.example.com, type: MX, values: [10 Mail.example.com., 0 .]}, {name: "@", type: CAA, values: ['0 issue ";"', 128 iodef mailto:a@b.c]},
		{name: "*.a.b", type: AAAA, values: ["2001:DB8::0:1"]}, {name: "*", type: TXT, values: [v=spf1 -all]}`))
	var got []string
	for _, r := range topology.Records {
		got = append(got, fmt.Sprint(r.Name, " ", r.TTLSeconds(), " ", r.Type, " ", strings.Join(r.Values, ", ")))
	}
	require.Equal(t, []string{
		"_acme 300 CNAME a.acm-validations.aws", "www 60 CNAME x.edge.example.com", "@ 300 MX 10 mail.example.com, 0 .",
		`@ 300 CAA 0 issue ";", 128 iodef mailto:a@b.c`, "*.a.b 300 AAAA 2001:db8::1", "* 300 TXT v=spf1 -all",
	}, got)
	text, err := json.Marshal(topology)
	require.NoError(t, err)
	require.Equal(t, topology, mustParse(t, string(text)), "as published")
	flag, tag, value, err := ParseCAA(`128 issue "a b"`)
	require.NoError(t, err)
	require.Equal(t, []any{uint8(128), "issue", "a b"}, []any{flag, tag, value})
}

func TestParseRecordsRefuses(t *testing.T) {
	f := func(list string, want ...string) {
		t.Helper()
		_, err := ParseTopology([]byte(recordsOf(list)))
		require.EqualError(t, err, strings.Join(want, "\n"))
	}
	of := func(name, fields string) string { return "{name: " + name + ", " + fields + "}" }
	const txt = "type: TXT, values: [x]"
	f("{nme: a, type: A, values: [192.0.2.1]}", "records[0].nme: unknown field; did you mean name?", `records[0].name: must be @, or a name such as www, *.dev or _acme-challenge in front of the zone (got "")`)
	f(of("example.com.", txt), `records[0].name: is not in the zone edge.example.com; write names in it, full or without the zone (got "example.com.")`)
	for _, name := range []string{"a..b", "a b", "x.*.y", "'*a'", "-a", "'@.a'", "'" + strings.Repeat("a.", 119) + "a'"} {
		f(of(name, txt), fmt.Sprintf("records[0].name: must be @, or a name such as www, *.dev or _acme-challenge in front of the zone (got %q)", strings.Trim(name, "'")))
	}
	f(of("x.pop", txt), `records[0].name: must not be pop or below it: these names belong to PoPs, regions and routers (got "x.pop")`)
	f(of("x._weir-facts", txt), `records[0].name: must not be _weir-facts or below it: these names belong to PoPs, regions and routers (got "x._weir-facts")`)
	f(of("'*.region'", txt), `records[0].name: must not be region or below it: these names belong to PoPs, regions and routers (got "*.region")`)
	f(of("a", "type: NS, values: [x], ttl: 0"), "records[0].ttl: must be 1 to 86400 seconds (got 0)", `records[0].type: must be one of A, AAAA, CAA, CNAME, MX, TXT (got "NS")`)
	f(of("a", "type: TXT"), "records[0].values: must name 1 to 50 (got 0)")
	f(of("'@'", "type: CNAME, values: [a.b, c.d]"), "records[0].values: must name exactly one: a CNAME leads to one name (got 2)",
		"records[0].type: must be CAA, MX or TXT at the zone itself, whose addresses are those of the nearest PoP (got CNAME)")
	f(of("'@'", "type: A, values: [192.0.2.1]"), "records[0].type: must be CAA, MX or TXT at the zone itself, whose addresses are those of the nearest PoP (got A)")
	f(of("a", "type: A, values: ['2001:db8::1', x, 192.0.2.1, 192.0.2.1]"),
		`records[0].values[0]: must be an IPv4 address (got "2001:db8::1")`, `records[0].values[1]: must be an IPv4 address (got "x")`, "records[0].values[3]: is already at values[2]; remove one of them")
	f(of("a", "type: AAAA, values: ['::ffff:192.0.2.1']"), `records[0].values[0]: must be an IPv6 address (got "192.0.2.1")`)
	f(of("a", `type: TXT, values: ["", "a\nb", `+strings.Repeat("x", 1001)+"]"), `records[0].values[0]: must be 1 to 1000 bytes in one line (got "")`,
		`records[0].values[1]: must be 1 to 1000 bytes in one line (got "a\nb")`, `records[0].values[2]: must be 1 to 1000 bytes in one line (got "`+strings.Repeat("x", 80)+`")`)
	f(of("a", "type: MX, values: [mail.example.com, 70000 a.b, 10 a b]"),
		`records[0].values[0]: must be a preference and a full domain name, such as 10 mail.example.com (got "mail.example.com")`,
		`records[0].values[1]: must be a preference and a full domain name, such as 10 mail.example.com (got "70000 a.b")`,
		`records[0].values[2]: must be a preference and a full domain name, such as 10 mail.example.com (got "10 a b")`)
	f(of("a", "type: CAA, values: [1 issue x]"), `records[0].values[0]: must be a flag (0 or 128), a tag (issue, issuewild, issuemail, issuevmc or iodef) and a text, such as 0 issue "letsencrypt.org" (got "1 issue x")`)
	cname := func(name, target string) string { return of(name, "type: CNAME, values: ["+target+"]") }
	f(cname("a", "x y"), `records[0].values[0]: must be a full domain name such as abc.acm-validations.aws (got "x y")`)
	f(of("a", txt)+","+cname("a", "b.c"), "records[1]: a CNAME must stand alone, but a has other records too; remove it or them")
	f(of("a", txt)+","+of("a.edge.example.com", txt), "records[1]: TXT of a is already at records[0]; list all values there")
	const back = "leads back to itself, or through more than 8 CNAMEs"
	f(cname("a", "b.edge.example.com")+","+cname("b", "a.edge.example.com"), "records[0].values[0]: "+back, "records[1].values[0]: "+back)
	f(cname("'*.a'", "b.a.edge.example.com"), "records[0].values[0]: "+back)
	mustParse(t, recordsOf(cname("'*'", "p.pop.edge.example.com")+","+cname("x", "edge.example.com")))
	f(strings.Repeat("{},", 1001), "records: has 1001; the maximum is 1000; remove some")
}
