package access

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// Session configures how long a login lasts, and the keys of its cookie.
type Session struct {
	// KeyFiles contain random text. The first seals cookies; all open them.
	KeyFiles []string      `yaml:"key_files"`
	Lifetime time.Duration `yaml:"lifetime"`
}

const (
	usualLifetime   = 8 * time.Hour
	longestLifetime = 24 * time.Hour
	mostKeys        = 8
)

func (s *Session) validate(f *field.Errors) {
	if len(s.KeyFiles) == 0 || len(s.KeyFiles) > mostKeys {
		f.Add("key_files", "must name 1 to %d files with random text, as openssl rand -hex 32 prints it (got %d)", mostKeys, len(s.KeyFiles))
	}
	for i, file := range s.KeyFiles {
		f.File(field.Index("key_files", i), file)
	}
	s.Lifetime = cmp.Or(s.Lifetime, usualLifetime)
	if s.Lifetime < time.Minute || s.Lifetime > longestLifetime {
		f.Add("lifetime", "must be 1m to %s (got %s)", longestLifetime, s.Lifetime)
	}
}

// The cookies' names. A browser accepts the prefix __Host- only with Secure, for this host
// alone, and from no other host of its domain.
const (
	sessionCookie = "__Host-weir-session"
	loginCookie   = "__Host-weir-login"
)

// grant is the sealed content of a session cookie.
type grant struct {
	ID     string    `json:"i"`
	Name   string    `json:"n"`
	Groups []string  `json:"g"` // those that had a role at login
	Token  string    `json:"t"`
	Until  time.Time `json:"u"`
}

// begin sets the cookie of a new session. It is SameSite=Strict: requests from pages of other
// sites, links included, lack it. A linked page still opens, because pages are the same for
// everyone, and its script's requests are of this site.
func (a *Access) begin(w http.ResponseWriter, name string, groups []string, now time.Time) error {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return !a.config.Roles.names(g) })
	s := grant{rand.Text(), name, groups, rand.Text(), now.Add(a.config.Session.Lifetime).Round(0)}
	value, err := a.keys.seal(sessionCookie, s)
	if err != nil {
		return err
	}
	if len(value) > mostCookie {
		return fmt.Errorf("the session of %s needs a cookie of %d bytes, of which browsers keep %d; give roles to fewer groups", name, len(value), mostCookie)
	}
	setCookie(w, sessionCookie, value, a.config.Session.Lifetime, http.SameSiteStrictMode)
	return nil
}

const mostCookie = 3900

// setCookie sets a cookie; a zero lifetime removes it.
func setCookie(w http.ResponseWriter, name, value string, lasts time.Duration, site http.SameSite) {
	age := int(lasts.Seconds())
	if age <= 0 {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: site})
}

// loggedOut returns a Refusal that a login lifts.
func loggedOut(format string, args ...any) *Refusal {
	r := refusal(http.StatusUnauthorized, ReasonLogin, format, args...)
	r.Login = loginPath
	return r
}

func (a *Access) session(r *http.Request) (grant, error) {
	var s grant
	list := r.CookiesNamed(sessionCookie)
	switch {
	case len(list) == 0:
		return s, loggedOut("log in to use this console")
	case len(list) > 1:
		return s, loggedOut("the cookie %s comes %d times; log in again", sessionCookie, len(list))
	}
	if err := a.keys.open(sessionCookie, list[0].Value, &s); err != nil {
		return grant{}, loggedOut("this session is of another console, or its key was removed; log in again")
	}
	if now := a.Now(); !now.Before(s.Until) || s.Until.Sub(now) > longestLifetime || a.ended.has(s.ID) {
		return grant{}, loggedOut("your session has ended; log in again")
	}
	return s, nil
}

// End ends a request's session everywhere: copies of its cookie no longer work. If it cannot
// remember that, it removes the cookie and returns a Refusal.
func (a *Access) End(w http.ResponseWriter, r *http.Request) error {
	if a.provider == nil {
		return refusal(http.StatusNotFound, "", "this console has no sessions; log out where you logged in")
	}
	s, err := a.session(r)
	if err != nil {
		return err
	}
	setCookie(w, sessionCookie, "", 0, http.SameSiteStrictMode)
	if !a.ended.spend(s.ID, s.Until, a.Now()) && !a.ended.has(s.ID) {
		return refusal(http.StatusServiceUnavailable, "", "the console cannot remember more ended sessions: yours is gone from this browser, but a copy of its cookie works until %s; to end it, replace the key in session.key_files", s.Until.UTC().Format(time.RFC3339))
	}
	return nil
}

// Ended reports whether a person's session was ended, for example by a logout elsewhere, or their
// token revoked.
func (a *Access) Ended(p Person) bool {
	return p.session != "" && a.ended.has(p.session) || p.machine && a.tokens.find(p.Token, a.Now()) == nil
}
