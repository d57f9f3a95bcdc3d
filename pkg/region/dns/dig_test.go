package dns

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// Each row queries over UDP and TCP, and lists what dig must and must not print.
func TestDig(t *testing.T) {
	t.Parallel()
	s := serve(t, config(view(t, fleet, healthy)))
	f := func(name, ask string, want, not []string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			for _, transport := range []string{"+notcp", "+tcp"} {
				out := dig(t, s, append([]string{transport, "+ignore"}, strings.Fields(ask)...)...)
				for _, w := range want {
					require.Contains(t, out, w, "%s %s", transport, ask)
				}
				for _, n := range append(not, "malformed", "Warning") {
					require.NotContains(t, out, n, "%s %s", transport, ask)
				}
			}
		})
	}
	soa := "edge.example.com. 20 IN SOA ns1.edge.example.com. hostmaster.edge.example.com. "
	noData := []string{"status: NOERROR", "flags: qr aa;", "ANSWER: 0, AUTHORITY: 1", soa}

	f("the nearest", "edge.example.com A", []string{"status: NOERROR", "flags: qr aa;", "ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 1", "edge.example.com. 20 IN A 192.0.2.1", "udp: 1232"}, []string{"CLIENT-SUBNET"})
	f("of IPv6", "edge.example.com AAAA", []string{"ANSWER: 1", "edge.example.com. 20 IN AAAA 2001:db8::1"}, nil)
	f("without EDNS", "+noedns edge.example.com A", []string{"status: NOERROR", "ADDITIONAL: 0", "192.0.2.1"}, []string{"OPT PSEUDOSECTION"})
	f("with DO", "+dnssec edge.example.com A", []string{"version: 0, flags: do;", "192.0.2.1"}, nil)
	f("recursion wanted", "+recurse edge.example.com A", []string{"flags: qr aa rd;", "192.0.2.1"}, nil)
	f("a subnet", "+subnet=203.0.113.0/24 edge.example.com A", []string{"CLIENT-SUBNET: 203.0.113.0/24/24", "192.0.2.3", "192.0.2.33"}, []string{"192.0.2.1"})
	f("a longer subnet", "+subnet=203.0.113.7/32 edge.example.com A", []string{"CLIENT-SUBNET: 203.0.113.7/32/24", "192.0.2.3"}, nil)
	f("a shorter subnet", "+subnet=203.0.112.0/20 edge.example.com A", []string{"CLIENT-SUBNET: 203.0.112.0/20/21"}, nil)
	f("a subnet of IPv6", "+subnet=2001:db8:a:b::/56 edge.example.com A", []string{"CLIENT-SUBNET: 2001:db8:a::/56/48", "192.0.2.3"}, nil)
	f("a subnet of IPv4 in IPv6", "+subnet=::ffff:203.0.113.0/120 edge.example.com A", []string{"CLIENT-SUBNET: ::ffff:203.0.113.0/120/120", "192.0.2.3"}, nil)
	f("all of IPv4 in IPv6", "+subnet=::ffff:0.0.0.0/96 edge.example.com A", []string{"CLIENT-SUBNET: ::ffff:0.0.0.0/96/97", "192.0.2.1"}, nil)
	f("a subnet of no PoP", "+subnet=10.1.2.0/24 edge.example.com A", []string{"CLIENT-SUBNET: 10.1.2.0/24/2", "192.0.2.1"}, nil)
	f("no subnet on purpose", "+subnet=0.0.0.0/0 edge.example.com A", []string{"CLIENT-SUBNET: 0.0.0.0/0/0", "192.0.2.1"}, nil)
	f("no subnet, of family 0", "+ednsopt=8:00000000 edge.example.com A", []string{"status: NOERROR", "CLIENT-SUBNET: 0/0/0", "192.0.2.1"}, nil)
	f("no subnet in short", "+subnet=0 edge.example.com A", []string{"status: NOERROR", "CLIENT-SUBNET: 0.0.0.0/0/0", "192.0.2.1"}, nil)
	f("a subnet for another type", "+subnet=203.0.113.0/24 edge.example.com TXT", append([]string{"CLIENT-SUBNET: 203.0.113.0/24/0"}, noData...), nil)
	f("a subnet for a missing name", "+subnet=203.0.113.0/24 x.edge.example.com A", []string{"status: NXDOMAIN", "CLIENT-SUBNET: 203.0.113.0/24/0"}, nil)
	f("letters", "+subnet=203.0.113.0/24 eDgE.ExAmPlE.CoM A", []string{";eDgE.ExAmPlE.CoM. IN A", "eDgE.ExAmPlE.CoM. 20 IN A 192.0.2.3"}, nil)
	f("letter case of a missing name", "x.EDGE.example.com A", []string{"status: NXDOMAIN", ";x.EDGE.example.com. IN A", soa}, nil)

	f("EDNS version 1", "+edns=1 +noednsnegotiation edge.example.com A", []string{"status: BADVERS", "EDNS: version: 0", "ANSWER: 0"}, nil)
	f("an unknown option", "+ednsopt=65001:abcd edge.example.com A", []string{"status: NOERROR", "192.0.2.1"}, []string{"; OPT=65001"})
	f("a cookie", "+cookie edge.example.com A", []string{"status: NOERROR", "192.0.2.1"}, nil)
	f("family 3", "+ednsopt=8:00030800c0 edge.example.com A", []string{"status: FORMERR", "udp: 1232"}, []string{"CLIENT-SUBNET"})
	f("family 0 with a length", "+ednsopt=8:00000800c0 edge.example.com A", []string{"status: FORMERR"}, nil)
	f("too long", "+ednsopt=8:00012100c000020001 edge.example.com A", []string{"status: FORMERR"}, nil)
	f("too few octets", "+ednsopt=8:00011800c000 edge.example.com A", []string{"status: FORMERR"}, nil)
	f("too many octets", "+ednsopt=8:00010800c000 edge.example.com A", []string{"status: FORMERR"}, nil)
	f("stray bits", "+ednsopt=8:00010900c0ff edge.example.com A", []string{"status: FORMERR"}, nil)
	f("a scope in the query", "+ednsopt=8:00011818c00002 edge.example.com A", []string{"status: FORMERR"}, nil)
	f("no octets at all", "+ednsopt=8 edge.example.com A", []string{"status: FORMERR"}, nil)
	f("two subnets", "+ednsopt=8:00010000 +ednsopt=8:00010000 edge.example.com A", []string{"status: FORMERR"}, nil)

	f("an unknown type", "edge.example.com TYPE65280", noData, nil)
	f("a type without records", "edge.example.com MX", noData, nil)
	f("HTTPS", "edge.example.com HTTPS", noData, nil)
	f("ANY", "edge.example.com ANY", []string{"status: NOERROR", "ANSWER: 1", `edge.example.com. 3600 IN HINFO "RFC8482" ""`}, []string{"192.0.2."})
	f("ANY of nothing", "x.edge.example.com ANY", []string{"status: NXDOMAIN"}, nil)
	f("type 0", "edge.example.com TYPE0", []string{"status: FORMERR"}, nil)
	f("type OPT", "edge.example.com TYPE41", []string{"status: FORMERR"}, nil)
	f("MAILB", "edge.example.com MAILB", []string{"status: REFUSED"}, nil)
	f("class CH", "version.bind CH TXT", []string{"status: REFUSED"}, nil)
	f("class CH in the zone", "edge.example.com CH A", []string{"status: REFUSED", "ANSWER: 0"}, nil)
	f("class ANY", "-c ANY edge.example.com A", []string{"status: REFUSED", "ANSWER: 0"}, nil)
	for _, name := range []string{"example.org", "example.com", "com", ".", "notedge.example.com", "www.example.com"} {
		f("out of zone "+name, name+" A", []string{"status: REFUSED", "flags: qr;", "ANSWER: 0, AUTHORITY: 0", "udp: 1232"}, nil)
	}
	f("another opcode", "+opcode=NOTIFY edge.example.com SOA", []string{"opcode: NOTIFY, status: NOTIMP"}, nil)
	f("an update", "+opcode=UPDATE edge.example.com SOA", []string{"opcode: UPDATE, status: NOTIMP"}, nil)
	f("no question", "+header-only", []string{"status: FORMERR"}, nil)

	f("SOA", "edge.example.com SOA", []string{"status: NOERROR", "flags: qr aa;", "ANSWER: 1", soa, " 3600 600 604800 20"}, nil)
	f("NS", "edge.example.com NS", []string{
		"ANSWER: 2, AUTHORITY: 0, ADDITIONAL: 1", "edge.example.com. 3600 IN NS ns1.edge.example.com.", "edge.example.com. 3600 IN NS ns2.example.net.",
	}, []string{"192.0.2.53"})
	f("a name server", "NS1.edge.example.com A", []string{"ANSWER: 1", "NS1.edge.example.com. 3600 IN A 192.0.2.53"}, nil)
	f("another type of it", "ns1.edge.example.com TXT", noData, nil)
	f("one PoP", "fra1.pop.edge.example.com A", []string{"ANSWER: 1", "fra1.pop.edge.example.com. 20 IN A 192.0.2.2"}, nil)
	f("one PoP without IPv6", "fra1.pop.edge.example.com AAAA", noData, nil)
	f("one region", "us-east.region.edge.example.com A", []string{"ANSWER: 2", "us-east.region.edge.example.com. 20 IN A 192.0.2.3"}, nil)
	f("one region for a subnet", "+subnet=198.51.100.0/24 eu-west.region.edge.example.com A", []string{"192.0.2.1", "CLIENT-SUBNET: 198.51.100.0/24/24"}, nil)
	f("the name above PoPs", "pop.edge.example.com A", noData, nil)
	f("the name above regions", "region.edge.example.com A", noData, nil)
	for _, name := range []string{"www", "ams1", "x.pop", "ams1.region", "x.ams1.pop", "us-east.pop", "x.region", "a.b.c", `\.pop`, `ams1\.pop`} {
		f("no such name "+name, name+".edge.example.com A", []string{"status: NXDOMAIN", "flags: qr aa;", "ANSWER: 0, AUTHORITY: 1", soa}, nil)
	}
}

