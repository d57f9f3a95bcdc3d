package blocklist

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// publisher is a list that the test changes, and a region.
type publisher struct {
	*testing.T
	says   atomic.Pointer[string]
	asked  atomic.Int64
	url    string
	region *consul.Client
	log    *os.File // can be read while it is written
}

func publish(t *testing.T) *publisher {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	p := &publisher{T: t, log: log}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		text := p.says.Load()
		if text == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		// ServeContent answers If-None-Match.
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", *text)))
		http.ServeContent(w, r, "list.txt", time.Time{}, strings.NewReader(*text))
	}))
	t.Cleanup(server.Close)
	p.url = server.URL + "/drop.txt"
	c, err := consul.Open(consul.Config{Addr: testenv.StartConsul(t, testenv.ConsulOptions{}).Addr()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	p.region = c
	return p
}

func (p *publisher) logged() string {
	text, err := os.ReadFile(p.log.Name())
	require.NoError(p, err)
	return string(text)
}

func (p *publisher) say(lines ...string) {
	text := strings.Join(lines, "\n")
	p.says.Store(&text)
}

// start is a process that follows the list.
func (p *publisher) start() *Sync {
	source, err := NewSource(p.url, testenv.Patience, 1<<20)
	require.NoError(p, err)
	return New(&Config{
		Name: "drop", Source: source, Reason: "list " + source.String(), Regions: []Region{{Name: "eu-west", Consul: p.region}},
		Every: time.Hour, Most: 1000, Loss: 0.3, Log: logs.Text(p.log), Now: time.Now,
	})
}

func (p *publisher) round(s *Sync) Outcome {
	p.Helper()
	list, err := s.Round(p.Context())
	require.NoError(p, err)
	require.Len(p, list, 1)
	return list[0]
}

// blocked lists what the region blocks for the list.
func (p *publisher) blocked() (list []string) {
	p.Helper()
	l, err := clientlist.Read(p.Context(), p.region)
	require.NoError(p, err)
	for _, e := range l.Entries() {
		if e.List() == "drop" {
			require.Equal(p, clientlist.Block, e.Action)
			list = append(list, strings.TrimSuffix(e.Network.String(), "/32"))
		}
	}
	return list
}

func (p *publisher) byHand(action clientlist.Action, network string) {
	p.Helper()
	d := &clientlist.Decision{Action: action, By: "ana", Reason: "by hand", Since: time.Now().UTC()}
	if action == "" {
		d = nil
	}
	e := clientlist.Edits{List: []clientlist.Edit{{Network: netip.MustParsePrefix(network), Decision: d}}, By: "ana", Message: "by hand", Now: time.Now()}
	_, err := e.Apply(p.Context(), p.region)
	require.NoError(p, err)
}

// metric returns the only series of a name that has this label, "" for any.
func (s *Sync) metric(t *testing.T, name, label string) (value float64) {
	t.Helper()
	families, err := s.metrics.registry.Gather()
	require.NoError(t, err)
	found := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := label == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == label
			}
			if f.GetName() == name && has {
				value = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				found++
			}
		}
	}
	require.LessOrEqual(t, found, 1)
	return value
}

func (s *Sync) age(t *testing.T) float64 {
	t.Helper()
	return s.metric(t, "weir_list_age_seconds", "")
}

