package edge

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

// uploadTo starts a node whose origin has room for as many requests as the settings say, with HTTP/1.1 or
// HTTP/2 on either side.
func uploadTo(t *testing.T, client2, upstream2 bool, text string, handler http.HandlerFunc) *node {
	t.Helper()
	origin := originOfBoth(t, handler)
	s := setup{rules: followingRules, config: func(c *config.Config) {
		c.Upstreams = []config.Upstream{{URL: map[bool]string{false: "http://", true: "h2c://"}[upstream2] + origin}}
		c.TrustedProxies = []string{"127.0.0.0/8"}
		c.Shedder.Document = settings(t, text)
	}}
	if client2 {
		return startH2C(t, s)
	}
	return start(t, s)
}

// upload sends a request with this body, and returns where its status will be; 0 if there is no answer.
func (n *node) upload(client string, body io.Reader) <-chan int {
	n.t.Helper()
	req, err := http.NewRequest("POST", "http://"+n.public+"/upload", body)
	require.NoError(n.t, err)
	req.Header.Set("X-Forwarded-For", client)
	status, c := make(chan int, 1), *n.client
	go func() {
		defer close(status)
		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close()
			status <- resp.StatusCode
		}
	}()
	return status
}

// bothSides runs a test with each protocol on each side.
func bothSides(t *testing.T, test func(t *testing.T, client2, upstream2 bool)) {
	names := map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}
	for _, client2 := range []bool{false, true} {
		for _, upstream2 := range []bool{false, true} {
			t.Run(names[client2]+" to "+names[upstream2], func(t *testing.T) { test(t, client2, upstream2) })
		}
	}
}

// The time that clients take to send a body does not show how busy the origin is, to the shedder or to limits
// that follow load.
func TestSlowClientsAreNotTheOriginsLoad(t *testing.T) {
	const slow = 30
	bothSides(t, func(t *testing.T, client2, upstream2 bool) {
		var begun atomic.Int64
		n := uploadTo(t, client2, upstream2, "signals: {cpu: off, sched_latency: off, inflight: {low: 0, high: 20}}", func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadFull(r.Body, make([]byte, 1)); err == nil {
				begun.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
			}
		})
		var bodies []*io.PipeWriter
		var answers []<-chan int
		for range slow {
			r, w := io.Pipe()
			answers = append(answers, n.upload("203.0.113.1", r))
			_, _ = w.Write([]byte("x"))
			bodies = append(bodies, w)
		}
		eventually(t, "all uploads have reached the origin", func() bool { return begun.Load() == slow })
		status, opened := n.upstreams.Groups[0].Shedder.Status, time.Now()
		eventually(t, "samples of two seconds and more", func() bool { return status().At.Sub(opened) > 2500*time.Millisecond })
		require.Zero(t, status().Utilization, "%+v", status().Signals)
		eventually(t, "limits follow load", func() bool { return n.metric(`weir_load_nodes{upstream="default"}`) == 1 })
		require.Zero(t, n.metric(`weir_load_followed{upstream="default"}`))
		require.EqualValues(t, slow, n.inflight(), "for the caps, they are in flight")
		for range 20 {
			require.Equal(t, 200, n.get("/").status)
		}
		for i, w := range bodies {
			require.NoError(t, w.Close())
			require.Equal(t, 200, <-answers[i])
		}
		n.idle()
	})
}

// An origin that stops reading is busy, although the answer cannot begin.
func TestAnOriginThatDoesNotReadIsBusy(t *testing.T) {
	const stuck = 6
	bothSides(t, func(t *testing.T, client2, upstream2 bool) {
		hold := make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		n := uploadTo(t, client2, upstream2, calm[:len(calm)-2]+", inflight: {low: 0, high: 6}}", func(http.ResponseWriter, *http.Request) { <-hold })
		defer release()
		var answers []<-chan int
		for range stuck {
			if client2 {
				n.speakHTTP2(nil) // on its own connection: the others' unread bytes do not hold it up
			}
			answers = append(answers, n.upload("203.0.113.1", io.LimitReader(zeros{}, 1<<30)))
		}
		eventually(t, "all requests wait for the origin", func() bool { return n.upstreams.Groups[0].Shedder.Status().Utilization == 1 })
		release()
		for _, answer := range answers {
			<-answer
		}
		n.idle()
	})
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// One client's uploads take a quarter of the cap at most, until their answers end.
func TestOneClientsUploadsLeaveRoom(t *testing.T) {
	bothSides(t, func(t *testing.T, client2, upstream2 bool) {
		n := uploadTo(t, client2, upstream2, calm+"reason_header: true\nclasses: [{name: all, max_in_flight: 24}]\ndefault_class: all", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})
		var bodies []*io.PipeWriter
		var answers []<-chan int
		upload := func(client string) {
			r, w := io.Pipe()
			before := n.inflight()
			answers, bodies = append(answers, n.upload(client, r)), append(bodies, w)
			eventually(t, "it is in flight", func() bool { return n.inflight() == before+1 })
		}
		refused := func(client string) {
			require.Equal(t, 503, <-n.upload(client, io.LimitReader(zeros{}, 5)))
		}
		for range 6 {
			upload("203.0.113.1")
		}
		refused("203.0.113.1")
		require.Equal(t, 503, n.get("/", "X-Forwarded-For: 203.0.113.1").status, "without a body")
		require.Equal(t, 200, n.get("/", "X-Forwarded-For: 203.0.113.2").status)
		upload("203.0.113.2")
		require.EqualValues(t, 2, n.metric(`weir_shed_total{class="all",reason="client",upstream="default"}`))
		if !client2 {
			require.Equal(t, []int{503}, statuses(n.raw(lines("POST / HTTP/1.1", "Host: x", "X-Forwarded-For: 203.0.113.1", "Expect: 100-continue", "Content-Length: 5", "Connection: close"))))
		}
		require.NoError(t, bodies[0].Close())
		require.Equal(t, 200, <-answers[0])
		eventually(t, "an upload is over", func() bool { return n.inflight() == 6 })
		upload("203.0.113.1")
		refused("203.0.113.1")
		for i, w := range bodies {
			require.NoError(t, w.Close())
			if i > 0 {
				require.Equal(t, 200, <-answers[i])
			}
		}
		n.idle()
	})
}
