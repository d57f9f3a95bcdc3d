package nginx

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// config is what a configuration says about limits.
type config struct {
	zones     map[string]*zone // for limit_req
	conns     map[string]*zone // for limit_conn
	variables map[string]*variable
	servers   []*server
	report    []string
}

// zone counts by a key.
type zone struct {
	name string
	key  expression
	rate int64 // requests
	per  int64 // per this many seconds: 1 or 60
	at   string
}

// milli returns the zone's rate as nginx counts it: thousandths of a request per second,
// rounded down.
func (z *zone) milli() int64 { return z.rate * 1000 / z.per }

// limit is a use of a zone.
type limit struct {
	zone  *zone
	conns bool
	n     int64 // the burst, or the connections
	delay bool  // requests of the burst wait
	dry   bool
}

// same reports whether one rule can count two uses together.
func (l limit) same(o limit) bool {
	return l.zone == o.zone && l.conns == o.conns && l.n == o.n && l.dry == o.dry
}

// server is one server block.
type server struct {
	names    []string
	standard bool // default_server
	root     location
	at       string
}

// location is a location, or the server around them all.
type location struct {
	kind   string // "", =, ^~, ~, ~*
	path   string
	regexp *regexp.Regexp
	limits []limit
	inner  []*location
	at     string
}

// scope is what a block inherits from the one around it.
type scope struct {
	reqs, conns       []limit
	reqDry, connDry   bool
	ownReqs, ownConns bool
}

func (c *config) lost(at, format string, args ...any) {
	c.report = append(c.report, at+": "+fmt.Sprintf(format, args...))
}

// http reads the blocks that may hold limits, whether the file begins with http, with
// servers, or with what an http block includes.
func (c *config) http(list []directive) error {
	for i := range list {
		if d := &list[i]; d.name == "http" {
			if err := c.http(d.block); err != nil {
				return err
			}
		}
	}
	for i := range list { // definitions that servers refer to
		if err := c.define(&list[i]); err != nil {
			return err
		}
	}
	around, err := c.scope(list, scope{})
	if err != nil {
		return err
	}
	for i := range list {
		if d := &list[i]; d.name == "server" && d.isSet {
			if err := c.server(d, around); err != nil {
				return err
			}
		}
	}
	return nil
}

// define reads zones, maps and geos.
func (c *config) define(d *directive) error {
	var err error
	switch d.name {
	case "limit_req_zone":
		err = c.zone(d, c.zones, true)
	case "limit_conn_zone":
		err = c.zone(d, c.conns, false)
	case "map", "geo":
		err = c.variable(d)
	case "set_real_ip_from":
		c.lost(d.at, "%s: set trusted_proxies of the edges to %s", d.name, strings.Join(d.args, " "))
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", d.at, d.name, err)
	}
	return nil
}

func (c *config) zone(d *directive, zones map[string]*zone, rated bool) error {
	z := &zone{at: d.at, per: 1}
	if len(d.args) < 2 {
		return fmt.Errorf("needs a key and a zone")
	}
	var err error
	if z.key, err = parseExpression(d.args[0]); err != nil {
		return err
	}
	for _, arg := range d.args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case "rate":
			text, minutes := strings.CutSuffix(value, "r/m")
			if minutes {
				z.per = 60
			} else {
				text = strings.TrimSuffix(value, "r/s")
			}
			if z.rate, err = strconv.ParseInt(text, 10, 32); err != nil || z.rate < 1 {
				return fmt.Errorf("rate: must be a number and r/s or r/m (got %q)", value)
			}
		case "sync":
		default:
			return fmt.Errorf("unknown parameter %q", arg)
		}
	}
	switch {
	case z.name == "":
		return fmt.Errorf("zone=NAME:SIZE is missing")
	case rated && z.rate == 0:
		z.rate = 1 // nginx's default
	case zones[z.name] != nil:
		return fmt.Errorf("zone %s is also in %s", z.name, zones[z.name].at)
	}
	zones[z.name] = z
	return nil
}

// scope reads the limits of a block, without those of the blocks in it.
func (c *config) scope(list []directive, around scope) (scope, error) {
	s := around
	s.ownReqs, s.ownConns = false, false
	for i := range list {
		d := &list[i]
		var err error
		switch d.name {
		case "limit_req":
			if !s.ownReqs { // limits are inherited only by blocks that have none
				s.reqs, s.ownReqs = nil, true
			}
			var l limit
			if l, err = c.limitReq(d); err == nil {
				s.reqs = append(s.reqs, l)
			}
		case "limit_conn":
			if !s.ownConns {
				s.conns, s.ownConns = nil, true
			}
			var l limit
			if l, err = c.limitConn(d); err == nil {
				s.conns = append(s.conns, l)
			}
		case "limit_req_dry_run":
			s.reqDry = len(d.args) == 1 && d.args[0] == "on"
		case "limit_conn_dry_run":
			s.connDry = len(d.args) == 1 && d.args[0] == "on"
		case "limit_req_status", "limit_conn_status":
			if len(d.args) == 1 && d.args[0] != "429" {
				c.lost(d.at, "%s: cannot be kept: edges answer 429", d.name)
			}
		case "limit_rate", "limit_rate_after":
			c.lost(d.at, "%s: cannot be kept: rules limit requests, not bandwidth", d.name)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %s: %w", d.at, d.name, err)
		}
	}
	return s, nil
}

