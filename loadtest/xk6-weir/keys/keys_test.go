package keys

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const accessLog = `
203.0.113.7 - - [21/Nov/2026:09:00:00 +0000] "GET /a?x=1 HTTP/1.1" 200 5 "-" "curl"
www.example.com 203.0.113.8 - anna [21/Nov/2026:10:00:02 +0100] "POST /b HTTP/1.1" 200 5
{"time":"2026-11-21T09:00:01.5Z","client":"2001:db8::1","method":"PUT","path":"/c"}
{"msec":1795251601.25,"remote_addr":"203.0.113.9","request":"DELETE /d HTTP/1.1"}
{"ts":1795251603000,"remote_ip":"203.0.113.9","uri":"/e"}
garbage
{"time":"yesterday","client":"a","path":"/"}
`

func kinds(t require.TestingT) []Config {
	log, err := ParseLog(accessLog)
	require.NoError(t, err)
	return []Config{
		{Kind: "uniform"}, {Kind: "zipf"}, {Kind: "flash_crowd", Start: time.Second, Ramp: time.Second, Hold: time.Second, Decay: time.Second},
		{Kind: "scanner"}, {Kind: "scanner", Vary: "path"}, {Kind: "retrying_bot", Policy: "backoff"}, {Kind: "diurnal", Day: time.Minute},
		{Kind: "replay", Log: log},
	}
}

func take(t require.TestingT, c Config, n int) (all []Request) {
	g, err := New(c)
	require.NoError(t, err)
	if c.Log != nil {
		c.Log.cursor.Store(0)
	}
	for i := range n {
		all = append(all, g.Next(time.Duration(i)*10*time.Millisecond))
		if bot, ok := g.(*RetryingBot); ok {
			bot.Answered(429, -1)
		}
	}
	return all
}

// The same seed and stream give the same requests; a different one gives others.
func TestDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(kinds(t)).Draw(t, "kind")
		c.Seed, c.Stream = rapid.Uint64().Draw(t, "seed"), rapid.Uint64Range(0, 1000).Draw(t, "stream")
		c.N = rapid.Int64Range(1, 1_000_000).Draw(t, "n")
		require.Equal(t, take(t, c, 50), take(t, c, 50))
		if c.Kind != "replay" && c.N > 1000 {
			other := c
			other.Stream++
			require.NotEqual(t, take(t, c, 50), take(t, other, 50))
		}
	})
}

// Every key is one of the n, whatever the kind.
func TestKeysAreAmongTheN(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(kinds(t)[:7]).Draw(t, "kind")
		c.Seed, c.N = rapid.Uint64().Draw(t, "seed"), rapid.Int64Range(1, 300).Draw(t, "n")
		c.Exponent = rapid.Float64Range(0, 5).Draw(t, "exponent")
		known := map[string]bool{}
		for i := range c.N {
			known[fmt.Sprintf("key-%d", i)] = true
		}
		for _, r := range take(t, c, 500) {
			require.True(t, known[r.Key], r.Key)
		}
	})
}

// Frequencies are as expected: by chi-squared, with a bound that chance exceeds once in
// a billion.
func TestFrequencies(t *testing.T) {
	const n, draws = 20, 200_000
	check := func(c Config, weight func(k float64) float64) {
		t.Helper()
		c.N, c.Seed = n, 3
		counts, total := map[string]float64{}, 0.0
		for _, r := range take(t, c, draws) {
			counts[r.Key]++
		}
		for k := range n {
			total += weight(float64(k + 1))
		}
		chi := 0.0
		for k := range n {
			want := draws * weight(float64(k+1)) / total
			chi += math.Pow(counts[fmt.Sprintf("key-%d", k)]-want, 2) / want
		}
		require.Less(t, chi, 85.0, "%+v", c)
	}
	check(Config{Kind: "uniform"}, func(float64) float64 { return 1 })
	for _, s := range []float64{0.5, 0.99, 1, 1.2, 2.5} {
		check(Config{Kind: "zipf", Exponent: s}, func(k float64) float64 { return math.Pow(k, -s) })
	}
}

