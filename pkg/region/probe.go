package region

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Probe describes how routers check the public addresses of PoPs, connecting as clients
// would. Probe results decide about a PoP only while no Consul reports on its region.
type Probe struct {
	Port int `json:"port" yaml:"port" required:"add the port that clients use"` // where clients connect
	// Path is requested by HTTP: any answer below 500 counts. Without it, accepting a
	// connection counts.
	Path string `json:"path,omitempty" yaml:"path"`
	Host string `json:"host,omitempty" yaml:"host"` // of the request; absent: the zone
	// TLS is whether to request over TLS. The certificate is not verified: that is for clients,
	// and an expired one does not mean that the PoP is gone.
	TLS bool `json:"tls,omitempty" yaml:"tls"`
}

const (
	probeEvery   = time.Second
	probeTimeout = time.Second
	// lostAfter is how many consecutive rounds must find no address of a PoP.
	lostAfter = 2
)

func (p *Probe) check(f *field.Errors) {
	if p.Port < 1 || p.Port > 65535 {
		f.Add("probe.port", "must be between 1 and 65535 (got %d)", p.Port)
	}
	if _, err := http.NewRequest(http.MethodGet, "http://host"+p.Path, nil); p.Path != "" && (!strings.HasPrefix(p.Path, "/") || err != nil) {
		f.Add("probe.path", "must be a path such as /healthz (got %q)", p.Path)
	}
	if p.Host != "" && !validName(p.Host, maxName) {
		f.Add("probe.host", "must be a domain name in lower case (got %q)", p.Host)
	}
	if p.Path == "" && (p.Host != "" || p.TLS) {
		f.Add("probe.path", "is missing; without it only a connection is made, so remove host and tls or add the path")
	}
}

// probeHistory is what probing found out about a PoP. The zero probeHistory has no result yet.
type probeHistory struct {
	looked bool
	misses int // consecutive rounds in which no address answered
}

func (s probeHistory) answers() bool { return s.looked && s.misses == 0 }

// ProbeResult says whether a router can reach a PoP at its public addresses.
type ProbeResult string

// The values of ProbeResult; "" means that nothing is known.
const (
	Answers ProbeResult = "answers" // an address answers
	Lost    ProbeResult = "lost"    // none does, and this router reaches at least half of the other PoPs
	CutOff  ProbeResult = "cut off" // none does, but this router does not reach the others either
)

// probeResultOf judges a PoP: if a router does not reach at least half of the other PoPs, the
// router itself may be disconnected.
func probeResultOf(pop string, sights map[string]probeHistory) ProbeResult {
	own := sights[pop]
	switch {
	case own.answers():
		return Answers
	case own.misses < lostAfter:
		return ""
	}
	others, reached := 0, 0
	for name, s := range sights {
		if name == pop {
			continue
		}
		if others++; s.answers() {
			reached++
		}
	}
	if others > 0 && 2*reached >= others {
		return Lost
	}
	return CutOff
}

// by returns the look that a sight implies, where it is decisive.
func (s ProbeResult) by(l look) (look, bool) {
	switch s {
	case Answers:
		return look{l.nodes, l.passing, true}, true
	case Lost:
		return look{l.nodes, 0, false}, true
	}
	return l, false
}

// probe checks the public addresses of all PoPs until ctx ends, if the topology says how.
func (f *Follower) probe(ctx context.Context) {
	for ctx.Err() == nil {
		started := time.Now()
		answered := map[string]bool{}
		if t := f.View().Topology; t != nil && t.Probe != nil {
			answered = t.probe(ctx, probeTimeout)
		}
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		before := f.sights
		f.sights = make(map[string]probeHistory, len(answered))
		for pop, ok := range answered {
			s := probeHistory{looked: true}
			if !ok {
				s.misses = min(before[pop].misses+1, lostAfter)
			}
			f.sights[pop] = s
		}
		f.mu.Unlock()
		f.lookSoon()
		_ = consul.Pause(ctx, probeEvery-time.Since(started))
	}
}

// probe returns which PoPs answer at one of their addresses. It asks all at once: addresses that
// are silent would otherwise delay the others, and a PoP's loss would show late.
func (t *Topology) probe(ctx context.Context, timeout time.Duration) map[string]bool {
	var (
		mu      sync.Mutex
		all     sync.WaitGroup
		answers = map[string]bool{}
	)
	for _, r := range t.Regions {
		for _, p := range r.PoPs {
			mu.Lock()
			answers[p.Name] = false
			mu.Unlock()
			for _, a := range p.Addresses {
				all.Go(func() {
					if t.Probe.answers(ctx, a, t.Zone, timeout) {
						mu.Lock()
						answers[p.Name] = true
						mu.Unlock()
					}
				})
			}
		}
	}
	all.Wait()
	return answers
}

// answers reports whether an address answers in time.
func (p *Probe) answers(ctx context.Context, address netip.Addr, zone string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	to := net.JoinHostPort(address.String(), strconv.Itoa(p.Port))
	if p.Path == "" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
		if err != nil {
			return false
		}
		_ = conn.Close() // nothing was sent
		return true
	}
	host, scheme := cmp.Or(p.Host, zone), "http"
	if p.TLS {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+p.Path, nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // see Probe.TLS
	}
	response, err := transport.RoundTrip(request) // follows no redirects
	if err != nil {
		return false
	}
	_ = response.Body.Close() // unread
	return response.StatusCode < http.StatusInternalServerError
}

// explain says what a PoP's sight means for its state.
func (s PoPState) explain(p *PoP) string {
	switch s.ProbeResult {
	case Answers:
		return fmt.Sprintf("no Consul reports on %s now, but it answers this router's probes", p.Name)
	case Lost:
		return fmt.Sprintf("no Consul reports on %s now, and it does not answer this router, which reaches at least half of the other PoPs", p.Name)
	case CutOff:
		return fmt.Sprintf("%s does not answer this router, nor do most other PoPs: this router may be cut off, so %s keeps its last state", p.Name, p.Name)
	}
	return ""
}

// String describes a probe for people.
func (p *Probe) String() string {
	text := fmt.Sprintf("port %d", p.Port)
	if p.Path != "" {
		text += ", " + p.Path
	}
	if p.Host != "" {
		text += " of " + p.Host
	}
	if p.TLS {
		text += " over TLS"
	}
	return text
}