func TestDigAllTransfers(t *testing.T) {
	t.Parallel()
	s := serve(t, config(view(t, fleet, healthy)))
	f := func(ask, transport, want string) {
		t.Helper()
		out, _ := digs(t, s, transport, "edge.example.com", ask, "+all") // its status is that of the transfer
		require.NotContains(t, out, "192.0.2.", ask)
		require.Contains(t, out, want)
	}
	f("AXFR", "+tcp", "Transfer failed.")
	f("AXFR", "+notcp", "Transfer failed.")
	f("IXFR=1", "+tcp", "Transfer failed.")
	f("IXFR=1", "+notcp", "status: REFUSED")
}

// many returns a fleet whose PoPs are all down, so that all are answered.
func many(pops int) string {
	var b strings.Builder
	b.WriteString("zone: edge.example.com\nregions: [{name: r, pops: [")
	for i := range pops {
		fmt.Fprintf(&b, "{name: p%d, addresses: [10.0.%d.%d]},", i, i/256, i%256)
	}
	return b.String() + "]}]"
}

// Over UDP the nearest addresses that fit are sent; no client must retry to get any.
func TestDigFailOpenFits(t *testing.T) {
	t.Parallel()
	f := func(pops int, ask string, want int) {
		t.Helper()
		seen := &counts{}
		c := config(view(t, many(pops), region.PoPState{}))
		c.Observer = seen
		s := serve(t, c)
		out := dig(t, s, append([]string{"edge.example.com", "A"}, strings.Fields(ask)...)...)
		require.Contains(t, out, "flags: qr aa;")
		require.Contains(t, out, fmt.Sprintf("ANSWER: %d,", want))
		require.Equal(t, 1, seen.of("fail_open"))
		out = dig(t, s, append([]string{"+tcp", "edge.example.com", "A"}, strings.Fields(ask)...)...)
		require.Contains(t, out, fmt.Sprintf("ANSWER: %d,", pops), "all over TCP")
	}
	f(25, "+noedns", 25)
	f(31, "+noedns", 29)
	f(31, "+bufsize=100", 29)
	f(31, "+bufsize=1232", 31)
	f(78, "+bufsize=1232", 74)
	f(256, "+bufsize=4096", 74)
}

