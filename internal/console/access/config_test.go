package access

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
)

const good = `
listen: 127.0.0.1:8443
public: https://weir.example.com
proxy: {from: [10.0.0.5/32, "2001:db8::/48"], header: X-Forwarded-User, groups_header: X-Forwarded-Groups}
roles:
  - {who: {groups: ["*"]}, may: reader}
  - {who: {groups: [sre]}, may: operator}
  - {who: {groups: [eu]}, may: admin, regions: [eu-west], kinds: [rules]}
  - {who: {users: [ana@example.com]}, may: admin}
`

func load(t *testing.T, text string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "console.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return Load(file)
}

func TestRolesOfPeople(t *testing.T) {
	c, err := load(t, good)
	require.NoError(t, err)
	require.Equal(t, "https://weir.example.com", c.Origin())
	f := func(want, name string, groups ...string) {
		t.Helper()
		require.Equal(t, want, c.Roles.of(name, groups).String())
	}
	f("reader", "bob@example.com")
	f("operator", "bob@example.com", "others", "sre")
	f("admin", "ana@example.com", "sre")
	f("reader", "sre")                                // a person's name is not a group
	f("reader", "bob@example.com", "ana@example.com") // nor a group a person
	f("admin for rules in eu-west", "bob@example.com", "eu")
	f("operator; admin for rules in eu-west", "bob@example.com", "eu", "sre")
	f("admin", "ana@example.com", "eu", "sre")
	c.Roles = c.Roles[1:]
	f("", "bob@example.com", "*")
}

// Where a person may do something depends on its role and kind.
func TestRegionsOfRights(t *testing.T) {
	rights := Rights{{May: Operator, Regions: []string{"us-east"}}, {May: Admin, Regions: []string{"eu-west"}, Kinds: []string{"rules"}}, {May: Operator, Kinds: []string{"clients"}}}
	f := func(role Role, kind string, everywhere bool, want ...string) {
		t.Helper()
		list, all := rights.Regions(role, kind)
		require.Equal(t, []any{want, everywhere}, []any{list, all})
	}
	f(Operator, "rules", false, "eu-west", "us-east")
	f(Admin, "rules", false, "eu-west")
	f(Operator, "shedder", false, "us-east")
	f(Admin, "shedder", false)
	f(Operator, "clients", true)
	f(Reader, "shedder", true)
	f(None, "rules", false)
}

// Every fault of a right names its field.
func TestFaultsOfRights(t *testing.T) {
	f := func(saying, grant string) {
		t.Helper()
		_, err := load(t, good[:strings.Index(good, "roles:")]+"roles: ["+grant+"]")
		require.ErrorContains(t, err, saying)
	}
	f("roles[0].who: is required", "{may: reader}")
	f("roles[0].who: must name groups or users", "{who: {}, may: reader}")
	f("roles[0].may: is required", "{who: {users: [a]}}")
	f("roles[0].regions: must name at least one; leave it out for all", "{who: {users: [a]}, may: operator, regions: []}")
	f("roles[0].regions[0]: must be the name of a region", "{who: {users: [a]}, may: operator, regions: ['eu west']}")
	f("roles[0].kinds: must name at least one", "{who: {users: [a]}, may: operator, kinds: []}")
	f(`roles[0].kinds[0]: unknown kind "rule"; did you mean rules?`, "{who: {users: [a]}, may: operator, kinds: [rule]}")
	f("roles[0].kinds: has no effect with reader", "{who: {users: [a]}, may: reader, kinds: [rules]}")
	f(`roles[0].kinds[1]: permits nothing in a right with regions: a drain moves clients between regions`, "{who: {users: [a]}, may: operator, kinds: [rules, drain], regions: [eu-west]}")
	f(`roles[0].kinds[0]: unknown kind "drains"; did you mean drain?`, "{who: {users: [a]}, may: operator, kinds: [drains]}")
	f("roles[1].regions: has no effect with reader", "{who: {users: [a]}, may: admin}, {who: {users: [b]}, may: reader, regions: [eu-west]}")
}

