package policy

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/field"
)

func TestTheExampleIsTheDefault(t *testing.T) {
	got, err := Parse([]byte(Example))
	require.NoError(t, err)
	want, err := Parse([]byte("{}"))
	require.NoError(t, err)
	require.NotEqual(t, want.Version, got.Version)
	got.Version = want.Version
	require.Equal(t, want, got)
	require.Equal(t, behavior.Default(), got.Clients)
	require.Equal(t, behavior.DefaultRoutes(), got.Routes)
	require.True(t, got.Shadow)
}

func TestParse(t *testing.T) {
	p, err := Parse([]byte(`
mode: enforce
half_life: 30s
signals: {scan: {at_least: 50}, presence: {weight: 0, headers: []}}
fingerprint: []
routes: {guessing: {weight: 0}}
tiers: [{name: fine}, {name: bad, from: 60, until: 10, refuse: {for: 10s, max: 1m}}]
exempt: [{clients: [192.0.2.0/24]}]
`))
	require.NoError(t, err)
	require.False(t, p.Shadow)
	require.Equal(t, 50, p.Clients.Signals[behavior.Scan].AtLeast)
	require.Equal(t, 0.1, p.Clients.Signals[behavior.Scan].Share)
	require.Nil(t, p.Routes)
	require.Equal(t, []Effect{{Name: "fine", Limits: 1}, {Name: "bad", Limits: 1}}, p.Effects)
	require.NoError(t, p.Clients.Validate())

	p, err = Parse([]byte("{exempt: [{headers: {X-Bot: yes-it-is}}], fingerprint: [x-app, ja4]}"))
	require.NoError(t, err)
	require.Equal(t, []string{"X-App", "Ja4"}, p.Fingerprint)
	for header, want := range map[string]bool{"x-bot": true, "x-app": true, "user-agent": true, "accept": true, "cookie": false} {
		require.Equal(t, want, p.ReadsHeader(header), header)
	}
}

func TestTLS(t *testing.T) {
	p, err := Parse([]byte("signals: {presence: {headers: [], tls: {header: x-ja4, known: [firefox, chrome]}}}"))
	require.NoError(t, err)
	require.Equal(t, "X-Ja4", p.TLS)
	require.True(t, p.ReadsHeader("x-ja4"))
	require.False(t, p.Strange([]byte("chrome")))
	require.False(t, p.Strange([]byte("chrome"), []byte("firefox")))
	require.True(t, p.Strange([]byte("curl")))
	require.True(t, p.Strange([]byte("chrome"), []byte("curl")), "a client's own header that the proxy passed on")
	require.True(t, p.Strange())
	require.Zero(t, testing.AllocsPerRun(100, func() { p.Strange([]byte("chrome")) }))
}

func TestSubject(t *testing.T) {
	p, err := Parse([]byte("subject: [header:x-api-key, client_ip]"))
	require.NoError(t, err)
	require.Len(t, p.Subject, 2)
	require.True(t, p.ReadsHeader("x-api-key"))
	require.False(t, p.ReadsHeader("x-tenant"))

	p, err = Parse([]byte("subject: [client_ip]"))
	require.NoError(t, err)
	require.Nil(t, p.Subject, "addresses tell clients apart anyway")
}

// Parse refuses each document of testdata/bad.txt with the faults that follow it.
func TestBadDocuments(t *testing.T) {
	text, err := os.ReadFile("testdata/bad.txt")
	require.NoError(t, err)
	cases := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	require.GreaterOrEqual(t, len(cases), 40)
	for _, c := range cases {
		document, want, ok := strings.Cut(c, "\n=> ")
		require.True(t, ok, c)
		_, err := Parse([]byte(strings.ReplaceAll(document, `\n`, "\n")))
		require.EqualError(t, err, strings.ReplaceAll(want, "\n=> ", "\n"), "%s", document)
		for _, e := range field.All(err) {
			require.Regexp(t, `[;(]|unknown field|must|at most`, e.Msg, "a fault says what is right")
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"{}", "", Example, "mode: enforce", "tiers: []", "tiers: [{}, {}]", "signals: {burst: {times: .nan}}", "[[", "a: &a [*a]", "\x00",
		"half_life: 1e9h", "exempt: [{clients: [::/0]}]", "tiers: [{name: a}, {name: b, from: 1e999, until: .inf}]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, p.Clients.Validate())
		require.Len(t, p.Effects, len(p.Clients.Tiers))
		if p.Routes != nil {
			require.NoError(t, p.Routes.Validate())
		}
	})
}
