package ctl

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two changes of the fleet, of which the second begins while the first has switched one
// region and not the other. Whoever is later at the first region is in force everywhere.
func TestOvertaking(t *testing.T) {
	inFleets(t, map[string]func(*testing.T, *fleet){
		"first":      testOvertakenFirst,
		"second":     testOvertakenSecond,
		"back":       testOvertakenBack,
		"fields":     testOvertakenFields,
		"for a time": testOvertakenForATime,
	})
}

// held is a run of the program whose write of the pointer of us-east waits.
type held struct {
	*session
	let func() // on
}

// hold starts a run and waits until it wants to switch us-east.
func (f *fleet) hold(t *testing.T, args ...string) held {
	t.Helper()
	target, err := url.Parse("http://" + f.consuls["us-east"].Addr())
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	arrived, released := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/current") {
			select {
			case arrived <- struct{}{}:
			case <-released: // it comes again
			}
			<-released
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	var text strings.Builder
	text.WriteString("regions:\n")
	for _, name := range f.names {
		addr := f.consuls[name].Addr()
		if name == "us-east" {
			addr = server.Listener.Addr().String()
		}
		fmt.Fprintf(&text, "  - {name: %s, consul: {addr: %q, prefix: %s}}\n", name, addr, f.prefix)
	}
	slow := *f
	slow.file = write(t, "slow.yaml", text.String())
	h := held{slow.converse(t, append(args, "--by", "ana", "--yes", "--wait", "0")...), func() { close(released) }}
	<-arrived
	return h
}

// The first one goes on before the second switches anything. Where it did so after the
// second looked, the second does not take it for a stranger.
func testOvertakenFirst(t *testing.T, f *fleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	ana := f.hold(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)))
	bob := f.converse(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--by", "bob", "--wait", "0")
	bob.sees(t, "[y/N] ")
	ana.let()
	require.Zero(t, ana.end(t).status)
	bob.answer(t, "y")
	r := bob.end(t)
	require.Zero(t, r.status, r.errOut)
	for _, name := range f.names {
		require.Equal(t, versionOf(rulesOf(3)), f.current(t, name))
		changes, _, err := f.rules(name).History(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{versionOf(rulesOf(3)), versionOf(rulesOf(2)), versionOf(rulesOf(1))},
			[]string{changes[0].Version, changes[1].Version, changes[2].Version})
		require.Equal(t, versionOf(rulesOf(2)), changes[0].Replaced)
	}
}

// The first one goes on after the second has switched everything.
func testOvertakenSecond(t *testing.T, f *fleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	ana := f.hold(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "-o", "json")
	f.good(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--by", "bob", "--wait", "0", "--yes")
	ana.let()
	r := ana.end(t)
	require.Equal(t, statusConflict, r.status)
	require.Contains(t, r.errOut, "overtaken: this was in force in eu-west for a moment:\neu-west: bob applied "+versionOf(rulesOf(3)))
	report := parse[changeReport](t, r.out)
	require.Equal(t, []string{lost, lost}, []string{report.Regions[0].Result, report.Regions[1].Result})
	require.Equal(t, "bob", report.Regions[0].Now.AppliedBy)
	for _, name := range f.names {
		require.Equal(t, versionOf(rulesOf(3)), f.current(t, name))
	}
}

// The second one wants what us-east has, and the first has not changed yet.
func testOvertakenBack(t *testing.T, f *fleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	ana := f.hold(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)))
	f.good(t, "rules", "apply", write(t, "one.yaml", rulesOf(1)), "--by", "bob", "--wait", "0", "--yes")
	ana.let()
	require.Equal(t, statusConflict, ana.end(t).status)
	for _, name := range f.names {
		require.Equal(t, versionOf(rulesOf(1)), f.current(t, name))
	}
}

// Each sets another field: the second one keeps that of the first.
func testOvertakenFields(t *testing.T, f *fleet) {
	f.good(t, "shedder", "set", "signals.inflight.high=100", "--yes", "--wait", "0")
	ana := f.hold(t, "shedder", "set", "signals.inflight.high=200")
	bob := f.converse(t, "shedder", "set", "signals.inflight.low=50", "--by", "bob", "--wait", "0")
	bob.sees(t, "[y/N] ")
	ana.let()
	require.Zero(t, ana.end(t).status)
	bob.answer(t, "y")
	r := bob.end(t)
	require.Zero(t, r.status, r.errOut)
	for _, name := range f.names {
		text := f.good(t, "shedder", "show", "--region", name).out
		require.Contains(t, text, "high: 200")
		require.Contains(t, text, "low: 50")
	}
}

// What lasts for a time is followed by what the one before left.
func testOvertakenForATime(t *testing.T, f *fleet) {
	f.good(t, "shedder", "set", write(t, "one.yaml", settingsOf(100)), "--yes", "--wait", "0")
	ana := f.hold(t, "shedder", "set", write(t, "two.yaml", settingsOf(200)))
	bob := f.converse(t, "shedder", "set", write(t, "three.yaml", settingsOf(300)), "--for", "1h", "--by", "bob", "--wait", "0")
	bob.sees(t, "[y/N] ")
	ana.let()
	require.Zero(t, ana.end(t).status)
	bob.answer(t, "y")
	r := bob.end(t)
	require.Zero(t, r.status, r.errOut)
	for _, name := range f.names {
		require.Equal(t, versionOf(settingsOf(300)), f.pointer(t, name).Version)
		require.Equal(t, versionOf(settingsOf(200)), f.pointer(t, name).Then.Version)
	}
}