func TestFlashCrowdRisesAndFalls(t *testing.T) {
	g, err := New(Config{
		Kind: "flash_crowd", Start: 10 * time.Second, Ramp: 10 * time.Second, Hold: 10 * time.Second, Decay: 10 * time.Second,
		Hot: 2, Peak: 0.8, Surge: 4,
	})
	require.NoError(t, err)
	for _, step := range []struct {
		at            float64
		part, traffic float64
	}{{5, 0, 1}, {15, 0.4, 2.5}, {25, 0.8, 4}, {35, 0.4, 2.5}, {41, 0, 1}} {
		at := time.Duration(step.at * float64(time.Second))
		crowd := 0.0
		for range 20_000 {
			if r := g.Next(at); r.Kind == "crowd" {
				require.Contains(t, []string{"key-0", "key-1"}, r.Key)
				crowd++
			}
		}
		require.InDelta(t, step.part, crowd/20_000, 0.02, at)
		require.InDelta(t, step.traffic, g.Intensity(at), 1e-9)
	}
}

// A scanner visits everything once before it visits anything twice.
func TestScannerMeetsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Kind: "scanner", N: rapid.Int64Range(1, 500).Draw(t, "n"), Seed: rapid.Uint64().Draw(t, "seed"),
			Vary: rapid.SampledFrom([]string{"key", "path"}).Draw(t, "vary"),
		}
		for round, all := 0, take(t, c, int(2*c.N)); round < 2; round++ {
			met := map[Request]bool{}
			for _, r := range all[int64(round)*c.N : int64(round+1)*c.N] {
				met[r] = true
			}
			require.Len(t, met, int(c.N))
		}
	})
}

func TestRetryingBot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Kind: "retrying_bot", Policy: rapid.SampledFrom([]string{"obey", "early", "backoff", "ignore"}).Draw(t, "policy"),
			Base: time.Second, Max: 10 * time.Second, Seed: rapid.Uint64().Draw(t, "seed"),
		}
		g, err := New(c)
		require.NoError(t, err)
		bot := g.(*RetryingBot)
		told := time.Duration(rapid.IntRange(-1, 60).Draw(t, "told")) * time.Second
		for i := range rapid.IntRange(1, 10).Draw(t, "refusals") {
			bot.Answered(429, told)
			wait := bot.Next(0).Wait
			switch {
			case c.Policy == "ignore":
				require.Zero(t, wait)
			case c.Policy == "obey" && told >= 0:
				require.Equal(t, told, wait)
			case c.Policy == "early" && told >= 0:
				require.Equal(t, told/2, wait)
			default:
				full := min(time.Second<<i, 10*time.Second)
				require.GreaterOrEqual(t, wait, full/2)
				require.LessOrEqual(t, wait, full)
			}
		}
		bot.Answered(200, -1)
		require.Zero(t, bot.Next(0).Wait)
	})
}

func TestDiurnal(t *testing.T) {
	g, err := New(Config{Kind: "diurnal", Day: 24 * time.Minute, PeakHour: new(20.0), Low: 0.25, Bots: new(0.1), N: 1000})
	require.NoError(t, err)
	require.InDelta(t, 1, g.Intensity(20*time.Minute), 1e-9)
	require.InDelta(t, 0.1+0.9*0.25, g.Intensity(8*time.Minute), 1e-9)
	require.InDelta(t, g.Intensity(3*time.Minute), g.Intensity(27*time.Minute), 1e-9)
	for _, at := range []time.Duration{20 * time.Minute, 8 * time.Minute} {
		bots := 0.0
		for range 20_000 {
			if g.Next(at).Kind == "bot" {
				bots++
			}
		}
		require.InDelta(t, 0.1/g.Intensity(at), bots/20_000, 0.015)
	}
	stages := Stages(g, 100, 24*time.Minute, 24)
	require.Len(t, stages, 25)
	require.Equal(t, Stage{100, time.Minute}, stages[20])
	var sum time.Duration
	for _, s := range stages {
		sum += s.Duration
	}
	require.Equal(t, 24*time.Minute, sum)

	// An hour of 0 and a share of 0 bots are values, not defaults.
	g, err = New(Config{Kind: "diurnal", PeakHour: new(0.0), Bots: new(0.0), Low: 0.5})
	require.NoError(t, err)
	require.InDelta(t, 1, g.Intensity(0), 1e-9)
	require.InDelta(t, 0.5, g.Intensity(12*time.Hour), 1e-9)
	for range 1000 {
		require.Equal(t, "people", g.Next(12*time.Hour).Kind)
	}
}

