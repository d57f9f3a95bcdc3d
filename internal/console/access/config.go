package access

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
)

// Config is the document of regionctl console --config. Its file names are relative to it.
type Config struct {
	Listen string      `yaml:"listen" required:"give the address and port to listen on, as 0.0.0.0:8443"`
	Public string      `yaml:"public"`
	TLS    *certs.Pair `yaml:"tls"`
	// One of these identifies people.
	Proxy   *Proxy  `yaml:"proxy"`
	OIDC    *OIDC   `yaml:"oidc"`
	Session Session `yaml:"session"`
	Roles   Roles   `yaml:"roles"`
	Tokens  *Tokens `yaml:"tokens"`
	// Sign has the key that signs what the console publishes.
	Sign Sign `yaml:"sign"`
	Rate Rate `yaml:"rate"`
}

// Sign names the private key for documents.
type Sign struct {
	KeyFile string `yaml:"key_file"`
}

// login reports whether people have to authenticate.
func (c *Config) login() bool { return c.Proxy != nil || c.OIDC != nil }

var form = &field.Form{MaxBytes: 64 << 10, Shorten: "give roles to groups instead of people", Empty: "write at least listen: 127.0.0.1:8090"}

// Load reads a configuration. Its error lists every fault, with field, line and remedy.
func Load(file string) (*Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	tree, faults := field.Load(text, c, form)
	if tree == nil {
		return nil, faults.In(file).Err()
	}
	c.from(filepath.Dir(file))
	found := &field.Errors{}
	c.validate(found)
	return c, tree.Locate(faults.With(*found)).In(file).Bounded(field.MaxFaults).Err()
}

// from makes file names relative to a folder.
func (c *Config) from(folder string) {
	for _, name := range c.files() {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(folder, *name)
		}
	}
}

func (c *Config) files() (list []*string) {
	if c.TLS != nil {
		list = append(list, &c.TLS.CertFile, &c.TLS.KeyFile)
	}
	if c.OIDC != nil {
		list = append(list, &c.OIDC.ClientSecretFile, &c.OIDC.CAFile)
	}
	list = append(list, &c.Sign.KeyFile)
	if c.Tokens != nil {
		list = append(list, &c.Tokens.File)
	}
	for i := range c.Session.KeyFiles {
		list = append(list, &c.Session.KeyFiles[i])
	}
	return list
}

func (c *Config) validate(f *field.Errors) {
	listen, err := netip.ParseAddrPort(c.Listen)
	if c.Listen != "" && err != nil {
		f.Add("listen", "must be an address and a port, as 0.0.0.0:8443 or [::]:8443 (got %q)", c.Listen)
	}
	alone := listen.Addr().Unmap().IsLoopback()
	if c.TLS != nil {
		f.Take("tls", c.TLS.Validate())
	} else if err == nil && !alone {
		f.Add("tls", "is required, because listen is not an address of loopback; name cert_file and key_file")
	}
	if c.Tokens != nil && c.OIDC == nil {
		f.Add("tokens", "have an effect only with oidc: a proxy authenticates machines itself, and a console without a login has one token; remove it")
	}
	if !c.login() {
		c.validateLocal(f, err == nil && !alone)
		return
	}
	c.validateLogin(f)
	if c.Public == "" {
		f.Add("public", "is required; give the address that browsers open, as https://weir.example.com")
	} else if _, err := origin(c.Public); err != nil {
		f.Add("public", "%v (got %q)", err, c.Public)
	}
	c.Roles.validate(f)
	of(f, "rate", c.Rate.validate)
}

// of adds a part's faults.
func of(f *field.Errors, part string, validate func(*field.Errors)) {
	found := &field.Errors{}
	validate(found)
	*f = append(*f, found.Under(part)...)
}

func (c *Config) validateLogin(f *field.Errors) {
	switch {
	case c.Proxy != nil && c.OIDC != nil:
		f.Add("oidc", "cannot be used with proxy, which has logged people in already; keep one of the two")
	case c.Proxy != nil:
		of(f, "proxy", c.Proxy.validate)
		if len(c.Session.KeyFiles) > 0 || c.Session.Lifetime != 0 {
			f.Add("session", "has no effect with proxy, which keeps the sessions; remove it")
		}
	default:
		of(f, "oidc", c.OIDC.validate)
		of(f, "session", c.Session.validate)
	}
}

// validateLocal checks a console without a login.
func (c *Config) validateLocal(f *field.Errors, reachable bool) {
	if reachable {
		f.Add("proxy", "or oidc is required, because listen is not an address of loopback: without it, anyone who can connect could change the fleet")
	}
	if c.TLS != nil {
		f.Add("tls", "has no effect without proxy or oidc; remove it")
	}
	if c.Public != "" {
		f.Add("public", "has no effect without proxy or oidc; remove it")
	}
	if len(c.Session.KeyFiles) > 0 || c.Session.Lifetime != 0 {
		f.Add("session", "has no effect without oidc; remove it")
	}
	if c.Rate != (Rate{}) {
		f.Add("rate", "has no effect without proxy or oidc; remove it")
	}
	if len(c.Roles) > 0 {
		f.Add("roles", "have no effect without proxy or oidc, because callers are not identified; remove them")
	}
}

// Origin returns the scheme, host and port of the console in browsers; "": the listener's.
func (c *Config) Origin() string {
	at, _ := origin(c.Public) // already validated
	return at
}

// origin returns an address in the form of the Origin header.
func origin(public string) (string, error) {
	u, err := url.Parse(public)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("must be https:// and a host, and a port unless it is 443, without a path")
	}
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Host), ":443"), nil
}
