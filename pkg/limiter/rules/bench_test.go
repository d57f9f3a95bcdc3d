package rules

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// three returns n rules, each for its own resource, and a request to which three apply:
// two general ones and one in the middle.
func three(kind string, n int) (string, *fake) {
	r := &fake{client: netip.MustParseAddr("192.0.2.1"), host: "api.example.com", path: "/v1/users", method: "GET"}
	var b bytes.Buffer
	b.WriteString("rules:\n- {id: x, key: [], limit: 9, window: 1s}\n- {id: y, key: [client_ip], limit: 9, window: 1s}\n")
	for i := range n - 2 {
		condition := ""
		switch kind {
		case "path":
			condition = fmt.Sprintf("paths: [/r%d/*]", i)
			r.path = fmt.Sprintf("/r%d/users", n/2)
		case "host":
			condition = fmt.Sprintf("hosts: [h%d.io]", i)
			r.host = fmt.Sprintf("h%d.io", n/2)
		case "client":
			condition = fmt.Sprintf("clients: [10.%d.%d.0/24]", i>>8, i&255)
			r.client = netip.AddrFrom4([4]byte{10, byte(n / 2 >> 8), byte(n / 2), 9})
		case "header":
			condition = fmt.Sprintf("headers: {X-Id: v%d}", i)
			r.headers = map[string][]string{"X-Id": {fmt.Sprintf("v%d", n/2)}}
		}
		fmt.Fprintf(&b, "- {id: r%d, match: {%s}, key: [], limit: 9, window: 1s}\n", i, condition)
	}
	return b.String(), r
}

func compiled(b testing.TB, text string) *Set {
	set, err := Load([]byte(text))
	require.NoError(b, err)
	return set
}

func BenchmarkMatch(b *testing.B) {
	for _, kind := range []string{"path", "host", "client", "header"} {
		for _, n := range []int{10, 1_000, 10_000} {
			text, r := three(kind, n)
			set := compiled(b, text)
			b.Run(fmt.Sprintf("%s/rules=%d", kind, n), func(b *testing.B) {
				b.ReportAllocs()
				var m Match
				for b.Loop() {
					if err := set.Match(r, 1, &m); err != nil || len(m.Checks) != 3 {
						b.Fatal(err, len(m.Checks))
					}
				}
			})
		}
	}
}

// BenchmarkFind compares conditions on a request that is read with those on one that was.
func BenchmarkFind(b *testing.B) {
	m, err := NewMatcher([]Conditions{{Paths: []string{"/checkout/*"}}, {Methods: []string{"POST"}}, {Hosts: []string{"api.example.com"}}})
	if err != nil {
		b.Fatal(err)
	}
	r, match := plainRequest(), Match{}
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Find(r, &match)
		}
	})
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.FindAgain(&match)
		}
	})
}

// realistic returns a document with as many rules as allowed, of 200 bytes each.
func realistic() []byte {
	var b bytes.Buffer
	b.WriteString("rules:\n")
	for i := range MaxRules {
		fmt.Fprintf(&b, "  - id: customer-%d\n    match: {hosts: [c%d.example.com], paths: [\"/api/*\", /login]}\n"+
			"    key: [client_ip]\n    algorithm: rolling_window\n    limit: %d\n    window: 1m\n    on_store_failure: open\n", i, i, 10+i%900)
	}
	return b.Bytes()
}

func BenchmarkLoad(b *testing.B) {
	data := realistic()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Load(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, kind := range []string{"path", "host", "client", "header"} {
		text, _ := three(kind, MaxRules)
		doc := parsed(b, []byte(text))
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				if _, err := Compile(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
