// Package keys generates the keys of a load, shaped like the traffic that a limiter
// meets. A generator is a function of its seed, its stream and the given time: the same
// input gives the same keys.
package keys

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"sort"
	"time"
)

// Request is the next request of a load.
type Request struct {
	Key string
	// Kind is the part of the mix from which it comes.
	Kind string
	// Path, Method and Wait are the log's in a replay; a scanner sets Path too.
	Path, Method string
	// Wait is how long until the request is due.
	Wait time.Duration
	// Done means that nothing is left to replay.
	Done bool
}

// Generator returns the next request at a time since the load began.
type Generator interface {
	Next(at time.Duration) Request
	// Intensity is the traffic at that time, as a multiple of the usual.
	Intensity(at time.Duration) float64
}

// Config says what to generate. Every kind reads Seed, Stream, N and the naming fields;
// for the others, the kinds that read them are listed.
type Config struct {
	Kind   string // uniform, zipf, flash_crowd, scanner, retrying_bot, diurnal, replay
	Seed   uint64
	Stream uint64 // distinguishes generators with the same seed
	N      int64  // how many keys; default 10,000
	Prefix string // of the names; default "key-"
	CIDR   string // names keys by addresses of this network instead

	Exponent float64 // zipf, and the crowd's background: default 1.1

	// flash_crowd: from Start, over Ramp, the Hot keys reach Peak of all requests, keep
	// it for Hold, and lose it over Decay. Surge is the traffic at the peak.
	Start, Ramp, Hold, Decay time.Duration
	Hot                      int64
	Peak, Surge              float64

	// scanner: Vary is what it walks through, "key" or "path".
	Vary string

	// retrying_bot
	Policy string // obey, early, backoff, ignore
	Early  float64
	Base   time.Duration
	Max    time.Duration

	// diurnal
	Day      time.Duration // how long a day takes; default 24h
	PeakHour *float64      // hour of the most traffic, 0 to 24; default 20
	Low      float64       // traffic at the quietest hour; default 0.2
	Bots     *float64      // part of the usual traffic without a daily rhythm; default 0.1

	// replay
	Log   *Log
	Speed float64 // default 1
}

// New returns the generator that c describes.
func New(c Config) (Generator, error) {
	def := func(v *float64, value float64) {
		if *v == 0 {
			*v = value
		}
	}
	if c.N == 0 {
		c.N = 10_000
	}
	def(&c.Exponent, 1.1)
	def(&c.Peak, 0.9)
	def(&c.Surge, 5)
	def(&c.Early, 0.5)
	def(&c.Low, 0.2)
	def(&c.Speed, 1)
	if c.PeakHour == nil {
		c.PeakHour = new(20.0)
	}
	if c.Bots == nil {
		c.Bots = new(0.1)
	}
	if c.Hot == 0 {
		c.Hot = 1
	}
	if c.Day == 0 {
		c.Day = 24 * time.Hour
	}
	if c.Base == 0 {
		c.Base = 100 * time.Millisecond
	}
	if c.Max == 0 {
		c.Max = 30 * time.Second
	}
	if c.Prefix == "" {
		c.Prefix = "key-"
	}
	switch {
	case c.N < 1 || c.N > 1<<40:
		return nil, fmt.Errorf("n: must be between 1 and %d (got %d)", int64(1)<<40, c.N)
	case c.Exponent < 0 || c.Exponent > 20 || math.IsNaN(c.Exponent):
		return nil, fmt.Errorf("exponent: must be between 0 and 20 (got %v)", c.Exponent)
	case c.Hot < 1 || c.Hot > c.N:
		return nil, fmt.Errorf("hot: must be between 1 and n (got %d)", c.Hot)
	case !(c.Peak > 0 && c.Peak <= 1):
		return nil, fmt.Errorf("peak: must be between 0 and 1 (got %v)", c.Peak)
	case !(c.Surge > 0):
		return nil, fmt.Errorf("surge: must be over 0 (got %v)", c.Surge)
	case !(c.Early > 0):
		return nil, fmt.Errorf("early: must be over 0 (got %v)", c.Early)
	case !(c.Speed > 0):
		return nil, fmt.Errorf("speed: must be over 0 (got %v)", c.Speed)
	case !(c.Low > 0 && c.Low <= 1):
		return nil, fmt.Errorf("low: must be over 0, and 1 at most (got %v)", c.Low)
	case !(*c.Bots >= 0 && *c.Bots <= 1):
		return nil, fmt.Errorf("bots: must be between 0 and 1 (got %v)", *c.Bots)
	case !(*c.PeakHour >= 0 && *c.PeakHour <= 24):
		return nil, fmt.Errorf("peakHour: must be between 0 and 24 (got %v)", *c.PeakHour)
	case min(c.Start, c.Ramp, c.Hold, c.Decay, c.Day, c.Base) < 0:
		return nil, fmt.Errorf("start, ramp, hold, decay, day, base: must not be negative")
	case c.Max < c.Base:
		return nil, fmt.Errorf("max: must be at least base, %s (got %s)", c.Base, c.Max)
	}
	name, err := c.naming()
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(c.Seed, c.Stream))
	base := source{c, name, random, newZipf(random, c.N, c.Exponent)}
	switch c.Kind {
	case "uniform":
		return &uniform{base}, nil
	case "zipf":
		return &zipfian{base}, nil
	case "flash_crowd":
		return &flashCrowd{base}, nil
	case "scanner":
		return newScanner(base)
	case "retrying_bot":
		return newRetryingBot(base)
	case "diurnal":
		return &diurnal{base}, nil
	case "replay":
		if c.Log == nil {
			return nil, fmt.Errorf("log: replay needs one")
		}
		return &replay{base}, nil
	}
	return nil, fmt.Errorf("kind: unknown (got %q); use uniform, zipf, flash_crowd, scanner, retrying_bot, diurnal or replay", c.Kind)
}

