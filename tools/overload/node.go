package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
	"github.com/weir-edge/weir/tools/internal/overload"
)

// node is an edge in front of the origin.
type node struct {
	lab           *lab
	process       *process
	public, admin string
	rules         string // file
	version       int    // of its rules
}

// startNode runs an edge that counts in memory by one rule that never limits. A custom law needs
// this program's own edge. reasons makes refusals state their reason.
func (l *lab) startNode(program, origin string, settings shedder.Settings, reasons bool) (*node, error) {
	n := &node{lab: l}
	var err error
	if n.public, err = freeAddr(); err != nil {
		return nil, err
	}
	if n.admin, err = freeAddr(); err != nil {
		return nil, err
	}
	number := len(l.started) // files of nodes have names of their own
	if n.rules, err = l.write(fmt.Sprintf("rules-%d.yaml", number), rules(0, 0)); err != nil {
		return nil, err
	}
	shedder, err := shedderConfig(settings, reasons)
	if err != nil {
		return nil, err
	}
	config, err := l.write(fmt.Sprintf("edge-%d.yaml", number), fmt.Sprintf(`
listen: {public: %q, admin: %q}
server: {idle_timeout: 10m}
upstreams: [{url: "http://%s"}]
upstream: {max_conns: 8192, timeout: 10m}
store: {kind: memory}
trusted_proxies: [127.0.0.1] # which speaks for all users
rules: {source: file, file: %q}
log: {level: warn}
shedder: %s
`, n.public, n.admin, origin, n.rules, shedder))
	if err != nil {
		return nil, err
	}
	args := []string{"-config", config}
	if settings.Custom != nil {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
		args = append(args, "-role", "edge")
	}
	if n.process, err = l.start(n.public, program, args...); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = n.ready(); err == nil {
			return n, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("edge does not get ready: %w: %s", err, n.process.lastWords())
		}
	}
}

func (n *node) ready() error {
	resp, err := http.Get("http://" + n.admin + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// rules returns a document of n rules that match nothing and one that never limits.
func rules(version, n int) string {
	var b strings.Builder
	b.WriteString("rules:\n  - {id: per-user, key: [\"header:X-Api-Key\"], algorithm: leaky_bucket, limit: 1000000, window: 1s}\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: r%d, match: {paths: [/p%d/*]}, key: [client_ip], algorithm: leaky_bucket, limit: %d, window: 1s}\n", i, i, 100_000+version)
	}
	return b.String()
}

// shedderConfig formats settings for a node's configuration, in JSON, which is also
// YAML. Its classes match what classRequests send.
func shedderConfig(s shedder.Settings, reasons bool) (string, error) {
	type object = map[string]any
	match := [overload.Classes]object{
		overload.Critical: {"paths": []string{"/checkout/*"}},
		overload.Write:    {"methods": []string{"POST"}},
		overload.Test:     {"headers": object{"X-Weir-Class": "test"}},
	}
	classes := make([]object, len(s.Classes))
	for i, c := range s.Classes {
		classes[i] = object{"name": c.Name, "max_in_flight": c.MaxInFlight}
		if match[i] != nil {
			classes[i]["match"] = []object{match[i]}
		}
	}
	signals := object{}
	for name := range shedder.Defaults().Signals {
		knees, used := s.Signals[name]
		switch {
		case !used:
			signals[name] = "off"
		case name == shedder.SignalUpstreamWait || name == shedder.SignalSchedLatency:
			signals[name] = object{"low": seconds(knees.Low), "high": seconds(knees.High)}
		case name == shedder.SignalInFlight && s.AutoFrom > 0:
			signals[name] = object{"low": knees.Low, "high": object{"min": s.AutoFrom, "max": knees.High}}
		default:
			signals[name] = object{"low": knees.Low, "high": knees.High}
		}
	}
	text, err := json.Marshal(object{
		"enabled": s.Enabled, "law": s.Law, "start": s.Start, "target": s.Target,
		"patience": s.Patience.String(), "rotate": s.Rotate.String(), "reason_header": reasons, "user": []string{"header:X-Api-Key"},
		"signals": signals, "classes": classes, "default_class": s.Classes[overload.Read].Name,
	})
	return string(text), err
}

func seconds(s float64) string { return time.Duration(s * float64(time.Second)).String() }

// classRequests are the beginnings of each class's requests; the user's key follows.
var classRequests = [overload.Classes]string{
	overload.Critical: "GET /checkout/pay HTTP/1.1\r\nHost: shop.example\r\nX-Api-Key: user-",
	overload.Write:    "POST /orders HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\nX-Api-Key: user-",
	overload.Read:     "GET /catalogue HTTP/1.1\r\nHost: shop.example\r\nX-Api-Key: user-",
	overload.Test:     "GET /catalogue HTTP/1.1\r\nHost: shop.example\r\nX-Weir-Class: test\r\nX-Api-Key: user-",
}

// sample queries the node for its shedder's state.
func (n *node) sample(ctx context.Context) (overload.Sample, error) {
	var s overload.Sample
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+"/v1/shedder?brief", nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	var answer struct {
		Upstreams []struct {
			Level   float64 `json:"level"`
			Winner  string  `json:"winner"`
			Signals []struct {
				Name string  `json:"name"`
				High float64 `json:"high"`
			} `json:"signals"`
			Estimate struct {
				Rate float64 `json:"rate"`
				Base float64 `json:"base"`
			} `json:"estimate"`
			Classes []struct {
				InFlight    int64   `json:"in_flight"`
				Probability float64 `json:"probability"`
			} `json:"classes"`
		} `json:"upstreams"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return s, fmt.Errorf("GET /v1/shedder answers %s: %w", resp.Status, err)
	}
	if len(answer.Upstreams) != 1 || len(answer.Upstreams[0].Classes) != overload.Classes {
		return s, fmt.Errorf("GET /v1/shedder answers %s and tells no classes; is bin/edge older than this program? Run make build", resp.Status)
	}
	u := &answer.Upstreams[0]
	s.Level, s.Signal, s.Rate, s.Base = u.Level, u.Winner, u.Estimate.Rate, u.Estimate.Base
	for _, signal := range u.Signals {
		if signal.Name == shedder.SignalInFlight {
			s.Knee = signal.High
		}
	}
	for _, c := range answer.Upstreams[0].Classes {
		s.InFlight += c.InFlight
		s.Probability = append(s.Probability, c.Probability)
	}
	return s, nil
}

// disturb makes the node collect its garbage twice per second and replace 10,000 rules
// every fifteen seconds, until ctx ends.
func (n *node) disturb(ctx context.Context) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if i%30 == 10 {
			n.version++
			if err := os.WriteFile(n.rules, []byte(rules(n.version, 10_000)), 0o600); err != nil {
				return err
			}
			if err := n.process.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				return err
			}
		}
		if _, err := n.get(ctx, "/debug/pprof/heap?gc=1"); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// mallocs returns how many objects the node has allocated since its start.
func (n *node) mallocs(ctx context.Context) (float64, error) {
	text, err := n.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("the node's metrics lack go_memstats_mallocs_total")
}

func (n *node) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return string(text), err
}
