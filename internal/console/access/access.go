// Package access decides who may use the console: it identifies a request's person and that
// person's rights. It does not depend on the console's operations.
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

	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/pkg/certs"
)

// Person sent a request.
type Person struct {
	Name   string
	Rights Rights
	// Token must accompany a change. A page of another origin cannot read it.
	Token string
	// Until is when the session ends; zero: never.
	Until   time.Time
	session string   // its ID, if the console began it
	groups  []string // those with a right
	machine bool     // a token for machines speaks for its creator
}

// Refusal says why a request is refused.
type Refusal struct {
	Status int
	// Reason is login if logging in may help.
	Reason string
	Detail string
	// Login is the login page, if this console has one.
	Login string
	// After is how long to wait, if waiting helps.
	After time.Duration
}

func (r *Refusal) Error() string { return r.Detail }

// ReasonLogin is the reason of a refusal that a login may lift.
const ReasonLogin = "login"

func refusal(status int, reason, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Access authenticates and authorizes a console's requests.
type Access struct {
	Log *slog.Logger
	// Now is the clock of sessions and limits.
	Now    func() time.Time
	config *Config // nil: every caller with the token is the local user
	local  string
	offer  offer
	secret []byte // signs tokens without a session, for the life of this process
	certs  *certs.Server
	limits *limits
	// With a login at this console: the issuer, the cookies' keys, the ended sessions, and the
	// finished logins.
	provider    *provider
	keys        keyring
	ended, used spent
	tokens      *tokens // nil: none are issued
}

// Local grants callers with the token of Offer all rights in the name of user.
func Local(user string) *Access {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return &Access{Log: slog.New(slog.DiscardHandler), local: user, secret: secret, Now: time.Now}
}

// New returns an Access configured by c. Without a login, it is Local.
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
	if c.Tokens != nil {
		a.tokens = &tokens{file: c.Tokens.File}
		if err := a.tokens.reload(); err != nil {
			return nil, err
		}
	}
	a.provider, err = newProvider(c.OIDC, c.Origin())
	return a, err
}

// Login reports whether people have to authenticate.
func (a *Access) Login() bool { return a.config != nil }

// Listen returns ln, with TLS and HTTP/2 if configured.
func (a *Access) Listen(ln net.Listener) net.Listener {
	if a.certs == nil {
		return ln
	}
	return tls.NewListener(ln, a.certs.Speaking("h2", "http/1.1"))
}

// Reload reads the files again. A file that cannot be read keeps its old contents.
func (a *Access) Reload() error {
	var faults []error
	if a.certs != nil {
		faults = append(faults, a.certs.Reload())
	}
	if a.provider != nil {
		faults = append(faults, a.keys.reload())
	}
	if a.tokens != nil {
		faults = append(faults, a.tokens.reload())
	}
	if a.limits != nil {
		a.limits.store.Sweep()
	}
	return errors.Join(faults...)
}

// Admit refuses requests that may not even get a page.
func (a *Access) Admit(r *http.Request) error {
	switch {
	case a.config == nil:
		return nil
	case a.config.Proxy != nil:
		return a.config.Proxy.admit(r)
	}
	from := httpconns.Subscriber(peer(r)).String()
	if strings.HasPrefix(r.URL.Path, "/auth/") {
		if err := a.limits.take(a.limits.login, "login "+from); err != nil {
			return err
		}
	}
	return a.limits.take(a.limits.address, "address "+from)
}

// Identify returns a request's person, or a Refusal that says why there is none.
func (a *Access) Identify(r *http.Request) (Person, error) {
	if a.config == nil {
		if !a.known(r) {
			return Person{}, closed("this request lacks the token of this console")
		}
		return Person{Name: a.local, Rights: Rights{{May: Admin}}, Token: a.token("")}, nil
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

// person returns the person that the proxy, a session or a token names, and the key of their limits.
func (a *Access) person(r *http.Request) (p Person, key string, err error) {
	switch {
	case a.isToken(r):
		return a.machine(r.Header.Get(HeaderToken))
	case a.config.Proxy == nil:
		s, err := a.session(r)
		return Person{Name: s.Name, Rights: a.config.Roles.of(s.Name, s.Groups), Token: s.Token, Until: s.Until, session: s.ID, groups: s.Groups}, "session " + s.ID, err
	}
	name, groups, err := a.config.Proxy.read(r)
	return Person{Name: name, Rights: a.config.Roles.of(name, groups), Token: a.token(name)}, "person " + name, err
}

// entitled refuses a person without a role.
func entitled(p Person) error {
	if len(p.Rights) == 0 {
		return refusal(http.StatusForbidden, "", "you are %s, and neither your name nor a group of yours has a role here; ask the console's administrator to add one to roles", p.Name)
	}
	return nil
}

// token returns a token that is valid for one name only, so a stolen one gives its thief
// nothing.
func (a *Access) token(name string) string {
	mac := hmac.New(sha256.New, a.secret)
	mac.Write([]byte(name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const longestName = 128 // as in the histories

// checkName refuses a name that would mislead readers of a history.
func checkName(name string) error {
	switch {
	case len(name) > longestName:
		return fmt.Errorf("must be at most %d bytes (got %d)", longestName, len(name))
	case !utf8.ValidString(name) || strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("must be one line of printable characters (got %q)", name)
	}
	return nil
}

// peer returns the connection's address, ignoring headers.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // in no network
	}
	return at.Addr().Unmap().WithZone("")
}
