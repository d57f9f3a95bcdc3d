// Package access decides who may use the console: which person a request is of, and which
// role that person has. It knows no operation.
package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-edge/weir/pkg/certs"
)

// Role is what a person may do. Each one may do all that those before it may.
type Role int

// The roles. None may do nothing: it is what an operation without a role would need nobody
// to have, and what a person without a group has.
const (
	None Role = iota
	Reader
	Operator
	Admin
)

// String returns the name that configurations use.
func (r Role) String() string { return [...]string{"none", "reader", "operator", "admin"}[r] }

// Person is the one a request is of.
type Person struct {
	Name string
	Role Role
	// Token is what a change must carry. A page of another origin cannot read it.
	Token string
	// Until is when the session ends; zero: never.
	Until   time.Time
	session string // its ID, if there is one
}

// Refusal says why a request is not answered.
type Refusal struct {
	Status int
	// Reason is login if logging in may help.
	Reason string
	Detail string
	// Login is where to log in, if that is at this console.
	Login string
	// After is how long to wait, if waiting helps.
	After time.Duration
}

// Error implements error.
func (r *Refusal) Error() string { return r.Detail }

// ReasonLogin is the reason of a refusal that a login may end.
const ReasonLogin = "login"

func refusal(status int, reason, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Access is a console's answer to who may.
type Access struct {
	Log *slog.Logger
	// Now is the clock of sessions and limits.
	Now    func() time.Time
	config *Config // nil: everybody who can connect is local
	local  string
	secret []byte // of tokens without a session, for the life of this process
	certs  *certs.Server
	limits *limits
	// With a login of its own: the issuer, what seals cookies, the sessions that were ended, and
	// the logins that were finished.
	provider    *provider
	keys        keyring
	ended, used spent
}

// Local lets everybody who can connect do everything, in the name of user.
func Local(user string) *Access {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	return &Access{Log: slog.New(slog.DiscardHandler), local: user, secret: secret, Now: time.Now}
}

// New does what c says. Without a login, everybody is user.
func New(c *Config, user string) (*Access, error) {
	a := Local(user)
	if !c.login() {
		return a, nil
	}
	a.config = c
	a.limits = newLimits(&c.Rate, func() time.Time { return a.Now() })
	var err error
	if c.TLS != nil {
		if a.certs, err = certs.NewServer([]certs.Pair{*c.TLS}, ""); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	if c.OIDC == nil {
		return a, nil
	}
	a.keys.files = c.Session.KeyFiles
	if err := a.keys.reload(); err != nil {
		return nil, err
	}
	a.provider, err = newProvider(c.OIDC, c.Origin())
	return a, err
}

// Login reports whether people are told apart.
func (a *Access) Login() bool { return a.config != nil }

// Listen returns ln, speaking TLS if that is configured.
func (a *Access) Listen(ln net.Listener) net.Listener {
	if a.certs == nil {
		return ln
	}
	return tls.NewListener(ln, a.certs.Config())
}

// Reload reads the files again. What cannot be read stays as it was.
func (a *Access) Reload() error {
	var faults []error
	if a.certs != nil {
		faults = append(faults, a.certs.Reload())
	}
	if a.provider != nil {
		faults = append(faults, a.keys.reload())
	}
	if a.limits != nil {
		a.limits.store.Sweep()
	}
	return errors.Join(faults...)
}

// Admit refuses a request that must not even see a page.
func (a *Access) Admit(r *http.Request) error {
	switch {
	case a.config == nil:
		return nil
	case a.config.Proxy != nil:
		return a.config.Proxy.admit(r)
	}
	from := network(peer(r))
	if strings.HasPrefix(r.URL.Path, "/auth/") {
		if err := a.limits.take(a.limits.login, "login "+from); err != nil {
			return err
		}
	}
	return a.limits.take(a.limits.address, "address "+from)
}

// Identify returns the person a request is of. A Refusal says why there is none.
func (a *Access) Identify(r *http.Request) (Person, error) {
	if a.config == nil {
		return Person{Name: a.local, Role: Admin, Token: a.token("")}, nil
	}
	p, key, err := a.person(r)
	if err != nil {
		return Person{}, err
	}
	if err := a.limits.take(a.limits.session, key); err != nil {
		return Person{}, err
	}
	return p, entitled(p)
}

// person returns whom the proxy or a session names, and what they are counted by.
func (a *Access) person(r *http.Request) (p Person, key string, err error) {
	if a.config.Proxy == nil {
		s, err := a.session(r)
		return Person{s.Name, a.config.Roles.of(s.Name, s.Groups), s.Token, s.Until, s.ID}, "session " + s.ID, err
	}
	name, groups, err := a.config.Proxy.read(r)
	return Person{Name: name, Role: a.config.Roles.of(name, groups), Token: a.token(name)}, "person " + name, err
}

// entitled refuses a person without a role.
func entitled(p Person) error {
	if p.Role == None {
		return refusal(http.StatusForbidden, "", "you are %s, and neither your name nor a group of yours has a role here; ask who runs this console to add one to roles", p.Name)
	}
	return nil
}

// token is bound to a person, so that one who sees another's gains nothing by it.
func (a *Access) token(name string) string {
	mac := hmac.New(sha256.New, a.secret)
	mac.Write([]byte(name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const longestName = 128 // as in the histories

// checkName refuses a name that would mislead the readers of a history.
func checkName(name string) error {
	switch {
	case len(name) > longestName:
		return fmt.Errorf("must be at most %d bytes (got %d)", longestName, len(name))
	case !utf8.ValidString(name) || strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("must be one line of printable characters (got %q)", name)
	}
	return nil
}

// peer is the address that a request came from, without one of a header.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // in no network
	}
	return at.Addr().Unmap().WithZone("")
}