func TestSync(t *testing.T) {
	p := publish(t)
	s := p.start()
	_, err := s.Round(t.Context())
	require.ErrorContains(t, err, "answers 503")
	require.EqualValues(t, 1, s.metric(t, "weir_list_failures_total", failedFetch))
	require.Empty(t, p.blocked())

	// By hand goes first: a block of the same network, and an allow.
	p.byHand(clientlist.Block, "198.51.100.1/32")
	p.byHand(clientlist.Allow, "198.51.100.2/32")
	p.say("198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "10.0.0.1")
	require.Equal(t, Outcome{Region: "eu-west", Added: 3, Yielded: 2, Has: 3}, p.round(s))
	require.Equal(t, []string{"198.51.100.3", "198.51.100.4", "198.51.100.5"}, p.blocked())
	require.EqualValues(t, 3, s.metric(t, "weir_list_networks", ""))
	require.EqualValues(t, 1, s.metric(t, "weir_list_private", ""))

	// Unchanged, it changes nothing, but what somebody removed is there again.
	require.Equal(t, Outcome{Region: "eu-west", Yielded: 2, Has: 3}, p.round(s))
	p.byHand("", "198.51.100.4/32")
	p.byHand("", "198.51.100.1/32")
	require.Equal(t, Outcome{Region: "eu-west", Added: 2, Yielded: 1, Has: 4}, p.round(s))

	// One of four is less than the share that it may lose; then a network replaces three.
	p.say("198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5")
	require.Equal(t, Outcome{Region: "eu-west", Removed: 1, Yielded: 1, Has: 3}, p.round(s))
	p.say("198.51.100.0/29")
	require.Equal(t, Outcome{Region: "eu-west", Added: 1, Removed: 3, Has: 1}, p.round(s))
	p.say("198.51.100.0/29", "203.0.113.1", "203.0.113.2", "203.0.113.3")
	require.Equal(t, 4, p.round(s).Has)

	// What looks broken changes nothing, also after a restart, until it is good again.
	was := p.blocked()
	for range 2 {
		for _, text := range []string{"", "<html>", "0.0.0.0/0", "203.0.113.1\n203.0.113.2\n198.51.100.0/30"} {
			p.say(text)
			list, err := s.Round(t.Context())
			if err == nil {
				require.ErrorIs(t, list[0].Failure, ErrLoss)
				require.ErrorContains(t, list[0].Failure, "of 4 networks in the region, 2 are no longer in the list (50%, allowed are 30%); to accept that, run regionctl clients sync with --once --max-loss 1")
			}
			require.Equal(t, was, p.blocked(), text)
		}
		p.says.Store(nil)
		_, err = s.Round(t.Context())
		require.Error(t, err)
		require.Equal(t, was, p.blocked())
		require.EqualValues(t, 3, s.metric(t, "weir_list_failures_total", failedList))
		require.EqualValues(t, 1, s.metric(t, "weir_list_failures_total", failedLoss))
		s = p.start()
	}
	p.say("203.0.113.1")
	s.Loss = 1
	require.Equal(t, Outcome{Region: "eu-west", Removed: 3, Has: 1}, p.round(s))
	require.Less(t, s.age(t), math.Inf(1))

	// The chain of the history is whole, and names the list.
	docs := p.region.Documents(clientlist.Kind)
	changes, wrong, err := docs.History(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Equal(t, "list:drop", changes[0].AppliedBy)
	require.Contains(t, changes[0].Message, "0 added, 3 removed: list "+p.url)
}

// A process that follows a list reports rounds and serves metrics, and stops when it is told.
func TestRun(t *testing.T) {
	p := publish(t)
	p.say("203.0.113.1", "203.0.113.2")
	s := p.start()
	require.Equal(t, math.Inf(1), s.age(t))
	stop, err := s.Serve("127.0.0.1:0")
	require.NoError(t, err)
	defer stop()
	logged := p.logged()
	addr := strings.TrimSpace(logged[strings.LastIndex(logged, "listen=")+len("listen="):])
	_, err = s.Serve(addr)
	require.ErrorContains(t, err, "address already in use; stop the program that uses it ")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { // a round that is canceled is not reported
		return strings.Contains(p.logged(), `msg="list published" list=drop region=eu-west networks=2 added=2 removed=0`)
	}, testenv.Patience, 10*time.Millisecond)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `weir_list_networks{list="drop",region="eu-west"} 2`)
	require.Contains(t, string(text), `weir_list_interval_seconds{list="drop"} 3600`)
	require.Contains(t, string(text), `weir_list_failures_total{list="drop",reason="loss"} 0`)
	cancel()
	<-ended
	require.EqualValues(t, 1, p.asked.Load())
}

func TestPause(t *testing.T) {
	s := &Sync{Config: &Config{Every: time.Hour}}
	require.Equal(t, 54*time.Minute, s.pause(true, 0))
	require.Equal(t, time.Hour, s.pause(true, 0.5))
	require.Equal(t, 6*time.Minute, s.pause(false, 0.5))
	s.Every = 2 * time.Minute
	require.Equal(t, time.Minute, s.pause(false, 0.5))
	s.Every = time.Minute
	require.Equal(t, time.Minute, s.pause(false, 0.5))
}
