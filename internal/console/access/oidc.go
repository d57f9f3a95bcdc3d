package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
)

// OIDC is the issuer where people log in: code flow with PKCE.
type OIDC struct {
	Issuer   string `yaml:"issuer" required:"give the address of the issuer, as https://id.example.com"`
	ClientID string `yaml:"client_id" required:"give the ID that the issuer knows this console by"`
	// ClientSecretFile is unnecessary if this console is a public client at the issuer.
	ClientSecretFile string   `yaml:"client_secret_file"`
	CAFile           string   `yaml:"ca_file"`
	Scopes           []string `yaml:"scopes"`
	NameClaim        string   `yaml:"name_claim"`
	GroupsClaim      string   `yaml:"groups_claim"`
}

func (o *OIDC) validate(f *field.Errors) {
	if u, err := url.Parse(o.Issuer); o.Issuer != "" && (err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !onHost(u))) {
		f.Add("issuer", "must be https:// and a host, as the issuer writes it in its tokens; http:// only on loopback (got %q)", o.Issuer)
	}
	f.File("client_secret_file", o.ClientSecretFile)
	f.File("ca_file", o.CAFile)
	if o.Scopes == nil {
		o.Scopes = []string{"email", "profile"}
	}
	o.NameClaim, o.GroupsClaim = cmp.Or(o.NameClaim, "email"), cmp.Or(o.GroupsClaim, "groups")
}

func onHost(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
}

// provider logs people in.
type provider struct {
	*OIDC
	callback string
	client   *http.Client

	mu    sync.Mutex
	found *oidc.Provider // set when the issuer has answered
}

const (
	// issuerTime bounds each request to the issuer.
	issuerTime = 10 * time.Second
	// loginTime is how long a person may take to log in.
	loginTime = 10 * time.Minute
)

func newProvider(o *OIDC, origin string) (*provider, error) {
	pool, err := certs.Pool(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("oidc.ca_file: %w", err)
	}
	p := &provider{OIDC: o, callback: origin + "/auth/callback"}
	p.client = &http.Client{Timeout: issuerTime, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
	}}
	_, err = p.secret()
	return p, err
}

func (p *provider) secret() (string, error) {
	if p.ClientSecretFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(p.ClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("oidc.client_secret_file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// issuer returns the issuer's configuration. A console starts even if the issuer is
// unreachable.
func (p *provider) issuer(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		// The provider keeps this context's client to fetch keys, so the context must have no
		// deadline.
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("the issuer %s cannot be asked: %w", p.Issuer, err)
		}
		p.found = found
	}
	secret, err := p.secret()
	return p.found, &oauth2.Config{ClientID: p.ClientID, ClientSecret: secret, Endpoint: p.found.Endpoint(), RedirectURL: p.callback, Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...)}, err
}

// attempt is the sealed content of the cookie of a login in progress.
type attempt struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	To       string    `json:"to"`
	Until    time.Time `json:"u"`
}

// inside matches the pages to which a login may return.
var inside = regexp.MustCompile(`^/[a-z]{0,20}(\?[A-Za-z0-9%&=.:_~+-]{0,1000})?$`)

const loginPath = "/auth/login"

// Handler serves /auth/, where people log in and the issuer sends them back.
func (a *Access) Handler() http.Handler {
	mux := http.NewServeMux()
	if a.provider != nil {
		mux.HandleFunc("GET "+loginPath, a.login)
		mux.HandleFunc("GET /auth/callback", a.callback)
	}
	return mux
}

func (a *Access) login(w http.ResponseWriter, r *http.Request) {
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" && mode != "navigate" {
		fail(w, http.StatusForbidden, "a login begins with opening a page")
		return
	}
	to := r.URL.Query().Get("to")
	if !inside.MatchString(to) {
		to = "/"
	}
	_, config, err := a.provider.issuer(r.Context())
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	one := attempt{rand.Text(), rand.Text(), oauth2.GenerateVerifier(), to, a.Now().Add(loginTime).Round(0)}
	value, err := a.keys.seal(loginCookie, one)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	// The issuer's redirect is a navigation from another site, for which browsers withhold
	// Strict cookies. This one contains no session, only what this login must return with.
	setCookie(w, loginCookie, value, loginTime, http.SameSiteLaxMode)
	http.Redirect(w, r, config.AuthCodeURL(one.State, oidc.Nonce(one.Nonce), oauth2.S256ChallengeOption(one.Verifier)), http.StatusSeeOther)
}

