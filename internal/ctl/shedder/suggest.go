package shedder

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

const suggestHelp = `Prints settings for an origin: the knee of inflight, and the cap of each class. They follow
from Little's law, requests in flight = requests per second x seconds that each takes:

  inflight.high                     capacity x (latency + wait) / target / nodes
  max_in_flight of the last class   an eighth above inflight.high
  max_in_flight of the first class  capacity x (latency + max-wait) / nodes

The other classes lie evenly between. The classes are the default ones; replace what they
match by what your requests carry. Nothing is sent anywhere.`

// Suggestion is the part of the settings that depends on the origin.
type Suggestion struct {
	Signals shedding.Signals `json:"signals" yaml:"signals"`
	Classes []shedding.Class `json:"classes" yaml:"classes"`
}

// origin is what the nodes protect, and how long its users may wait.
type origin struct {
	capacity            float64 // requests per second
	latency, wait, most time.Duration
	nodes               int
}

func suggestCommand(p *command.Program) *cobra.Command {
	var o origin
	c := command.New("suggest", "print settings that suit an origin", suggestHelp,
		`  regionctl shedder suggest --capacity 1000 --latency 20ms --wait 36ms --max-wait 100ms --nodes 2 > shedder.yaml
  regionctl shedder set shedder.yaml --message "fits the origin"`,
		func(context.Context, []string) error {
			s, err := o.suggest()
			if err != nil {
				return err
			}
			return command.Show(p, s, nil, func(s *Suggestion, b *bytes.Buffer, _ term.Style) {
				text, err := yaml.Marshal(s)
				if err != nil {
					panic(err) // numbers and names
				}
				b.Write(text)
			})
		})
	f := c.Flags()
	f.Float64Var(&o.capacity, "capacity", 0, "the origin's capacity, in requests per `second`")
	f.DurationVar(&o.latency, "latency", 0, "how long a request takes without queueing")
	f.DurationVar(&o.wait, "wait", 0, "how long a request may wait while the nodes shed")
	f.DurationVar(&o.most, "max-wait", 0, "the longest wait of the most important class (default 3 times --wait)")
	f.IntVar(&o.nodes, "nodes", 1, "how many nodes share the origin")
	return c
}

func (o origin) suggest() (*Suggestion, error) {
	o.most = cmp.Or(o.most, 3*o.wait)
	switch {
	case !(o.capacity >= 0.1) || o.capacity > 1e9:
		return nil, term.Misused("--capacity: must be 0.1 to 1,000,000,000 requests per second")
	case o.latency <= 0 || o.latency > time.Hour:
		return nil, term.Misused("--latency: must be over 0 and at most 1h, such as 20ms")
	case o.wait <= 0 || o.wait > time.Hour:
		return nil, term.Misused("--wait: must be over 0 and at most 1h, such as 40ms")
	case o.most < o.wait || o.most > 24*time.Hour:
		return nil, term.Misused("--max-wait: must be at least --wait and at most 24h")
	case o.nodes < 1 || o.nodes > 10_000:
		return nil, term.Misused("--nodes: must be 1 to 10,000")
	}
	inFlight := func(wait time.Duration) float64 {
		return o.capacity * (o.latency + wait).Seconds() / float64(o.nodes)
	}
	d := shedding.Defaults()
	high := max(1, math.Round(inFlight(o.wait)/d.Target))
	first, last := math.Floor(inFlight(o.most)), math.Ceil(high*9/8)
	if steps := len(d.Classes) - 1; first < last+float64(steps) {
		least := time.Duration((last+float64(steps))*float64(o.nodes)/o.capacity*1e9) - o.latency
		return nil, term.Misused("--max-wait: must be at least %s, so that the caps leave room above inflight.high, which is %g per node", (least + time.Millisecond).Truncate(time.Millisecond), high)
	}
	for i := range d.Classes {
		d.Classes[i].MaxInFlight = int64(math.Round(first - (first-last)*float64(i)/float64(len(d.Classes)-1)))
	}
	return &Suggestion{shedding.Signals{shedder.SignalInFlight: {Low: &shedding.Knee{}, High: &shedding.Knee{Value: high}}}, d.Classes}, nil
}