// source is shared by the generators.
type source struct {
	Config
	name   func(int64) string
	random *rand.Rand
	zipf   *zipf
}

func (*source) Intensity(time.Duration) float64 { return 1 }

// naming returns the function that names the keys.
func (c *Config) naming() (func(int64) string, error) {
	if c.CIDR == "" {
		return func(i int64) string { return fmt.Sprintf("%s%d", c.Prefix, i) }, nil
	}
	p, err := netip.ParsePrefix(c.CIDR)
	if err != nil {
		return nil, fmt.Errorf("cidr: %w", err)
	}
	// A limiter counts IPv6 clients by their /64.
	bits, step := 32, 0
	if p.Addr().Is6() {
		bits, step = 64, 8
		if p.Bits() > 64 {
			return nil, fmt.Errorf("cidr: an IPv6 network must have at least one /64 (got %s)", c.CIDR)
		}
	}
	if room := bits - p.Bits(); room < 41 && c.N > int64(1)<<room {
		return nil, fmt.Errorf("cidr: %s has no room for %d clients", c.CIDR, c.N)
	}
	first := p.Masked().Addr().AsSlice()
	return func(i int64) string {
		b := append([]byte(nil), first...)
		top := len(b) - step
		for j := top - 1; j >= 0 && i > 0; j-- {
			i += int64(b[j])
			b[j] = byte(i)
			i >>= 8
		}
		if step > 0 {
			b[15] = 1
		}
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	}, nil
}

// uniform: every key is equally frequent.
type uniform struct{ source }

func (g *uniform) Next(time.Duration) Request {
	return Request{Key: g.name(g.random.Int64N(g.N)), Kind: "uniform"}
}

// zipfian: the key of rank k, from 1, in proportion to 1/k^exponent.
type zipfian struct{ source }

func (g *zipfian) Next(time.Duration) Request {
	return Request{Key: g.name(g.zipf.next()), Kind: "zipf"}
}

// flashCrowd: a zipf background, and a few keys that suddenly become popular.
type flashCrowd struct{ source }

// height is how much of the crowd has arrived, 0 to 1.
func (g *flashCrowd) height(at time.Duration) float64 {
	at -= g.Start
	part := func(of time.Duration) float64 { return float64(at) / float64(of) }
	switch {
	case at < 0:
		return 0
	case at < g.Ramp:
		return part(g.Ramp)
	case at < g.Ramp+g.Hold:
		return 1
	}
	if at -= g.Ramp + g.Hold; at < g.Decay {
		return 1 - part(g.Decay)
	}
	return 0
}

func (g *flashCrowd) Next(at time.Duration) Request {
	if g.random.Float64() < g.Peak*g.height(at) {
		return Request{Key: g.name(g.random.Int64N(g.Hot)), Kind: "crowd"}
	}
	return Request{Key: g.name(g.zipf.next()), Kind: "background"}
}

func (g *flashCrowd) Intensity(at time.Duration) float64 {
	return 1 + (g.Surge-1)*g.height(at)
}

// diurnal: people, who sleep, and bots, which do not.
type diurnal struct{ source }

// people is how much of their traffic there is: a cosine of the hour.
func (g *diurnal) people(at time.Duration) float64 {
	hour := 24 * math.Mod(float64(at), float64(g.Day)) / float64(g.Day)
	wave := (1 + math.Cos(2*math.Pi*(hour-*g.PeakHour)/24)) / 2
	return g.Low + (1-g.Low)*wave
}

func (g *diurnal) Intensity(at time.Duration) float64 {
	return *g.Bots + (1-*g.Bots)*g.people(at)
}

// Next makes the last hundredth of the keys bots, all equally busy.
func (g *diurnal) Next(at time.Duration) Request {
	bots := max(1, g.N/100)
	if g.random.Float64()*g.Intensity(at) < *g.Bots {
		return Request{Key: g.name(g.N - 1 - g.random.Int64N(bots)), Kind: "bot"}
	}
	return Request{Key: g.name(g.zipf.next()), Kind: "people"}
}

// Stage is a stage of a k6 executor that ramps its rate.
type Stage struct {
	Target   int64
	Duration time.Duration
}

// Stages follows the intensity of g: the first stage jumps to the rate at 0, then steps
// of equal length each ramp to the intensity at their end.
func Stages(g Generator, rate float64, length time.Duration, steps int) []Stage {
	steps = max(1, steps)
	target := func(at time.Duration) int64 { return int64(math.Round(rate * g.Intensity(at))) }
	stages := []Stage{{target(0), 0}}
	for i := 1; i <= steps; i++ {
		from, to := length*time.Duration(i-1)/time.Duration(steps), length*time.Duration(i)/time.Duration(steps)
		stages = append(stages, Stage{target(to), to - from})
	}
	return stages
}

// sortByTime orders a log's entries by time, and is stable.
func sortByTime(entries []Entry) {
	sort.SliceStable(entries, func(i, j int) bool { return entries[i].At < entries[j].At })
}
