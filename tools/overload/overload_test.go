package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/pkg/shedder"
	"github.com/weir-edge/weir/tools/internal/overload"
)

func TestTheOriginKeepsItsPaceWhateverItSleeps(t *testing.T) {
	const ms = time.Millisecond
	q := &queue{times: []time.Duration{30 * ms, 10 * ms}}
	for i := range overload.Workers {
		at, ok := q.enter(0)
		require.True(t, ok)
		require.Equal(t, []time.Duration{30 * ms, 10 * ms}[i%2], at)
	}
	// All are busy; the next requests wait for those that are free at 10 ms, in turn.
	at, _ := q.enter(5 * ms)
	require.Equal(t, 40*ms, at)
	at, _ = q.enter(5 * ms)
	require.Equal(t, 20*ms, at)
	// An answer that nobody fetches changes nothing for later requests.
	at, _ = q.enter(time.Second)
	require.Equal(t, 1030*ms, at)
}

func TestTheOriginChanges(t *testing.T) {
	const ms = time.Millisecond
	q := &queue{times: []time.Duration{10 * ms}}
	enter := func() time.Duration {
		at, ok := q.enter(0)
		require.True(t, ok)
		return at
	}
	change := func(text string) error {
		args := &fasthttp.Args{}
		args.Parse(text)
		return q.change(args)
	}
	require.Equal(t, 10*ms, enter())
	require.NoError(t, change("slowness=2"))
	require.Equal(t, 20*ms, enter())
	require.NoError(t, change("delay=100ms"))
	require.Equal(t, 120*ms, enter())
	require.NoError(t, change("slowness=0.5"))
	require.Equal(t, 105*ms, enter())
	require.Error(t, change("slowness=half"))
	require.Error(t, change("delay=5"))
}

// Nodes that join get their part, and those that leave get nothing more.
func TestLoadFollowsTheNodes(t *testing.T) {
	l := &load{}
	nodes := []*node{{public: "a"}, {public: "b"}, {public: "c"}}
	addrs := func() (all []string) {
		for _, t := range l.targets {
			all = append(all, t.addr)
		}
		return all
	}
	l.aim(nodes[:2])
	first := l.targets[0]
	l.aim(nodes)
	require.Equal(t, []string{"a", "b", "c"}, addrs())
	require.Same(t, first, l.targets[0], "it keeps its connections")
	worker := make(chan job)
	l.targets[2].idle = []chan job{worker}
	l.aim(nodes[:2])
	require.Equal(t, []string{"a", "b"}, addrs())
	_, open := <-worker
	require.False(t, open)
}

func TestTheOriginTurnsAwayWhatItsQueueDoesNotHold(t *testing.T) {
	q := &queue{times: overload.ServiceTimes(1)}
	for range overload.Workers + overload.QueueLimit {
		_, ok := q.enter(0)
		require.True(t, ok)
	}
	_, ok := q.enter(0)
	require.False(t, ok)
	q.leave()
	_, ok = q.enter(0)
	require.True(t, ok)
}