// Every fault names its field.
func TestFaults(t *testing.T) {
	for text, saying := range map[string]string{
		"": "is empty", "listen: 127.0.0.1:8090\nuser: x": "user: unknown field", "public: https://x": "listen: is required",
		"listen: everywhere": "listen: must be an address and a port", "listen: 0.0.0.0:8090": "proxy: or oidc is required",
		"listen: 127.0.0.1:8090\nroles: [{who: {users: [ana]}, may: admin}]":                                                                  "roles: have no effect",
		"listen: 127.0.0.1:8090\npublic: https://x.example":                                                                                   "public: has no effect",
		"listen: 0.0.0.0:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":        "tls: is required",
		"listen: 127.0.0.1:1\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":                         "public: is required",
		"listen: 127.0.0.1:1\npublic: http://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":       "public: must be https://",
		"listen: 127.0.0.1:1\npublic: https://x/weir\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]": "public: must be https://",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":                           "proxy.from: is required",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":                 "proxy.from: must name at least one",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [0.0.0.0/0], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":        "proxy.from[0]: is too wide",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/8], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":       "proxy.from[0]: must be the first address of its network; write 10.0.0.0/8",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5], header: X-User}\nroles: [{who: {users: [a]}, may: admin}]":         "proxy.from[0]: must be a network",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32]}\nroles: [{who: {users: [a]}, may: admin}]":                      "proxy.header: is required",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X User}\nroles: [{who: {users: [a]}, may: admin}]":      "proxy.header: must be the name of a header",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X_User}\nroles: [{who: {users: [a]}, may: admin}]":      "proxy.header: must be the name of a header",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: user-agent}\nroles: [{who: {users: [a]}, may: admin}]":  "proxy.header: must be a header that only the proxy sets",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User, groups_header: x-user}\nroles: []":              "proxy.groups_header: must differ",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}":                                                "roles: must give someone a role",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: [{who: {users: [\"*\"]}, may: admin}]":  "roles[0].who.users[0]: must be the name of a person",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: [{who: {users: [ana]}, may: root}]":     "roles[0].may: must be reader, operator or admin (got \"root\")",
		"listen: 127.0.0.1:1\npublic: https://x\ntls: {cert_file: no.pem}\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: []":           "tls: must name both",
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, saying, "%s", text)
		require.ErrorContains(t, err, "console.yaml")
	}
}

func TestFaultsOfLogins(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"secret": "s", "key": strings.Repeat("k", 32), "short": "k"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	f := func(saying, oidc, session, more string) {
		t.Helper()
		file := filepath.Join(folder, "console.yaml")
		text := "listen: 127.0.0.1:0\npublic: https://weir.example.com\nroles: [{who: {groups: [all]}, may: reader}]\noidc: {" + oidc + "}\nsession: {" + session + "}\n" + more
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c, err := Load(file)
		if err == nil {
			_, err = New(c, "console")
		}
		if saying == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, saying)
	}
	const id, keys = "issuer: https://id.example.com, client_id: weir", "key_files: [key]"
	f("", id, keys, "")
	f("", "issuer: http://127.0.0.1:9998/, client_id: weir, client_secret_file: secret, scopes: [groups], name_claim: sub", keys+", lifetime: 1h", "rate: {login: 5}")
	f("oidc.client_id: is required", "issuer: https://id.example.com", keys, "")
	f("oidc.issuer: must be https://", "issuer: http://id.example.com, client_id: weir", keys, "")
	f("oidc.issuer: must be https://", "issuer: \"http://127.0.0.1.evil.example\", client_id: weir", keys, "")
	f("oidc.client_secret_file: stat", id+", client_secret_file: missing", keys, "")
	f("session.key_files: must name 1 to 8 files", id, "lifetime: 1h", "")
	f("session.key_files[1]: stat", id, "key_files: [key, missing]", "")
	f("session.key_files[0]: ", id, "key_files: [short]", "")
	f("session.lifetime: must be 1m to 24h", id, keys+", lifetime: 48h", "")
	f("rate.session: must be 1 to", id, keys, "rate: {session: -1}")
	f("oidc: cannot be used with proxy", id, keys, "proxy: {from: [10.0.0.5/32], header: X-User}")
	_, err := load(t, good+"session: {lifetime: 1h}")
	require.ErrorContains(t, err, "session: has no effect with proxy")
	_, err = load(t, "listen: 127.0.0.1:0\nrate: {login: 1}\nsession: {lifetime: 1h}")
	require.ErrorContains(t, err, "rate: has no effect")
	require.ErrorContains(t, err, "session: has no effect")
}

