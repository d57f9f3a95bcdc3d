package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/internal/testenv"
)

// visitors are many clients of one edge. A tenth of their requests is critical; the others are
// writes, reads and tests in equal parts.
type visitors struct {
	rate, critical, failed atomic.Int64 // requests per second; critical requests, and those not answered with 200
	leave                  func()       // ends them
}

// come sends requests at a rate, if the machine permits, until they leave or the test ends.
func (l *lab) come(edge int, path string, rate int64) *visitors {
	w := &visitors{}
	w.rate.Store(rate)
	ended, slots := make(chan struct{}), make(chan struct{}, 200) // below the critical class's cap
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: cap(slots)}}
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		n, due, last := 0, 0.0, time.Now()
		for {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				due, last = min(due+float64(w.rate.Load())*now.Sub(last).Seconds(), 50), now
			}
			for ; due >= 1; due-- {
				kind := n % 10
				n++
				slots <- struct{}{}
				all.Go(func() {
					defer func() { <-slots }()
					w.ask(client, "http://"+l.edges[edge].Public+path, kind)
				})
			}
		}
	})
	w.leave = sync.OnceFunc(func() { close(ended); all.Wait() })
	l.t.Cleanup(w.leave)
	return w
}

func (w *visitors) ask(client *http.Client, url string, kind int) {
	class := []string{"critical", "write", "write", "write", "read", "read", "read", "test", "test", "test"}[kind]
	r, _ := http.NewRequest(map[bool]string{true: http.MethodPost, false: http.MethodGet}[class == "write"], url, nil)
	r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.18.%d.%d", rand.IntN(16), rand.IntN(256)))
	r.Header.Set("X-Weir-Class", class)
	resp, err := client.Do(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if class == "critical" {
		w.critical.Add(1)
		if err != nil || resp.StatusCode != http.StatusOK {
			w.failed.Add(1)
		}
	}
}

// An origin gets more and more requests, up to several times what it can serve, and then few
// again. The page shows the level, and what is shed of each class. All critical requests are
// answered. make picture films it.
func TestOverload(t *testing.T) {
	l := start(t, "trusted_proxies: [127.0.0.0/8]")
	l.run("shedder", "set", "signals.inflight.high=20", "signals.cpu=off", "signals.upstream_wait=off", "signals.sched_latency=off",
		"classes.test.max_in_flight=40", "classes.read.max_in_flight=50", "classes.write.max_in_flight=60", "--yes", "-m", "the origin serves 50 per second")
	b := launch(t)
	l.enter(b)
	b.visit(l.url + "/shedder")
	b.has("inflight")
	busy := l.come(0, "/orders", 35)
	l.come(1, "/", 20)
	row := "[...document.querySelectorAll('[aria-labelledby=shed-eu-west] tbody td')].map((e) => e.innerText)"
	b.sees(row + "[3] > 30")
	busy.critical.Store(0)
	end := b.film("overload", 1200, 490, func() string {
		return fmt.Sprintf("eu-west receives %3d requests per second; its origin can serve 50.   Critical: %d answered, %d failed.", busy.rate.Load(), busy.critical.Load()-busy.failed.Load(), busy.failed.Load())
	})
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 1; !b.is("((r) => r[0] > 2 && r[5].match(/write: (\\d+)/)?.[1] > 60)(" + row + ")"); n++ {
		<-tick.C
		busy.rate.Store([]int64{35, 65, 110, 220}[min((n+4)/9, 3)])
	}
	busy.rate.Store(35)
	b.sees("((r) => r[0] == 0 && r[3] < 50)(" + row + ")")
	end()
	busy.leave()
	require.Zero(t, busy.failed.Load())
	var live struct {
		Regions []struct {
			Nodes []struct{ Upstreams []shedding.UpstreamStatus }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(l.run("shedder", "show", "--live")), &live))
	for _, c := range live.Regions[0].Nodes[0].Upstreams[0].Classes {
		all, capped := c.ShedByLevel+c.ShedByCap, ""
		if c.ShedByCap > 0 {
			capped = fmt.Sprintf(" (%d by cap)", c.ShedByCap)
		}
		b.sees(fmt.Sprintf("%s[5].replaceAll(',', '').split('\\n').includes(%s) === %v", row, literal(fmt.Sprintf("%s: %d%s", c.Name, all, capped)), all > 0))
	}
}

// What caps refuse counts as shed on both pages, although the level is 0. Where Prometheus is given,
// restarts of edges leave its totals and charts as they were.
func TestShedByCaps(t *testing.T) {
	l := start(t, "trusted_proxies: [127.0.0.0/8]")
	l.run("shedder", "set", "law=cap", "classes.test.max_in_flight=10", "classes.read.max_in_flight=10", "classes.write.max_in_flight=10", "candidates.trial.signals.inflight.high=80", "--yes", "-m", "only caps")
	crowd := l.come(0, "/orders", 200)
	b := launch(t)
	b.dress("light", 1440)
	l.enter(b)
	b.visit(l.url + "/shedder")
	const compared = "document.querySelector('[aria-label=\"The candidate and the live settings\"] tbody tr')"
	b.sees("((r) => r?.cells[1].textContent === '0.00' && parseFloat(r.cells[2].textContent) > 0)(" + compared + ")")
	b.has("shed since the edge started")
	b.has("since opening, at most 3 min")
	b.has("and charts begin when this page was opened")
	b.visit(l.url + "/fleet")
	b.sees("[...document.querySelectorAll('.tile')].some((e) => e.textContent.startsWith('edges shedding1'))")
	b.sees("[...document.querySelectorAll('tr')].some((r) => r.cells[0].textContent === 'ams1-1' && r.cells[5].matches('.bad') && r.cells[5].textContent === '0.00caps shed')")

	prometheus := l.prometheus(`increase(weir_shed_total{reason="cap"}[1h]) > 0`)
	crowd.leave()
	l.edges[0].Kill()
	l.edges[0].Start()
	l.edges[0].WaitReady()
	l.restart(b, "--prometheus", prometheus)
	b.has("limited in the last hour")
	b.visit(l.url + "/shedder")
	b.has("shed in the last hour")
	const shed = "(document.querySelector('[aria-labelledby=shed-%s] tbody tr')?.cells[6].innerText ?? '')"
	b.sees("/test: [1-9].* by cap/.test(" + fmt.Sprintf(shed, "eu-west") + ")")
	b.sees(fmt.Sprintf(shed, "us-east") + " === '–'") // Prometheus does not ask its edge
	b.sees("((points) => points.length === 60 && new Set(points.map((p) => p.split(',')[1])).size > 1)(" + compared + ".querySelector('polyline').getAttribute('points').split(' '))")
	require.False(t, b.is("document.body.innerText.includes('when this page was opened')"))
	b.look("shedder-hour")
}

// prometheus starts one that asks the first edge each second. It returns its address once a query has a
// result.
func (l *lab) prometheus(query string) string {
	port := testenv.FreePorts(l.t, 1)[0]
	at := fmt.Sprintf("127.0.0.1:%d", port)
	testenv.Serve(l.t, []int{port}, "prometheus", "--web.listen-address="+at, "--storage.tsdb.path=data", "--config.file="+l.write("prometheus.yaml",
		fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: weir-edge, static_configs: [{targets: [%q], labels: {region: eu-west, pop: ams1, node: ams1-1}}]}]\n", l.edges[0].Admin)))
	require.Eventually(l.t, func() bool {
		resp, err := http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return bytes.Contains(text, []byte(`"value"`))
	}, testenv.Patience, 100*time.Millisecond)
	return "http://" + at
}
