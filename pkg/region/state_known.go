package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// SavedState is what a Follower has learned. The next one starts from it while no Consul
// answers.
type SavedState struct {
	Topology json.RawMessage        `json:"topology"`
	Regions  map[string]SavedRegion `json:"regions"`
	Spill    *Spill                 `json:"spill,omitempty"`
	// Signed is missing unless the follower has verified a signature.
	Signed *SignedTopology `json:"signed,omitempty"`
}

// SavedRegion is the last report about a region.
type SavedRegion struct {
	Source     string            `json:"source"` // the Consul that reported
	Datacenter string            `json:"datacenter"`
	Heard      time.Time         `json:"heard"`
	Nodes      []consul.Instance `json:"nodes"`
	Reached    []string          `json:"reached"` // addresses that accepted a connection
	Drains     *Drains           `json:"drains"`
}

func (r FollowedRegion) source() string { return r.Consul.String() + " " + r.Consul.Prefix() }

// SavedState returns what the follower knows, or nil until it has a topology.
func (f *Follower) SavedState() *SavedState {
	v := f.View()
	if v.Topology == nil {
		return nil
	}
	k := &SavedState{Topology: json.RawMessage(v.text), Regions: map[string]SavedRegion{}, Spill: v.Spill}
	f.mu.Lock()
	defer f.mu.Unlock()
	k.Signed = f.signed(v.text)
	for _, r := range f.config.Regions {
		if facts := f.facts[r.Name]; facts.listed {
			k.Regions[r.Name] = SavedRegion{r.source(), facts.datacenter, facts.heard, facts.nodes, slices.Sorted(maps.Keys(facts.reached)), facts.drains}
		}
	}
	return k
}

var errSinceStart = errors.New("has not answered since this router started")

// Restore makes f start from what another Follower has learned: until a region's Consul
// answers, its facts are the restored ones. Call it before Run. An error means that k
// belongs to another fleet or cannot be read; then nothing has changed.
func (f *Follower) Restore(k *SavedState, now time.Time) error {
	published, unsigned, err := f.known(k)
	if err != nil {
		return err
	}
	t, err := readTopology(published)
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	found := false
	for _, r := range f.config.Regions {
		was, ok := k.Regions[r.Name]
		if ok && was.Source != r.source() {
			return fmt.Errorf("belongs to another fleet: its %s is %s, but the fleet file has %s", r.Name, was.Source, r.source())
		}
		found = found || ok
	}
	if !found {
		return errors.New("belongs to another fleet: it has none of the fleet file's regions")
	}
	for _, r := range f.config.Regions {
		facts := f.facts[r.Name]
		facts.topology, facts.topologyText, facts.signatureErr = t, string(text), unsigned
		if unsigned == nil {
			facts.signed = k.Signed
		}
		facts.fail(errSinceStart, now)
		if was, ok := k.Regions[r.Name]; ok {
			facts.listed, facts.nodes, facts.heard, facts.datacenter, facts.drains = true, was.Nodes, was.Heard, was.Datacenter, was.Drains
			if facts.heard.After(now) { // a clock was set back; facts from the future would never age
				facts.heard = now
			}
			for _, address := range was.Reached {
				facts.reached[address] = 0
			}
		}
	}
	if k.Spill != nil && k.Spill.check() == nil {
		v := NewView(nil, nil, nil)
		v.Spill = firstSpill(k.Spill, now)
		f.view.Store(v)
	}
	return nil
}

// stale describes the regions whose state is restored or unknown.
func (v *View) stale() (steps []Step) {
	for _, name := range slices.Sorted(maps.Keys(v.Regions)) {
		s := v.Regions[name]
		switch {
		case s.Known:
		case s.Heard.IsZero():
			steps = append(steps, Step(fmt.Sprintf("%s has not reported yet: %v", name, s.Err)))
		default:
			steps = append(steps, Step(fmt.Sprintf("the state of %s is %s old: %v", name, s.Age(v.At).Round(time.Second), s.Err)))
		}
	}
	return steps
}

// Age returns how old the state of the region's nodes is: 0 while it is known.
func (s RegionState) Age(now time.Time) time.Duration {
	if s.Known || s.Heard.IsZero() {
		return 0
	}
	return max(now.Sub(s.Heard), 0)
}
