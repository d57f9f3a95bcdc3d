package region

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
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// lookEvery is how long a node may stay unknown to an agent that forgot it,
	// give or take a fifth.
	lookEvery = 10 * time.Second
	// registerEvery keeps two registrations apart.
	registerEvery = 500 * time.Millisecond
	// A registration under way when the node stops has lastCall to end, so that
	// it does not arrive behind the deregistration, which has the rest of 2 s.
	lastCall          = 500 * time.Millisecond
	deregisterTimeout = 1500 * time.Millisecond
	// maxMeta is the longest value of a service's meta that Consul takes.
	maxMeta = 512
)

// Registration is what an edge node tells Consul about itself.
type Registration struct {
	ID       string // the node's, unique in its datacenter
	Address  string // where clients reach it; empty: the agent's address
	Port     int
	Admin    string // the admin listener: host:port
	Region   string
	PoP      string
	CheckURL string // what Consul asks every 2 s: the admin listener's /readyz
}

// Validate returns every fault as a *FieldError, joined, or nil.
func (r *Registration) Validate() error {
	f := &faults{}
	if !cleanPath(r.ID) || strings.Contains(r.ID, "/") || len(r.ID) > 128 {
		f.add("id", "must be 1 to 128 letters, digits or . _ : - (got %q)", r.ID)
	}
	if a, err := netip.ParseAddr(r.Address); err == nil && a.IsUnspecified() {
		f.add("address", "must be one that clients can reach (got %s)", r.Address)
	}
	if r.Port < 1 || r.Port > 65535 {
		f.add("port", "must be between 1 and 65535 (got %d)", r.Port)
	}
	if _, _, err := net.SplitHostPort(r.Admin); err != nil {
		f.add("admin", "must be host:port (got %q)", r.Admin)
	}
	if err := CheckName(r.Region); err != nil {
		f.add("region", "%v", err)
	}
	if err := CheckName(r.PoP); err != nil {
		f.add("pop", "%v", err)
	}
	if u, err := url.Parse(r.CheckURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		f.add("check", "must be a URL such as http://127.0.0.1:8081/readyz (got %q)", r.CheckURL)
	}
	return errors.Join(f.list...)
}

func (r *Registration) serviceID() string { return Service + "-" + r.ID }

// Register keeps the node registered as service weir-edge until ctx ends, and
// then deregisters it, within 2 s in all. meta is asked for the values that
// change (rules_version, rules_refused, and the same of the shedder); changed, which
// may be nil, says that they did. Changes in quick succession become one
// registration. A node that dies unheard is deregistered by Consul after 10 minutes.
//
// It retries without end, and looks about every 10 s whether the agent still
// knows the service and whether the token is still the one that it was
// registered with: an agent goes on using that. Of two nodes of the same id the
// later one is registered, and the other's state says so. An r that is not valid is never
// registered. state, which may be nil, hears of each answer (nil) and each
// failure. The callbacks run on the caller's goroutine.
func (c *Consul) Register(ctx context.Context, r Registration, meta func() map[string]string, changed <-chan struct{}, state func(error)) {
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

// service is a registration and what Consul last took of it.
type service struct {
	Registration
	consul  *Consul
	meta    func() map[string]string
	changed <-chan struct{}

	attempted bool
	foreign   bool // another node has registered under the same id
	stepped   time.Time
	sent      map[string]string // nil: not known to be registered
	token     string            // that it was sent with
	tokens    int               // how many different ones there were
}

// step registers the service if anything differs from what the agent has.
func (s *service) step(ctx context.Context) error {
	s.stepped = time.Now()
	token, err := readToken(s.consul.config.TokenFile)
	if err != nil {
		return s.consul.failure(ctx, "register the node", err)
	}
	if meta := s.current(); s.sent == nil || token != s.token || !maps.Equal(meta, s.sent) {
		return s.register(ctx, meta, token)
	}
	known, err := s.known(ctx)
	if err != nil || known {
		return err
	}
	return s.register(ctx, s.current(), token)
}

// rest waits, but not longer than to the next change when it heeds changes.
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
				pause(ctx, registerEvery-time.Since(s.stepped))
				return
			}
		}
	}
}

// current is the service's meta now.
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
	meta["region"], meta["pop"], meta["node"], meta["admin"] = s.Region, s.PoP, s.ID, s.Admin
	meta["prefix"] = s.consul.prefix
	return meta
}

func (s *service) register(ctx context.Context, meta map[string]string, token string) error {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	s.attempted, s.sent = true, nil
	if s.tokens == 0 || token != s.token {
		s.token, s.tokens = token, s.tokens+1
	}
	// The check's status is left out: a new check begins critical, and Consul
	// keeps the status of one that it has. Its notes differ with each token,
	// because what an agent could not tell the servers with a revoked one it
	// takes for told, for a minute or two, unless the check changes.
	err := s.consul.api.Agent().ServiceRegisterOpts(&api.AgentServiceRegistration{
		ID: s.serviceID(), Name: Service, Address: s.Address, Port: s.Port, Meta: meta,
		Check: &api.AgentServiceCheck{
			CheckID: "service:" + s.serviceID(), Name: "readyz", HTTP: s.CheckURL, Interval: "2s", Timeout: "1s",
			DeregisterCriticalServiceAfter: "10m", Notes: fmt.Sprintf("registered with token %d of this process", s.tokens),
		},
	}, api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx))
	if err != nil {
		return s.consul.failure(ctx, "register the node", err)
	}
	s.sent = meta
	return nil
}

// known reports whether the agent has the service.
func (s *service) known(ctx context.Context) (bool, error) {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	there, _, err := s.consul.api.Agent().Service(s.serviceID(), query{}.options(ctx))
	if isNotFound(err) {
		s.foreign = false
		return false, nil
	}
	if err != nil {
		return false, s.consul.failure(ctx, "look for the node's registration", err)
	}
	if s.foreign = there.Address != s.Address || there.Port != s.Port; s.foreign {
		return false, fmt.Errorf("node id %q: %s in pop %s is registered by it too; give each node an id of its own",
			s.ID, net.JoinHostPort(there.Address, strconv.Itoa(there.Port)), there.Meta["pop"])
	}
	return true, nil
}

// deregister tries twice: the first attempt may find that an idle connection was
// closed meanwhile.
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
