package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/weir-edge/weir/pkg/field"
)

const (
	// lookEvery is how long a node may stay unregistered after its agent lost it, plus or
	// minus a fifth.
	lookEvery = 10 * time.Second
	// holdFor is how long a node's check must fail before another node may take its id. A
	// paused process or a busy agent costs no node its id.
	holdFor = 10 * time.Second
	// registerEvery is the minimum time between two registrations.
	registerEvery = 500 * time.Millisecond
	// A registration in progress when the node stops has lastCall to finish, so that it
	// does not arrive after the deregistration, which has the rest of 2 s.
	lastCall          = 500 * time.Millisecond
	deregisterTimeout = 1500 * time.Millisecond
	// maxMeta is the longest service meta value that Consul accepts.
	maxMeta = 512
)

// Registration is what an edge node publishes about itself.
type Registration struct {
	ID       string // unique in its datacenter
	Address  string // where clients reach it; empty: the agent's address
	Port     int
	Admin    string // the admin listener: host:port, or https://host:port if it uses TLS
	Region   string
	PoP      string
	CheckURL string // what Consul requests every 2 s: the admin listener's /readyz
	// CheckTimeout is how long the answer may take, at least 1 s; only tests set it.
	CheckTimeout time.Duration
}

// Validate returns every fault as field.Errors, or nil.
func (r *Registration) Validate() error {
	f := &field.Errors{}
	f.Take("id", CheckNodeID(r.ID))
	if a, err := netip.ParseAddr(r.Address); err == nil && a.IsUnspecified() {
		f.Add("address", "must be one that clients can reach (got %s)", r.Address)
	}
	if r.Port < 1 || r.Port > 65535 {
		f.Add("port", "must be between 1 and 65535 (got %d)", r.Port)
	}
	if _, err := AdminURL(r.Admin); err != nil {
		f.Add("admin", "%v", err)
	}
	f.Take("region", CheckName(r.Region))
	f.Take("pop", CheckName(r.PoP))
	if u, err := url.Parse(r.CheckURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		f.Add("check", "must be a URL such as http://127.0.0.1:8081/readyz (got %q)", r.CheckURL)
	}
	return f.Err()
}

// CheckNodeID reports what is wrong with a node's id.
func CheckNodeID(id string) error {
	if !cleanPath(id) || strings.Contains(id, "/") || len(id) > 128 {
		return fmt.Errorf("must be 1 to 128 letters, digits or . _ : - (got %q)", id)
	}
	return nil
}

func (r *Registration) serviceID() string { return Service + "-" + r.ID }

// Register keeps the node registered as service weir-edge until ctx ends, then
// deregisters it, within 2 s in total. meta returns the values that change
// (MetaRulesVersion and those after it); changed, if not nil, signals a change. Changes
// in quick succession become one registration. Consul deregisters a crashed node after 10
// minutes.
//
// It retries forever. About every 10 s it checks that the agent still has the service and
// that the token has not changed: an agent keeps using the token of the registration. If
// another node has the same id, Register reports that to state and waits until that node
// is gone or has failed its check for 10 s. It never registers an invalid r. state, if not
// nil, receives nil for each answer and an error for each failure. The callbacks run on
// the caller's goroutine.
func (c *Client) Register(ctx context.Context, r Registration, meta func() map[string]string, changed <-chan struct{}, state func(error)) {
	if state == nil {
		state = func(error) {}
	}
	if err := r.Validate(); err != nil {
		state(fmt.Errorf("register the node: %w", err))
		<-ctx.Done()
		return
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastCall, cancel) })
	defer stop()

	s := &service{consul: c, Registration: r, meta: meta, changed: changed}
	for failures := 0; ctx.Err() == nil; {
		err := s.step(work)
		if ctx.Err() != nil {
			break
		}
		state(err)
		if err != nil {
			s.rest(ctx, Backoff(failures, rand.Float64()), false)
			failures++
			continue
		}
		failures = 0
		s.rest(ctx, c.lookEvery*4/5+rand.N(c.lookEvery*2/5), true)
	}
	if s.attempted && !s.foreign {
		if err := s.deregister(context.WithoutCancel(ctx)); err != nil {
			state(err)
		}
	}
}

// service is a registration and the part of it that Consul last accepted.
type service struct {
	Registration
	consul  *Client
	meta    func() map[string]string
	changed <-chan struct{}

	attempted bool
	foreign   bool      // another node has registered under the same id
	failing   time.Time // since when that node has failed its check; zero if it passes
	stepped   time.Time
	sent      map[string]string // nil: not known to be registered
	token     string            // of the last registration
	times     int               // how often it was registered
}

// step registers the service if anything differs from what the agent has.
func (s *service) step(ctx context.Context) error {
	s.stepped = time.Now()
	token, err := readToken(s.consul.config.TokenFile)
	if err != nil {
		return s.consul.failure(ctx, "register the node", err)
	}
	if meta := s.current(); s.sent == nil || token != s.token || !maps.Equal(meta, s.sent) {
		if s.sent == nil {
			if err := s.taken(ctx); err != nil {
				return err
			}
		}
		return s.register(ctx, meta, token)
	}
	known, err := s.known(ctx)
	if err != nil || known {
		return err
	}
	return s.register(ctx, s.current(), token)
}