func (c *config) limitReq(d *directive) (l limit, err error) {
	l.delay = true
	for _, arg := range d.args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "zone":
			if l.zone = c.zones[value]; l.zone == nil {
				return l, fmt.Errorf("zone %q is not defined", value)
			}
		case "burst":
			if l.n, err = strconv.ParseInt(value, 10, 32); err != nil || l.n < 0 {
				return l, fmt.Errorf("burst: must be a number (got %q)", value)
			}
		case "nodelay":
			l.delay = false
		case "delay":
		default:
			return l, fmt.Errorf("unknown parameter %q", arg)
		}
	}
	if l.zone == nil {
		return l, fmt.Errorf("zone=NAME is missing")
	}
	l.delay = l.delay && l.n > 0
	if l.delay {
		c.lost(d.at, "limit_req: the delay cannot be kept: up to %d requests that come early pass at once, as with nodelay", l.n)
	}
	return l, nil
}

func (c *config) limitConn(d *directive) (l limit, err error) {
	l.conns = true
	if len(d.args) != 2 {
		return l, fmt.Errorf("needs a zone and a number")
	}
	if l.zone = c.conns[d.args[0]]; l.zone == nil {
		return l, fmt.Errorf("zone %q is not defined", d.args[0])
	}
	if l.n, err = strconv.ParseInt(d.args[1], 10, 32); err != nil || l.n < 1 {
		return l, fmt.Errorf("must have a number of connections (got %q)", d.args[1])
	}
	return l, nil
}

// limits returns the limits of a block, in dry run or not.
func (s *scope) limits() []limit {
	var list []limit
	for _, l := range s.reqs {
		l.dry = s.reqDry
		list = append(list, l)
	}
	for _, l := range s.conns {
		l.dry = s.connDry
		list = append(list, l)
	}
	return list
}

func (c *config) server(d *directive, around scope) error {
	s := &server{at: d.at}
	for i := range d.block {
		switch b := &d.block[i]; b.name {
		case "server_name":
			s.names = append(s.names, b.args...)
		case "listen":
			for _, arg := range b.args {
				s.standard = s.standard || arg == "default_server"
			}
		case "set_real_ip_from":
			if err := c.define(b); err != nil {
				return err
			}
		}
	}
	s.root = location{path: "/", at: d.at}
	if err := c.locations(&s.root, d.block, around); err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	return nil
}

// locations reads the limits of a block and the locations in it.
func (c *config) locations(l *location, list []directive, around scope) error {
	s, err := c.scope(list, around)
	if err != nil {
		return err
	}
	l.limits = s.limits()
	for i := range list {
		d := &list[i]
		if d.name != "location" || !d.isSet || len(d.args) == 0 || strings.HasPrefix(d.args[0], "@") {
			continue // requests for a named location were already counted
		}
		inner := &location{path: d.args[0], at: d.at}
		switch {
		case len(d.args) == 2:
			inner.kind, inner.path = d.args[0], d.args[1]
		case strings.HasPrefix(inner.path, "~*"), strings.HasPrefix(inner.path, "^~"):
			inner.kind, inner.path = inner.path[:2], inner.path[2:]
		case strings.HasPrefix(inner.path, "~"), strings.HasPrefix(inner.path, "="):
			inner.kind, inner.path = inner.path[:1], inner.path[1:]
		}
		switch inner.kind {
		case "", "=", "^~":
			if !strings.HasPrefix(inner.path, "/") {
				return fmt.Errorf("%s: location %q must begin with /", d.at, inner.path)
			}
		case "~", "~*":
			expression := inner.path
			if inner.kind == "~*" {
				expression = "(?i)" + expression
			}
			if inner.regexp, err = regexp.Compile(expression); err != nil {
				c.lost(d.at, "location %s: the regular expression cannot be read here; the location is left out", inner.path)
				continue
			}
		default:
			return fmt.Errorf("%s: location has the unknown modifier %q", d.at, inner.kind)
		}
		if err := c.locations(inner, d.block, s); err != nil {
			return err
		}
		l.inner = append(l.inner, inner)
	}
	return nil
}

// network reads an address or a network, as geo does.
func network(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}
