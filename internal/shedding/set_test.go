package shedding

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSet(t *testing.T) {
	f := func(path, value string, look func(*Document) any, want any) {
		t.Helper()
		before, err := Parse([]byte(full))
		require.NoError(t, err)
		after, err := Set(before, path, value)
		require.NoError(t, err)
		require.Equal(t, want, look(after))
		again, err := Parse([]byte(full))
		require.NoError(t, err)
		require.Equal(t, again, before, "the original is unchanged")
		requireSame(t, after)
	}
	f("enabled", "true", func(d *Document) any { return d.Enabled }, true)
	f("patience", "1m30s", func(d *Document) any { return d.Patience.String() }, "1m30s")
	f("signals.inflight.high", "400", func(d *Document) any { return d.Signals["inflight"].High.Value }, 400.0)
	f("signals.inflight", "{low: 1, high: 20}", func(d *Document) any { return d.Signals["inflight"].Low.Value }, 1.0)
	f("signals.upstream_wait.low", "20ms", func(d *Document) any { return d.Signals["upstream_wait"].Low.Value }, 0.02)
	f("signals.upstream_wait", "off", func(d *Document) any { return d.Signals["upstream_wait"] }, Knees{Off: true})
	f("signals.upstream_wait", "null", func(d *Document) any { return d.Signals["upstream_wait"] }, Knees{Off: true})
	f("signals.cpu.high", "0.9", func(d *Document) any { return d.Signals["cpu"].High.Value }, 0.9)
	f("signals.queue", "", func(d *Document) any { return len(d.Signals) }, 5)
	f("classes.free.max_in_flight", "11", func(d *Document) any { return d.Classes[1].MaxInFlight }, int64(11))
	f("classes[1].max_in_flight", "11", func(d *Document) any { return d.Classes[1].MaxInFlight }, int64(11))
	f("classes.bots.match", "", func(d *Document) any { return len(d.Classes[2].Match) }, 0)
	f("classes.0.match[1]", "", func(d *Document) any { return len(d.Classes[0].Match) }, 1)
	f("user", "[client_ip]", func(d *Document) any { return d.User }, []string{"client_ip"})
	f("user[0]", "header:X-User", func(d *Document) any { return d.User[0] }, "header:X-User")
	f("upstreams.shop.max_in_flight.bots", "2", func(d *Document) any { return d.Upstreams["shop"].MaxInFlight["bots"] }, int64(2))
	f("upstreams.search", "", func(d *Document) any { return len(d.Upstreams) }, 0)
	f("candidates.stricter.patience", "", func(d *Document) any { return d.Candidates["stricter"].Patience == nil }, true)
	f("retry_after.max", "1h", func(d *Document) any { return d.RetryAfter.Max.String() }, "1h")
	f("start", "", func(d *Document) any { return d.Start }, 0.8)
}

func TestSetRefuses(t *testing.T) {
	f := func(path, value, want string) {
		t.Helper()
		d, err := Set(Defaults(), path, value)
		require.EqualError(t, err, want)
		require.Nil(t, d)
	}
	f("signals.inflight.hgih", "3", "signals.inflight.hgih: unknown field; did you mean high?")
	f("signls.cpu.high", "3", "signls: unknown field; did you mean signals?")
	f("signals.inflght.high", "400", "signals.inflght.low: is required: there is no default for this signal; did you mean inflight?")
	f("classes.raed.max_in_flight", "2", "classes.raed.max_in_flight: classes: has no raed; there are critical, write, read, test")
	f("classes[7].name", "x", "classes[7].name: classes: has no 7; there are critical, write, read, test")
	f("user[7]", "client_ip", "user[7]: user: has no item 7; there are 1")
	f("user", "[client_ip", "user: is not valid YAML by line 1: did not find expected ',' or ']'; close the [ above, and separate its items by commas")
	f("user", "client_ip", "user: must be a list (got \"client_ip\"); put brackets around it")
	f("enabled", "maybe", "enabled: must be true or false (got \"maybe\")")
	f("enabled.x", "1", "enabled.x: enabled: is a single value and has no x")
	f("patience", "5", "patience: must be a duration with a unit (got 5); write 5s for seconds")
	f("law", "pid", "law: must be pi, integrator or cap (got \"pid\")")
	f("start", "null", "start: has no value; give one, or remove the field")
	f("start", "0.5", "target: must be greater than 0 and at most start, 0.5 (got 0.7)")
	f("", "1", "document: is not a path; write it as signals.inflight.high")
	f("signals..high", "1", "signals..high: is not a path; write it as signals.inflight.high")
	f("candidates.x.start", "", "candidates.x.start: is not set; there is nothing to remove")
	f("start", "*a", "start: uses \"*\" by line 1: anchors, aliases and merges are not accepted; write the values out, or put quotes around them")
	f("start", "!!float 1", "start: uses \"!!float\" in line 1: tags and directives are not accepted; remove it")
}

// A knee can become estimated, get bounds, and become a fixed value again.
func TestSetAuto(t *testing.T) {
	d := Defaults()
	for _, step := range []struct {
		path, value string
		want        *Knee
	}{
		{"signals.inflight.high", "auto", &Knee{Auto: &Bounds{10, 800}}},
		{"signals.inflight.high.max", "400", &Knee{Auto: &Bounds{10, 400}}},
		{"signals.inflight.high.min", "50", &Knee{Auto: &Bounds{50, 400}}},
		{"signals.inflight.high", "80", &Knee{Value: 80}},
	} {
		var err error
		d, err = Set(d, step.path, step.value)
		require.NoError(t, err)
		require.Equal(t, step.want, d.Signals["inflight"].High)
	}
}

func TestOverrideOfWhatIsOff(t *testing.T) {
	d, err := Set(Defaults(), "signals.cpu", "off")
	require.NoError(t, err)
	_, err = Set(d, "upstreams.x.signals.cpu.high", "0.7")
	require.EqualError(t, err, "upstreams.x.signals.cpu.low: is required: signals.cpu is off, so there is nothing to override")
}