func (a *Access) callback(w http.ResponseWriter, r *http.Request) {
	one, err := a.attempt(r)
	setCookie(w, loginCookie, "", 0, http.SameSiteLaxMode)
	if err != nil {
		fail(w, http.StatusForbidden, err.Error())
		return
	}
	name, groups, err := a.provider.person(r, one)
	if err == nil {
		err = entitled(Person{Name: name, Rights: a.config.Roles.of(name, groups)})
	}
	if err == nil {
		err = a.begin(w, name, groups, a.Now())
	}
	if err != nil {
		a.Log.Warn("login failed", "peer", r.RemoteAddr, "error", err)
		fail(w, http.StatusForbidden, err.Error())
		return
	}
	a.Log.Info("login", "user", name, "peer", r.RemoteAddr)
	http.Redirect(w, r, one.To, http.StatusSeeOther)
}

// attempt returns the unfinished login that this browser began.
func (a *Access) attempt(r *http.Request) (attempt, error) {
	var one attempt
	list := r.CookiesNamed(loginCookie)
	if len(list) != 1 || a.keys.open(loginCookie, list[0].Value, &one) != nil {
		return one, errors.New("this browser has begun no login here")
	}
	q, now := r.URL.Query(), a.Now()
	switch {
	case !now.Before(one.Until) || one.Until.Sub(now) > loginTime:
		return one, fmt.Errorf("the login took longer than %s", loginTime)
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(one.State)) != 1:
		return one, errors.New("the answer is to another login")
	case q.Get("iss") != "" && q.Get("iss") != a.provider.Issuer:
		return one, errors.New("the answer is of another issuer")
	case !a.used.spend(one.State, one.Until, now):
		return one, errors.New("the answer was used before")
	case q.Get("error") != "":
		return one, fmt.Errorf("the issuer refused the login: %.200q %.500q", q.Get("error"), q.Get("error_description"))
	}
	return one, nil
}

// person exchanges the request's code at the issuer and returns the person and groups that it
// names.
func (p *provider) person(r *http.Request, one attempt) (name string, groups []string, err error) {
	found, config, err := p.issuer(r.Context())
	if err != nil {
		return "", nil, err
	}
	ctx := oidc.ClientContext(r.Context(), p.client)
	tokens, err := config.Exchange(ctx, r.URL.Query().Get("code"), oauth2.VerifierOption(one.Verifier))
	if err != nil {
		return "", nil, fmt.Errorf("the issuer did not accept the code: %w", err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := found.Verifier(&oidc.Config{ClientID: p.ClientID}).Verify(ctx, raw)
	if err != nil {
		return "", nil, fmt.Errorf("the ID token is not valid: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(one.Nonce)) != 1 {
		return "", nil, errors.New("the ID token is of another login")
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return "", nil, fmt.Errorf("the ID token cannot be read: %w", err)
	}
	return p.read(claims, len(token.Audience))
}

// read returns the person and the groups of a valid token.
func (p *provider) read(claims map[string]any, audience int) (name string, groups []string, err error) {
	if azp, is := claims["azp"].(string); audience > 1 && azp != p.ClientID || is && azp != p.ClientID {
		return "", nil, fmt.Errorf("the ID token was issued to another client (azp %.100q)", azp)
	}
	name, _ = claims[p.NameClaim].(string)
	if name == "" {
		return "", nil, fmt.Errorf("the ID token has no %s; set oidc.name_claim to one that it has, or ask for the scope", p.NameClaim)
	}
	if err := checkName(name); err != nil {
		return "", nil, fmt.Errorf("%s: %w", p.NameClaim, err)
	}
	// Some issuers let people enter any address.
	if p.NameClaim == "email" && claims["email_verified"] != true {
		return "", nil, fmt.Errorf("the issuer has not verified the address %s; verify it there, or set oidc.name_claim to another claim", name)
	}
	switch list := claims[p.GroupsClaim].(type) {
	case string:
		groups = []string{list}
	case []any:
		for _, g := range list {
			if text, is := g.(string); is {
				groups = append(groups, text)
			}
		}
	}
	return name, groups, nil
}

// fail says why the login failed.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "Not logged in: %s.\nOpen /auth/login to begin again.\n", why) // fails only if the client hung up
}