// Only a token for this client with a verified address names a person.
func TestClaims(t *testing.T) {
	f := func(saying string, audience int, claims map[string]any, o OIDC) (string, []string) {
		t.Helper()
		o.ClientID = "weir"
		o.validate(&field.Errors{})
		name, groups, err := (&provider{OIDC: &o}).read(claims, audience)
		if saying != "" {
			require.ErrorContains(t, err, saying)
		} else {
			require.NoError(t, err)
		}
		return name, groups
	}
	name, groups := f("", 1, map[string]any{"email": "a@b", "email_verified": true, "groups": []any{"x", 1, "y"}}, OIDC{})
	require.Equal(t, []any{"a@b", []string{"x", "y"}}, []any{name, groups})
	_, groups = f("", 1, map[string]any{"sub": "a", "roles": "x"}, OIDC{NameClaim: "sub", GroupsClaim: "roles"})
	require.Equal(t, []string{"x"}, groups)
	f("", 2, map[string]any{"azp": "weir", "sub": "a"}, OIDC{NameClaim: "sub"})
	f("another client", 2, map[string]any{"sub": "a"}, OIDC{NameClaim: "sub"})
	f("another client", 1, map[string]any{"sub": "a", "azp": "other"}, OIDC{NameClaim: "sub"})
	f("has no email", 1, map[string]any{"email": 1}, OIDC{})
	f("has not verified", 1, map[string]any{"email": "a@b"}, OIDC{})
	f("has not verified", 1, map[string]any{"email": "a@b", "email_verified": "true"}, OIDC{})
	f("printable", 1, map[string]any{"sub": "a\nb"}, OIDC{NameClaim: "sub"})
}

// The memory of used IDs is bounded: when it is full, no new one is accepted.
func TestSpent(t *testing.T) {
	var s spent
	at := time.Unix(0, 0)
	require.True(t, s.spend("a", at.Add(time.Minute), at))
	require.False(t, s.spend("a", at.Add(time.Minute), at))
	for i := range mostSpent - 1 {
		require.True(t, s.spend(strconv.Itoa(i), at.Add(time.Minute), at))
	}
	require.False(t, s.spend("b", at.Add(time.Minute), at))
	require.True(t, s.spend("b", at.Add(time.Hour), at.Add(2*time.Minute)), "what has ended is forgotten")
	require.False(t, s.has("a"))
}

// A logout that the full memory cannot record removes the cookie and fails. A second logout of
// a recorded session succeeds.
func TestLogoutThatIsNotRemembered(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("k", leastKey)), 0o600))
	now := time.Unix(1_800_000_000, 0)
	a := &Access{Now: func() time.Time { return now }, provider: &provider{}, keys: keyring{files: []string{key}},
		config: &Config{Session: Session{Lifetime: time.Hour}}}
	require.NoError(t, a.keys.reload())
	login := func() *http.Request {
		w := httptest.NewRecorder()
		require.NoError(t, a.begin(w, "ana", nil, now))
		r := httptest.NewRequest("POST", "/", nil)
		r.AddCookie(w.Result().Cookies()[0])
		return r
	}
	require.NoError(t, a.End(httptest.NewRecorder(), login()))
	for i := range mostSpent - 1 {
		require.True(t, a.ended.spend(strconv.Itoa(i), now.Add(time.Minute), now))
	}
	r, w := login(), httptest.NewRecorder()
	require.ErrorContains(t, a.End(w, r), "a copy of its cookie works until 2027-01-15T09:00:00Z")
	require.Negative(t, w.Result().Cookies()[0].MaxAge)
	_, err := a.session(r)
	require.NoError(t, err)
	now = now.Add(2 * time.Minute)
	require.NoError(t, a.End(httptest.NewRecorder(), r), "the other sessions have expired")
	_, err = a.session(r)
	require.Error(t, err)
}

// The listener speaks TLS with the configured certificate, whose path is relative to the
// configuration.
func TestTLS(t *testing.T) {
	files := testenv.Certificates(t)
	folder := t.TempDir()
	for from, to := range map[string]string{files.CertFile: "weir.pem", files.KeyFile: "weir.key"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, to), text, 0o600))
	}
	file := filepath.Join(folder, "console.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(good, "proxy:", "tls: {cert_file: weir.pem, key_file: weir.key}\nproxy:", 1)), 0o600))
	c, err := Load(file)
	require.NoError(t, err)
	a, err := New(c, "console")
	require.NoError(t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := a.Listen(plain)
	defer func() { _ = ln.Close() }()
	served := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			err = errors.Join(conn.(*tls.Conn).Handshake(), conn.Close())
		}
		served <- err
	}()
	pool, err := certs.Pool(files.CAFile)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "localhost"})
	require.NoError(t, err)
	require.NoError(t, <-served)
	require.NoError(t, conn.Close())
	require.NoError(t, a.Reload())
	require.NoError(t, os.Remove(filepath.Join(folder, "weir.pem")))
	require.ErrorContains(t, a.Reload(), "weir.pem")
}