// rest waits, but only until the next change if heed is set.
func (s *service) rest(ctx context.Context, wait time.Duration, heed bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case _, open := <-s.changed:
			if !open {
				s.changed = nil
			} else if heed {
				_ = Pause(ctx, registerEvery-time.Since(s.stepped))
				return
			}
		}
	}
}

// current returns the service's current meta.
func (s *service) current() map[string]string {
	meta := map[string]string{}
	if s.meta != nil {
		for name, value := range s.meta() {
			if len(value) > maxMeta {
				value = strings.ToValidUTF8(value[:maxMeta-len("…")], "") + "…"
			}
			meta[name] = value
		}
	}
	meta[MetaRegion], meta[MetaPoP], meta[MetaNode], meta[MetaAdmin] = s.Region, s.PoP, s.ID, s.Admin
	meta[MetaPrefix] = s.consul.prefix
	return meta
}

func (s *service) register(ctx context.Context, meta map[string]string, token string) error {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	s.attempted, s.sent, s.token = true, nil, token
	s.times++
	// The check's status is omitted: a new check begins critical, and Consul keeps the
	// status of an existing one. The notes differ each time, because an agent assumes that
	// the servers know a check equal to the previous one. If its status has just changed, or
	// the update failed with a revoked token, they would keep the old one for a minute or two.
	err := s.consul.api.Agent().ServiceRegisterOpts(&api.AgentServiceRegistration{
		ID: s.serviceID(), Name: Service, Address: s.Address, Port: s.Port, Meta: meta,
		Check: &api.AgentServiceCheck{
			CheckID: "service:" + s.serviceID(), Name: "readyz", HTTP: s.CheckURL, Interval: "2s", Timeout: max(time.Second, s.CheckTimeout).String(),
			// The agent sends no credentials, and would trust only its own authorities.
			TLSSkipVerify:                  strings.HasPrefix(s.CheckURL, "https:"),
			DeregisterCriticalServiceAfter: "10m", Notes: fmt.Sprintf("%s, registration %d of this process", s.CheckURL, s.times),
		},
	}, api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx))
	if err != nil {
		return s.consul.failure(ctx, "register the node", err)
	}
	s.sent, s.foreign, s.failing = meta, false, time.Time{}
	return nil
}

// taken returns an error if another node is registered under the id, unless that node has
// failed its check for holdFor. A node with the same admin address, or whose check this
// node answers, is this one before it restarted elsewhere.
func (s *service) taken(ctx context.Context) error {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	status, info, err := s.consul.api.Agent().AgentHealthServiceByIDOpts(s.serviceID(), query{}.options(ctx))
	// Either the agent is failing and will not register anything, or the token may write
	// but not read.
	if err != nil || info == nil || info.Service == nil || slices.Contains(info.Checks, nil) || !s.isOther(info.Service) || info.Service.Meta[MetaAdmin] == s.Admin {
		return nil
	}
	unchecked := false
	for _, check := range info.Checks {
		// A check that replaces another inherits its status and output. Only a node's own
		// check notes a URL.
		url, _, found := strings.Cut(check.Notes, ", ")
		switch {
		case found && !strings.Contains(check.Output, url):
			unchecked = true
		case strings.HasPrefix(check.Output, "HTTP GET "+s.CheckURL+":"):
			return nil
		}
	}
	if status == api.HealthPassing || unchecked {
		s.failing = time.Time{}
		return s.conflict(info.Service)
	}
	if s.failing.IsZero() {
		s.failing = time.Now()
	}
	if time.Since(s.failing) >= s.consul.holdFor {
		return nil
	}
	return fmt.Errorf("%w; it fails its check, and this node takes the id once it has failed for %s", s.conflict(info.Service), s.consul.holdFor)
}

func (s *service) isOther(there *api.AgentService) bool {
	return there.Address != s.Address || there.Port != s.Port
}

// conflict records that another node has the id.
func (s *service) conflict(there *api.AgentService) error {
	s.foreign, s.sent = true, nil
	return fmt.Errorf("node id %q: %s in pop %s is already registered with it; give each node its own id",
		s.ID, net.JoinHostPort(there.Address, strconv.Itoa(there.Port)), there.Meta[MetaPoP])
}

func (s *service) known(ctx context.Context) (bool, error) {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	there, _, err := s.consul.api.Agent().Service(s.serviceID(), query{}.options(ctx))
	if isNotFound(err) {
		return false, nil
	}
	if err == nil && there == nil {
		err = errNull
	}
	if err != nil {
		return false, s.consul.failure(ctx, "look for the node's registration", err)
	}
	if s.isOther(there) {
		return false, s.conflict(there)
	}
	return true, nil
}

// deregister tries twice: the first attempt may hit an idle connection that was closed.
func (s *service) deregister(ctx context.Context) error {
	ctx, cancel := within(ctx, deregisterTimeout)
	defer cancel()
	var err error
	for range 2 {
		err = s.consul.api.Agent().ServiceDeregisterOpts(s.serviceID(), query{}.options(ctx))
		if err == nil || isNotFound(err) {
			return nil
		}
	}
	return s.consul.failure(ctx, "deregister the node", err)
}

func isNotFound(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}