func TestAnswersAreTold(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answers := make(chan string, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		answer := <-answers
		if answer == "" {
			<-r.Context().Done()
		}
		fmt.Fprint(c, answer)
		c.Close()
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	f := func(answer string, want overload.Outcome, capped bool, trouble string) {
		t.Helper()
		answers <- answer
		c := &conn{addr: listener.Addr().String()}
		defer c.close()
		outcome, isCapped, err := c.ask(overload.Test, 7, time.Now().Add(5*time.Second))
		if trouble != "" {
			require.ErrorContains(t, err, trouble)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, want, outcome)
		require.Equal(t, capped, isCapped)
	}
	f("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", overload.Answered, false, "")
	f("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nWeir-Shed-Reason: inflight;value=95;kind=level\r\n\r\n", overload.Shed, false, "")
	f("HTTP/1.1 503 Service Unavailable\r\nWeir-Shed-Reason: inflight;value=95;kind=cap\r\nContent-Length: 0\r\n\r\n", overload.Shed, true, "")
	f("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", overload.Failed, false, "")
	f("HTTP/1.1 200 OK\r\n\r\n", overload.Failed, false, "without Content-Length")
	f("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", overload.Failed, false, "EOF")
	f("oops\r\n", overload.Failed, false, "no status line")
}

func TestLoadMeasuresFromWhenARequestWasDue(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/checkout/pay", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, http.MethodPost, r.Method)
		w.Header().Set("Weir-Shed-Reason", "inflight;kind=level")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/catalogue", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Weir-Class") == "test" {
			<-r.Context().Done() // the client gives up
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	plan := overload.Plan{{For: time.Second, Load: []float64{0.1, 0.05, 0.1, 0.02}, Retries: 1}}
	const patience = 5 * time.Second // more than a busy machine needs for an answer
	l := &load{begin: time.Now(), patience: patience}
	l.aim([]*node{{public: listener.Addr().String()}})
	require.NoError(t, l.run(context.Background(), plan, 1))
	require.Empty(t, l.troubles)
	first := map[int]int{}
	for _, a := range l.attempts {
		if !a.Retry {
			first[a.Class]++
		}
		switch a.Class {
		case overload.Write:
			require.Equal(t, overload.Shed, a.Outcome)
		case overload.Test:
			require.Equal(t, overload.Failed, a.Outcome)
			require.GreaterOrEqual(t, a.Took, patience)
		default:
			require.Equal(t, overload.Answered, a.Outcome)
			require.False(t, a.Retry)
		}
	}
	want := map[int]int{}
	for _, a := range overload.Schedule(plan, 1) {
		want[a.Class]++
	}
	require.Equal(t, want, first)
	run := overload.Run{Attempts: l.attempts}
	require.Greater(t, overload.Sheds(run, plan.Span(0)), want[overload.Write], "refusals are repeated")
}

func TestTheNodeIsGivenTheSettings(t *testing.T) {
	s := overload.Settings(shedder.LawPI)
	delete(s.Signals, shedder.SignalCPU)
	text, err := shedderConfig(s, true)
	require.NoError(t, err)
	var got struct {
		Law     string
		Signals map[string]any
		Classes []struct {
			Name        string
			MaxInFlight int64 `json:"max_in_flight"`
		}
		Default string `json:"default_class"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &got))
	require.Equal(t, "pi", got.Law)
	require.Equal(t, "read", got.Default)
	require.Equal(t, "off", got.Signals["cpu"])
	require.Equal(t, map[string]any{"low": "500ms", "high": "5s"}, got.Signals["upstream_wait"])
	auto, err := shedderConfig(overload.Auto(), true)
	require.NoError(t, err)
	require.Contains(t, auto, `"inflight":{"high":{"max":800,"min":10},"low":0}`)
	for i, c := range s.Classes {
		require.Equal(t, c, shedder.Class{Name: got.Classes[i].Name, MaxInFlight: got.Classes[i].MaxInFlight})
	}
}

func TestOnlyChooses(t *testing.T) {
	f := func(only string, contenders, scenarios int, refusals bool) {
		t.Helper()
		c, s, r, err := (&options{only: only}).chosen()
		require.NoError(t, err)
		require.Len(t, c, contenders)
		require.Len(t, s, scenarios)
		require.Equal(t, refusals, r)
	}
	f("", 6, 16, true)
	f("weir", 1, 16, true)
	f("one cap,none", 2, 16, false)
	f("2x", 6, 1, false)
	f("weir,2x,10x", 1, 2, false)
	f("refusal", 6, 0, true)
	f("auto,slower,1.02x", 1, 2, false)
	_, _, _, err := (&options{only: "weird"}).chosen()
	require.ErrorContains(t, err, `there is no "weird"; choose from none, one cap`)
}

func TestCPUTimeIsThatOfTheProcess(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	for begin := time.Now(); ; {
		after, err := cpuTime(os.Getpid())
		require.NoError(t, err)
		if after > before {
			break
		}
		require.Less(t, time.Since(begin), time.Minute)
	}
	_, err = cpuTime(-1)
	require.Error(t, err)
}
