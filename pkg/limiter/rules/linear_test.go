package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/paths"
)

// linear matches rule by rule, as the reference specifies. It returns the ids that apply, and
// the headers that a rule reads and the request repeats.
func linear(doc *Document, r *fake) (ids, twice []string) {
	host, _, _ := strings.Cut(strings.ToLower(r.host), ":")
	host = strings.TrimSuffix(host, ".")
	for _, rule := range doc.Rules {
		c := rule.Match.Conditions
		if n := rule.Match.Not; n != nil && n.meets(host, r) {
			exempt := true
			for name, value := range n.Headers {
				values := r.headers[textproto.CanonicalMIMEHeaderKey(name)]
				exempt = exempt && len(values) == 1 && values[0] == value
			}
			if exempt {
				continue
			}
		}
		if rule.Mode == "off" || !c.meets(host, r) {
			continue
		}
		applies := true
		for name, value := range c.Headers {
			name = textproto.CanonicalMIMEHeaderKey(name)
			values := r.headers[name]
			if len(values) > 1 && rule.Mode != "shadow" {
				twice = append(twice, name)
			}
			applies = applies && len(values) == 1 && values[0] == value
		}
		if applies {
			ids = append(ids, rule.ID)
		}
	}
	return ids, twice
}

// meets reports whether a request meets all conditions except those on headers.
func (c *Conditions) meets(host string, r *fake) bool {
	return anyOf(c.Hosts, func(p string) bool {
		if domain, ok := strings.CutPrefix(p, "*"); ok {
			return len(host) > len(domain) && strings.HasSuffix(host, domain)
		}
		return strings.EqualFold(p, host)
	}) &&
		anyOf(c.Paths, func(p string) bool {
			if prefix, ok := strings.CutSuffix(p, "*"); ok {
				return strings.HasPrefix(r.path, prefix)
			}
			return p == r.path
		}) &&
		anyOf(c.Methods, func(p string) bool { return p == r.method }) &&
		anyOf(c.Clients, func(p string) bool { return netip.MustParsePrefix(p).Contains(r.client) })
}

func anyOf(list []string, match func(string) bool) bool {
	return list == nil || slices.ContainsFunc(list, match)
}

var (
	someHosts   = []string{"a.com", "b.a.com", "c.b.a.com", "*.a.com", "*.b.a.com", "*.com", "x.org"}
	somePaths   = []string{"/", "/*", "/a", "/a*", "/a/*", "/a/b", "/a/b*", "/ab", "/abc*", "/b", "/a/bc/*"}
	someMethods = []string{"GET", "POST", "PUT", "DELETE"}
	someClients = []string{"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.1/32", "10.1.1.2/31", "::/0", "2001:db8::/32", "2001:db8::1/128"}
	someNames   = []string{"X-A", "X-B", "x-c"}
	someValues  = []string{"1", "2", "3"}
)

func drawDocument(t *rapid.T) *Document {
	list := func(label string, from []string) []string {
		if rapid.IntRange(0, 2).Draw(t, label+"?") == 0 {
			return nil
		}
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID).Draw(t, label)
	}
	doc := &Document{}
	for i := range rapid.IntRange(0, 30).Draw(t, "rules") {
		r := Rule{ID: fmt.Sprint("r", i), Key: []string{}, Limit: 1, Window: "1s"}
		r.Mode = rapid.SampledFrom([]string{"", "", "", "shadow", "off"}).Draw(t, "mode")
		conditions := func() Conditions {
			c := Conditions{
				Hosts: list("hosts", someHosts), Paths: list("paths", somePaths),
				Methods: list("methods", someMethods), Clients: list("clients", someClients),
			}
			for _, name := range list("headers", someNames) {
				if c.Headers == nil {
					c.Headers = make(map[string]string)
				}
				c.Headers[name] = rapid.SampledFrom(someValues).Draw(t, "value")
			}
			return c
		}
		r.Match.Conditions = conditions()
		if not := conditions(); rapid.Bool().Draw(t, "not?") && !not.Empty() {
			r.Match.Not = &not
		}
		doc.Rules = append(doc.Rules, r)
	}
	return doc
}

func drawRequest(t *rapid.T) *fake {
	r := &fake{
		host:    rapid.SampledFrom([]string{"a.com", "B.a.com:80", "c.b.a.com.", "d.c.b.a.com", "x.org", "", ".com", "com"}).Draw(t, "host"),
		path:    rapid.StringMatching(`/[abc/]{0,6}`).Draw(t, "path"),
		method:  rapid.SampledFrom(append([]string{"HEAD"}, someMethods...)).Draw(t, "method"),
		client:  netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.1.1", "10.1.1.3", "10.2.0.1", "192.0.2.1", "2001:db8::1", "2001:db8::2", "fe80::1"}).Draw(t, "client")),
		headers: make(map[string][]string),
	}
	for _, name := range someNames {
		// usually once, sometimes absent, rarely twice
		n := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 0, 0, 2}).Draw(t, "occurrences")
		for range n {
			name := textproto.CanonicalMIMEHeaderKey(name)
			r.headers[name] = append(r.headers[name], rapid.SampledFrom(someValues).Draw(t, "value"))
		}
	}
	return r
}

func TestIndexAgreesWithLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := drawDocument(t)
		set, err := Compile(doc)
		require.NoError(t, err)
		var m Match
		for range 10 {
			r := drawRequest(t)
			want, twice := linear(doc, r)
			err := set.Match(r, 1, &m)
			if len(twice) > 0 {
				var dup *DuplicateError
				require.ErrorAs(t, err, &dup)
				require.Contains(t, twice, dup.Name)
				continue
			}
			require.NoError(t, err)
			var got []string
			for _, c := range m.Rules {
				got = append(got, c.ID)
			}
			require.Equal(t, want, got)
		}
	})
}

func TestKeysOfDifferentValuesDiffer(t *testing.T) {
	set := load(t, "rules: [{id: a, key: [path, method, tier], limit: 1, window: 1s, missing: limit}]")
	value := rapid.StringMatching(`[a:~%{}*/]{0,3}|.{0,70}|~missing`)
	rapid.Check(t, func(t *rapid.T) {
		seen := make(map[string][3]string)
		for range 20 {
			v := [3]string{value.Draw(t, "path"), strings.ToUpper(value.Draw(t, "method")), value.Draw(t, "tier")}
			var m Match
			require.NoError(t, set.Match(&fake{path: v[0], method: v[1], tier: v[2]}, 1, &m))
			v[0] = string(paths.AppendKey(nil, []byte(v[0]))) // readings of one path share a key
			key := string(m.Checks[0].Key)
			if other, ok := seen[key]; ok {
				require.Equal(t, other, v, key)
			}
			seen[key] = v
			require.Equal(t, 1, strings.Count(key, "{"), "the subject alone decides the slot")
			require.Equal(t, 1, strings.Count(key, "}"))
			require.Equal(t, 5, strings.Count(key[strings.IndexByte(key, '}'):], ":")+1)
		}
	})
}

func TestRadixAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefixes := rapid.SliceOfDistinct(rapid.StringMatching(`/[ab/]{0,5}`), rapid.ID).Draw(t, "prefixes")
		var table pathTable[string]
		for _, p := range prefixes {
			*table.at(p + "*") = p
		}
		path := rapid.StringMatching(`/[ab/]{0,7}`).Draw(t, "path")
		want := make(map[string]bool)
		for _, p := range prefixes {
			if strings.HasPrefix(path, p) {
				want[p] = true
			}
		}
		got := make(map[string]bool)
		table.each([]byte(path), func(p *string) { got[*p] = true })
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	})
}