func TestReplay(t *testing.T) {
	log, err := ParseLog(accessLog)
	require.NoError(t, err)
	require.Equal(t, 2, log.Skipped)
	require.Equal(t, []Entry{
		{0, "203.0.113.7", "GET", "/a?x=1"},
		{1250 * time.Millisecond, "203.0.113.9", "DELETE", "/d"},
		{1500 * time.Millisecond, "2001:db8::1", "PUT", "/c"},
		{2 * time.Second, "203.0.113.8", "POST", "/b"},
		{3 * time.Second, "203.0.113.9", "GET", "/e"},
	}, log.Entries)
	g, err := New(Config{Kind: "replay", Log: log, Speed: 2})
	require.NoError(t, err)
	require.Equal(t, Request{Key: "203.0.113.7", Method: "GET", Path: "/a?x=1", Kind: "replay"}, g.Next(0))
	require.Equal(t, 525*time.Millisecond, g.Next(100*time.Millisecond).Wait)
	require.Zero(t, g.Next(time.Minute).Wait)

	// Many callers get the rest, each request once.
	var mu sync.Mutex
	var wg sync.WaitGroup
	paths := map[string]int{}
	for range 4 {
		wg.Go(func() {
			own, err := New(Config{Kind: "replay", Log: log})
			if err != nil {
				return
			}
			for r := own.Next(0); !r.Done; r = own.Next(0) {
				mu.Lock()
				paths[r.Path]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, map[string]int{"/b": 1, "/e": 1}, paths)
	_, err = ParseLog("nothing\n")
	require.ErrorContains(t, err, "1 skipped")
}

// A very long line is unreadable, but does not end the log.
func TestHugeLineOfALog(t *testing.T) {
	log, err := ParseLog(accessLog + strings.Repeat("x", 2<<20) + "\r\n" + accessLog)
	require.NoError(t, err)
	require.Len(t, log.Entries, 10)
	require.Equal(t, 5, log.Skipped)
}

// Addresses are in their network and distinct.
func TestAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cidr := rapid.SampledFrom([]string{"203.0.113.0/24", "10.20.0.0/15", "2001:db8::/48", "2001:db8:0:ff00::/56"}).Draw(t, "cidr")
		c := Config{Kind: "scanner", N: rapid.Int64Range(1, 256).Draw(t, "n"), CIDR: cidr}
		met := map[string]bool{}
		for _, r := range take(t, c, int(c.N)) {
			a, err := netip.ParseAddr(r.Key)
			require.NoError(t, err)
			require.True(t, netip.MustParsePrefix(cidr).Contains(a), r.Key)
			if a.Is6() {
				a = netip.PrefixFrom(a, 64).Masked().Addr()
			}
			met[a.String()] = true
		}
		require.Len(t, met, int(c.N))
	})
}

func TestRefused(t *testing.T) {
	for want, c := range map[string]Config{
		"kind: unknown":     {Kind: "random"},
		"n: must":           {Kind: "uniform", N: -1},
		"hot: must":         {Kind: "flash_crowd", N: 5, Hot: 6},
		"peak: must":        {Kind: "flash_crowd", Peak: 2},
		"policy: must":      {Kind: "retrying_bot", Policy: "nice"},
		"vary: must":        {Kind: "scanner", Vary: "all"},
		"log: replay needs": {Kind: "replay"},
		"cidr: ":            {Kind: "uniform", CIDR: "203.0.113.0/24"},
		"exponent: must":    {Kind: "zipf", Exponent: -1},
		"max: must":         {Kind: "retrying_bot", Base: time.Second, Max: time.Millisecond},
		"speed: must":       {Kind: "replay", Speed: -1},
		"bots: must":        {Kind: "diurnal", Bots: new(2.0)},
		"peakHour: must":    {Kind: "diurnal", PeakHour: new(25.0)},
	} {
		_, err := New(c)
		require.ErrorContains(t, err, want)
	}
}
