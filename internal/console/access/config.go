package access

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
	Rate    Rate    `yaml:"rate"`
}

// login reports whether people have to authenticate.
func (c *Config) login() bool { return c.Proxy != nil || c.OIDC != nil }

// Roles assigns roles.
type Roles struct {
	Reader   Members `yaml:"reader"`
	Operator Members `yaml:"operator"`
	Admin    Members `yaml:"admin"`
}

// Members lists groups, and people by name. The group * contains everyone who is authenticated.
type Members struct {
	Groups []string `yaml:"groups"`
	Users  []string `yaml:"users"`
}

// Everybody is the group of all authenticated people.
const Everybody = "*"

// of returns a person's highest role.
func (r *Roles) of(name string, groups []string) Role {
	switch {
	case r.Admin.has(name, groups):
		return Admin
	case r.Operator.has(name, groups):
		return Operator
	case r.Reader.has(name, groups):
		return Reader
	}
	return None
}

// names reports whether a group has a role.
func (r *Roles) names(group string) bool {
	return slices.Contains(r.Reader.Groups, group) || slices.Contains(r.Operator.Groups, group) || slices.Contains(r.Admin.Groups, group)
}

func (m *Members) has(name string, groups []string) bool {
	return slices.Contains(m.Users, name) || slices.ContainsFunc(m.Groups, func(g string) bool { return g == Everybody || slices.Contains(groups, g) })
}

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
	if !c.Roles.empty() {
		f.Add("roles", "have no effect without proxy or oidc, because callers are not identified; remove them")
	}
}

func (r *Roles) empty() bool {
	return len(r.Reader.Groups)+len(r.Reader.Users)+len(r.Operator.Groups)+len(r.Operator.Users)+len(r.Admin.Groups)+len(r.Admin.Users) == 0
}

func (r *Roles) validate(f *field.Errors) {
	if r.empty() {
		f.Add("roles", "must give someone a role; name groups or users of reader, operator or admin")
	}
	for _, m := range []struct {
		path  string
		names []string
	}{
		{"reader.groups", r.Reader.Groups}, {"reader.users", r.Reader.Users}, {"operator.groups", r.Operator.Groups},
		{"operator.users", r.Operator.Users}, {"admin.groups", r.Admin.Groups}, {"admin.users", r.Admin.Users},
	} {
		for i, name := range m.names {
			path := field.Index("roles."+m.path, i)
			if err := checkName(name); err != nil {
				f.Add(path, "%v", err)
			} else if name == Everybody && strings.HasSuffix(m.path, "users") {
				f.Add(path, "must be the name of a person; the group %q contains everyone", Everybody)
			}
		}
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