func TestFailOpenAnswersTheNearest(t *testing.T) {
	var text strings.Builder
	text.WriteString("zone: edge.example.com\nregions: [")
	for i := range 25 { // the client belongs to the last
		fmt.Fprintf(&text, `{name: r%d, pops: [{name: p%d, clients: [10.0.%d.0/24], addresses: ["2001:db8::%d", "2001:db8::1:%d"]}]},`, i, i, i, i, i)
	}
	s := serve(t, config(view(t, text.String()+"]", region.PoPState{})))
	out := dig(t, s, "+bufsize=512", "+subnet=10.0.24.0/24", "edge.example.com", "AAAA")
	require.Contains(t, out, "ANSWER: 16,")
	require.Regexp(t, `AAAA 2001:db8::(1:)?24 edge.example.com. 20 IN AAAA 2001:db8::(1:)?24 edge.example.com. 20 IN AAAA 2001:db8::(1:0)? `, out)
}

// Static records: at names, below wildcards and behind CNAMEs, over UDP and TCP.
func TestDigRecords(t *testing.T) {
	t.Parallel()
	s := serve(t, config(view(t, fleet+records, healthy)))
	f := func(ask string, want ...string) {
		t.Helper()
		for _, transport := range []string{"+notcp", "+tcp"} {
			out := dig(t, s, append([]string{transport, "+ignore"}, strings.Fields(ask)...)...)
			for _, w := range append(want, "flags: qr aa;") {
				require.Contains(t, out, w, "%s %s", transport, ask)
			}
			require.NotContains(t, out, "malformed")
		}
	}
	const soa, noData, noName = "edge.example.com. 20 IN SOA", "status: NOERROR", "status: NXDOMAIN"
	f("www.edge.example.com A", "ANSWER: 2, AUTHORITY: 0", "www.edge.example.com. 300 IN CNAME edge.example.com. edge.example.com. 20 IN A 192.0.2.1")
	f("+subnet=203.0.113.0/24 WWW.edge.example.com A", "ANSWER: 3", "WWW.edge.example.com. 300 IN CNAME edge.example.com.", "192.0.2.33", "CLIENT-SUBNET: 203.0.113.0/24/24")
	f("www.edge.example.com CNAME", "ANSWER: 1, AUTHORITY: 0", "CNAME edge.example.com.")
	f("www.edge.example.com TXT", noData, "ANSWER: 1, AUTHORITY: 1", "CNAME edge.example.com.", soa)
	f("www.edge.example.com MX", "ANSWER: 2", "edge.example.com. 300 IN MX 10 mail.example.com.")
	f("www.edge.example.com ANY", "ANSWER: 1", "www.edge.example.com. 300 IN CNAME edge.example.com.")
	f("x.to.edge.example.com ANY", "ANSWER: 1", "x.to.edge.example.com. 300 IN CNAME www.edge.example.com.")
	f("far.edge.example.com A", noData, "ANSWER: 1, AUTHORITY: 0", "far.edge.example.com. 300 IN CNAME other.example.net.")
	f("far-too.edge.example.com A", "ANSWER: 2, AUTHORITY: 0", "far-too.edge.example.com. 60 IN CNAME far.edge.example.com. far.edge.example.com. 300 IN CNAME other.example.net.")
	f("lost.edge.example.com A", noName, "ANSWER: 1, AUTHORITY: 1", "CNAME nothing.edge.example.com.", soa)
	f("direct.edge.example.com A", "ANSWER: 2", "fra1.pop.edge.example.com. 20 IN A 192.0.2.2")
	f("direct.edge.example.com AAAA", noData, "ANSWER: 1, AUTHORITY: 1", soa)
	f("_acme-challenge.edge.example.com TXT", "ANSWER: 2", `_acme-challenge.edge.example.com. 300 IN TXT "first"`, `IN TXT "a\\032b \"c\""`)
	f("_acme-challenge.edge.example.com A", noData, "ANSWER: 0, AUTHORITY: 1", soa)
	f("x._acme-challenge.edge.example.com TXT", noName, soa)
	f("edge.example.com CAA", "ANSWER: 2", `edge.example.com. 300 IN CAA 0 issue "letsencrypt.org"`, `CAA 128 iodef "mailto:a@example.com"`)
	f("edge.example.com MX", "ANSWER: 1", "MX 10 mail.example.com.")
	f("silent.edge.example.com MX", "ANSWER: 1", "MX 0 .")
	f("status.edge.example.com A", "ANSWER: 2", "198.51.100.1", "198.51.100.2")
	f("status.edge.example.com AAAA", "ANSWER: 1", "2001:db8::7")
	f("status.edge.example.com MX", noData, soa)
	f("a.dev.edge.example.com TXT", "ANSWER: 1", `a.dev.edge.example.com. 300 IN TXT "wild"`)
	f("a.b.c.dev.edge.example.com TXT", "ANSWER: 1", `a.b.c.dev.edge.example.com. 300 IN TXT "wild"`)
	f("a.dev.edge.example.com A", noData, soa)
	f("*.dev.edge.example.com TXT", `*.dev.edge.example.com. 300 IN TXT "wild"`)
	f("dev.edge.example.com TXT", noData, soa)
	f("down.dev.edge.example.com TXT", noData, "ANSWER: 0", soa)
	f("x.down.dev.edge.example.com TXT", noName, soa)
	f("deep.down.dev.edge.example.com A", "198.51.100.3")
	f("x.to.edge.example.com A", "ANSWER: 3", "x.to.edge.example.com. 300 IN CNAME www.edge.example.com. www.edge.example.com. 300 IN CNAME edge.example.com. edge.example.com. 20 IN A 192.0.2.1")
	f("ns1.edge.example.com A", "ANSWER: 1", "192.0.2.53")
	f("ns1.edge.example.com TXT", `"kept"`)
	f("long.edge.example.com TXT +bufsize=1232", "ANSWER: 1", `01234" "56789`)
	f("x.pop.edge.example.com A", noName)

	out := dig(t, s, "+noedns", "+ignore", "long.edge.example.com", "TXT")
	require.Contains(t, out, "flags: qr aa tc;")
	require.Contains(t, out, "ANSWER: 0")
	require.Contains(t, dig(t, s, "+noedns", "long.edge.example.com", "TXT"), "ANSWER: 1", "part of a text would be a different one")
}

