package router

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// A router that hears no region cannot tell by itself whether it alone is cut off or every Consul is
// gone. So it asks the others. It yields only to one that hears a region, so no two yield to each
// other, and one that is left alone answers.
const (
	// deafAfter is the age at which facts are old; a PoP's clients stay where they are from then on.
	deafAfter = time.Minute
	// askEvery is how often a deaf router asks the others, all at once, and askTimeout how long they
	// may take.
	askEvery   = 5 * time.Second
	askTimeout = 2 * time.Second
	// provenFor is how long a proof counts. One lost answer does not end it.
	provenFor = 3 * askEvery
)

type otherRouters struct {
	view   func() *region.View
	key    *sign.Key // of this router; nil: none
	log    *slog.Logger
	proven atomic.Pointer[proven]
	logged string // the router to which this one yields, as the log says
}

// proven is that another router has fresh facts.
type proven struct {
	by    string
	until time.Time
}

// age returns how old the freshest facts in v are.
func age(v *region.View, now time.Time) time.Duration {
	if v.Topology == nil {
		return math.MaxInt64
	}
	freshest := time.Duration(math.MaxInt64)
	for _, r := range v.Topology.Regions {
		if s := v.Regions[r.Name]; s.Known || !s.Heard.IsZero() {
			freshest = min(freshest, s.Age(now))
		}
	}
	return max(freshest, now.Sub(v.At))
}

// yieldsTo returns the router that should answer instead of this one, or "".
func (p *otherRouters) yieldsTo(now time.Time) string {
	if other := p.proven.Load(); other != nil && now.Before(other.until) && age(p.view(), now) >= deafAfter {
		return other.by
	}
	return ""
}

func (p *otherRouters) yields() bool { return p.yieldsTo(time.Now()) != "" }

// subjectOf is what a proof signs: the name that was queried, which nobody used before, and the
// age of the facts.
func subjectOf(name, old string) sign.Subject {
	sum := sha256.Sum256([]byte(name + " " + old))
	return sign.Subject{Kind: "facts", SHA256: hex.EncodeToString(sum[:])}
}

// prove answers a query for name by another router: with the age of the facts and a signature, or
// with "" if they are old.
func (p *otherRouters) prove(name string) string {
	old := age(p.view(), time.Now())
	if p.key == nil || old >= deafAfter {
		return ""
	}
	text := old.Truncate(time.Millisecond).String() // ASCII
	return text + " " + base64.StdEncoding.EncodeToString(p.key.Sign(subjectOf(name, text), nil).Value)
}

// fresh returns an error unless text, the answer to a query for name sent since then, proves that
// the facts of r are not old.
func fresh(r region.Router, name, text string, since time.Duration) error {
	keys := sign.Keys{}
	id, err := keys.Add(r.Key)
	if err != nil {
		return err
	}
	old, signature, _ := strings.Cut(text, " ")
	value, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return err
	}
	if err := keys.Verify(subjectOf(name, old), []sign.Signature{{Key: id, Value: value}}, nil); err != nil {
		return err
	}
	if d, err := time.ParseDuration(old); err != nil || d+since >= deafAfter {
		return fmt.Errorf("its facts are %s old", old)
	}
	return nil
}

// ask returns an error unless r proves that its facts are not old.
func ask(ctx context.Context, zone string, r region.Router) error {
	name := strings.ToLower(rand.Text()) + "." + region.FactsLabel + "." + zone + "."
	q := new(wire.Msg).SetQuestion(name, wire.TypeTXT)
	q.RecursionDesired = false
	began := time.Now()
	answer, _, err := (&wire.Client{Net: "tcp", Timeout: askTimeout}).ExchangeContext(ctx, q, r.DNS)
	if err != nil {
		return err
	}
	for _, rr := range answer.Answer {
		if txt, ok := rr.(*wire.TXT); ok {
			return fresh(r, name, strings.Join(txt.Txt, ""), time.Since(began))
		}
	}
	return errors.New("it proves nothing")
}

// look asks all others once if this router's facts are old.
func (p *otherRouters) look(ctx context.Context, zone string) {
	v, now := p.view(), time.Now()
	if v.Topology != nil && age(v, now) >= deafAfter {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var asking sync.WaitGroup
		for _, r := range v.Topology.Routers {
			if id, _ := (sign.Keys{}).Add(r.Key); r.DNS == "" || p.key != nil && id == p.key.ID() {
				continue
			}
			asking.Go(func() {
				if err := ask(ctx, zone, r); err != nil {
					p.log.Debug("a router does not prove that its facts are fresh", "router", r.Name, "error", err.Error())
				} else {
					p.proven.Store(&proven{r.Name, now.Add(provenFor)})
				}
			})
		}
		asking.Wait()
	}
	switch to := p.yieldsTo(time.Now()); {
	case to != "" && p.logged == "":
		p.log.Warn("yields: SERVFAIL instead of the nearest PoP, because this router hears no region and another does", "to", to)
		p.logged = to
	case to == "" && p.logged != "":
		p.log.Info("answers with the nearest PoP again")
		p.logged = ""
	}
}

// follow looks until ctx ends.
func (p *otherRouters) follow(ctx context.Context, zone string) {
	for ended := error(nil); ended == nil; ended = consul.Pause(ctx, askEvery) {
		p.look(ctx, zone)
	}
}
