package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func uploadDrills() []drill {
	return []drill{
		{breaks: "1,000 uploads of one client, a byte per second each", guarantee: "requests to the same upstream continue; the client's uploads take a quarter of the cap at most", within: atOnce, run: slowUploads},
		{breaks: "an upstream that stops reading bodies", guarantee: "its requests are shed, those to others continue", short: true, within: atOnce, run: unread},
	}
}

const chunkedPost = "POST %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.1\r\nTransfer-Encoding: chunked\r\n\r\n"

// slowUploads sends uploads with which neither the caps nor the law may take their origin for busy.
func slowUploads(t *testing.T, x *exercise) {
	const many, write, seconds = 1000, 900, 5
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(s.Close)
	redis := testenv.Redis(t, testenv.Options{})
	x.begin(edges(t, drillNodes, redisConfig(s.URL, "single", []string{redis.Addr}, max(budget, x.budget), drillNodes, ""), drillRules))
	n := x.nodes[0]
	require.Equal(t, http.StatusOK, operate(t, n, http.MethodPut, "/v1/shedder?for=1h",
		`{"patience": "1s", "signals": {"cpu": "off", "sched_latency": "off", "upstream_wait": "off", "inflight": {"low": 0, "high": 50}}}`))
	conns := make([]net.Conn, many)
	x.changes(func() {
		for i := range conns {
			var err error
			conns[i], err = net.Dial("tcp", n.Public)
			require.NoError(t, err)
			_, err = fmt.Fprintf(conns[i], chunkedPost, "/")
			require.NoError(t, err)
		}
	})
	uploads := func() int64 { return shedderStatus(t, n)["default"].Classes[1].InFlight }
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range seconds {
		for _, c := range conns {
			_, _ = io.WriteString(c, "1\r\nx\r\n") // the node may have refused it
		}
		<-tick.C
	}
	eventually(t, testenv.Patience, "the rest is refused", func() bool {
		return int64(metrics(t, n, "weir_shed_total")[`weir_shed_total{class="write",reason="client",upstream="default"}`])+uploads() == many
	})
	require.InDelta(t, write/4, uploads(), 20, "a little less while others are in flight")
	x.answers(1200)
	x.changes(func() {
		for _, c := range conns {
			_ = c.Close() // likewise
		}
	})
	eventually(t, testenv.Patience, "the uploads are over", func() bool { return uploads() == 0 })
	x.returns()
}

// unread loads an upstream that answers what has no body.
func unread(t *testing.T, x *exercise) {
	const stuck = 20
	hold := make(chan struct{})
	read := sync.OnceFunc(func() { close(hold) })
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-hold
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(read)
	stop := x.beside(t, s.URL, "")
	n := x.nodes[0]
	require.Equal(t, http.StatusOK, operate(t, n, http.MethodPut, "/v1/shedder?for=1h",
		fmt.Sprintf(`{"patience": "1s", "signals": {"cpu": "off", "sched_latency": "off", "upstream_wait": "off"}, "upstreams": {"bad": {"signals": {"inflight": {"low": 0, "high": %d}}}}}`, stuck)))
	part := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, make([]byte, 64<<10))
	var wg sync.WaitGroup
	conns := make([]net.Conn, stuck)
	x.changes(func() {
		for i := range conns {
			c, err := net.Dial("tcp", n.Public)
			require.NoError(t, err)
			conns[i] = c
			_, err = fmt.Fprintf(c, chunkedPost, "/bad")
			require.NoError(t, err)
			wg.Go(func() {
				for err := error(nil); err == nil; {
					_, err = io.WriteString(c, part)
				}
			})
		}
	})
	bad := func() (shed uint64) {
		for _, class := range shedderStatus(t, n)["bad"].Classes {
			shed += class.ShedByLevel
		}
		return shed
	}
	eventually(t, testenv.Patience, "its requests are shed", func() bool { return bad() > 0 })
	x.answers(1200)
	require.Zero(t, shedderStatus(t, n)["default"].Level)
	x.changes(func() {
		read()
		stop()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	wg.Wait()
	x.returns()
}