func TestDigWhatStateSays(t *testing.T) {
	t.Parallel()
	seen := &counts{}
	v := view(t, fleet, region.PoPState{Healthy: true, Drained: &region.Drain{}})
	c := config(nil)
	c.Observer, c.View = seen, func() *region.View { return v }
	f := func(ask, want, kind string) {
		t.Helper()
		before := seen.of(kind)
		s := serve(t, c)
		require.Contains(t, dig(t, s, strings.Fields(ask)...), want)
		require.Equal(t, before+1, seen.of(kind), kind)
		s.stop()
	}
	f("edge.example.com A", "ANSWER: 1,", "answer")
	v = view(t, fleet, region.PoPState{})
	f("edge.example.com A", "ANSWER: 4,", "fail_open")
	f("edge.example.com AAAA", "ANSWER: 2,", "fail_open")
	f("us-east.region.edge.example.com A", "ANSWER: 2,", "fail_open")
	f("ams1.pop.edge.example.com A", "192.0.2.1", "answer")
	v = view(t, fleet, healthy)
	v.PoPs["ams1"] = region.PoPState{Healthy: true, Stale: true}
	v = v.Spilled(&region.Spill{Gifts: map[string]region.Gift{"ams1": {Own: 1, Parts: map[string]region.Part{"nyc1": {Goal: 1, Share: 1}}}}}, 0, time.Now())
	f("edge.example.com A", "192.0.2.3", "spilled")

	require.Zero(t, seen.of("moved"), "no query had a subnet")
	var now atomic.Pointer[region.View]
	now.Store(v)
	moving := c
	moving.View = now.Load
	s := serve(t, moving)
	for _, at := range []string{"10.1.0.0/24", "10.1.0.0/24", "10.2.0.0/24"} {
		dig(t, s, "+subnet="+at, "edge.example.com", "A")
	}
	require.Zero(t, seen.of("moved"))
	now.Store(view(t, fleet, healthy))
	dig(t, s, "+subnet=10.1.0.0/24", "edge.example.com", "A")
	dig(t, s, "+subnet=10.1.0.0/24", "us-east.region.edge.example.com", "A")
	require.Equal(t, 1, seen.of("moved"), "back to ams1")
	s.stop()

	// Nothing has been read yet: a resolver tries another name server.
	v = region.NewView(nil, nil, nil)
	f("edge.example.com A", "status: SERVFAIL", "servfail")
	c.Zone = "edge.example.com"
	f("edge.example.com A", "status: SERVFAIL", "servfail")
	f("ams1.pop.edge.example.com A", "status: SERVFAIL", "servfail")
	f("edge.example.com NS", "ns2.example.net", "answer")
	f("www.edge.example.com A", "status: SERVFAIL", "servfail")
	f("example.com A", "status: REFUSED", "refused")
	c.Zone, c.TTL, c.Hostmaster = "other.example.", 60e9, "Dns.Team@example.com"
	v = view(t, fleet, healthy)
	c.NS[0] = NameServer{Host: "NS.example.org."}
	f("other.example A", "other.example. 60 IN A 192.0.2.1", "answer")
	f("other.example SOA", `other.example. 60 IN SOA ns.example.org. Dns\.Team.example.com. `, "answer")
}

func TestDigListensEverywhere(t *testing.T) {
	t.Parallel()
	s := serve(t, config(view(t, fleet, healthy)), "0.0.0.0:0")
	// dig accepts an answer only from the address that it queried.
	for _, at := range []string{"@127.0.0.1", "@127.9.8.7"} {
		require.Contains(t, dig(t, s, at, "edge.example.com", "A"), "192.0.2.1")
		require.Contains(t, dig(t, s, at, "+tcp", "edge.example.com", "A"), "192.0.2.1")
	}
	both := serve(t, config(view(t, fleet, healthy)), "[::]:0")
	for _, at := range []string{"@127.0.0.1", "@127.9.8.7", "@::1"} {
		require.Contains(t, dig(t, both, at, "edge.example.com", "A"), "192.0.2.1")
	}
}
