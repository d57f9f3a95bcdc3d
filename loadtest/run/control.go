package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// control performs a script's requests, and undoes what the script left.
type control struct {
	l      *lab
	ctx    context.Context // no interrupt ends it: half an act is worse than a complete one
	url    string
	server *http.Server

	mu      sync.Mutex
	named   []phase
	failed  []string // acts
	chosen  master
	hurt    bool
	tight   bool
	judging bool   // an enforced policy
	apart   string // the region that is cut off
	homed   []byte // the topology before home; nil: unchanged
	swapped bool
	over    bool
}

// phase is a part of a scenario.
type phase struct {
	Name string    `json:"name"`
	From time.Time `json:"from"`
}

// actLimit bounds an act; the scripts wait as long.
const actLimit = 2 * time.Minute

func (l *lab) control(ctx context.Context) (*control, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &control{l: l, ctx: context.WithoutCancel(ctx), url: "http://" + ln.Addr().String()}
	c.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := c.act(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			fmt.Println("  ", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(answer)
	})}
	go func() { _ = c.server.Serve(ln) }()
	return c, nil
}

func (c *control) close() { _ = c.server.Close() }

// found is what decides a scenario: its phases, and the acts that failed.
func (c *control) found() ([]phase, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named, c.failed
}

// act performs a script's act. k6 ignores a failed one, so it is recorded here.
func (c *control) act(what string) (answer []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, fmt.Errorf("%s: the scenario is over", what)
	}
	ctx, cancel := context.WithTimeout(c.ctx, actLimit)
	defer cancel()
	if answer, err = c.do(ctx, what); err != nil {
		c.failed = append(c.failed, fmt.Sprintf("%s failed: %v", what, err))
	}
	return answer, err
}

// do performs VERB/ARGUMENT, and returns its answer.
func (c *control) do(ctx context.Context, what string) (answer []byte, err error) {
	l := c.l
	verb, rest, _ := strings.Cut(what, "/")
	switch verb {
	case "phase":
		c.named = append(c.named, phase{rest, time.Now()})
		fmt.Printf("   %s\n", rest)
		return nil, nil
	case "kill": // PATTERN, as of signal.sh KILL, such as eu-west/*
		c.hurt = true
		return nil, l.script(ctx, "signal.sh", "KILL", rest)
	case "choose-master": // REGION: returns a current Redis master of it, and its slots
		if c.chosen, err = l.master(ctx, rest); err != nil {
			return nil, err
		}
		return json.Marshal(c.chosen)
	case "kill-master": // REGION: kills that one
		if err := c.stillMaster(ctx, rest); err != nil {
			return nil, err
		}
		c.hurt = true
		return nil, l.script(ctx, "signal.sh", "KILL", c.chosen.Name)
	case "heal": // as make lab: restarts dead processes, and waits until the lab is healthy
		err := l.script(ctx, "up.sh", l.vars...)
		c.hurt = err != nil
		return nil, err
	case "calls": // REGION: returns how many checks its edges have decided, and their calls to Redis
		return l.calls(ctx, rest)
	case "overshoot": // REGION: returns the largest overshoot of reported limits that its edges have measured, and its bound
		return l.overshoot(ctx, rest)
	case "delay": // EXCEPT, a region that may be cut off, or "": returns the longest seconds in which a region learns of a request in another
		return l.delay(ctx, rest)
	case "cut", "join": // REGION: blocks messages between its edges and others, or lets them pass again; needs the lab's round_trips
		return nil, c.cut(ctx, verb, rest)
	case "rules", "rules-halved": // applies rules.json, or that with half the limit of rolling
		return nil, c.swap(ctx, verb == "rules-halved")
	case "shedder-tight", "shedder-slow": // applies knees of 0 and 5 requests in flight, or of 0 and 50
		c.tight = true
		knee := map[string]string{"shedder-tight": "5", "shedder-slow": "50"}[verb]
		args := []string{"shedder", "set", "--yes", "--wait", "60s", "-m", "make loadtest", "patience=1s", "signals.inflight.low=0", "signals.inflight.high=" + knee, "signals.upstream_wait=off"}
		_, err := l.regionctl(ctx, args...)
		return nil, err
	case "policy-enforced": // applies policy.yaml
		c.judging = true
		_, err := l.regionctl(ctx, "policy", "apply", filepath.Join(l.root, "loadtest", "policy.yaml"), "--yes", "--wait", "60s", "-m", "make loadtest")
		return nil, err
	case "policy-back": // restores the previous policy
		err := l.restoreKind(ctx, "policy")
		c.judging = err != nil
		return nil, err
	case "home": // POP/RATE: adds 198.18.0.0/15 to a PoP's clients; each edge of the others can serve RATE requests per second
		return nil, c.home(ctx, rest)
	case "home-back": // restores the topology
		return nil, c.homeBack(ctx)
	case "agree": // fails unless the router answers networks of 198.18.0.0/15 as regionctl dns explain does
		return nil, l.agree(ctx)
	case "shedder-back": // restores the previous settings
		err := l.restoreKind(ctx, "shedder")
		c.tight = err != nil
		return nil, err
	}
	return nil, fmt.Errorf("unknown: %s", what)
}

// swap applies the rules with half of one limit, or unchanged.
func (c *control) swap(ctx context.Context, half bool) error {
	file := filepath.Join(c.l.root, "loadtest", "rules.json")
	if half {
		c.swapped = true
		made, err := c.l.halved()
		if err != nil {
			return err
		}
		defer os.Remove(made)
		return c.l.apply(ctx, made)
	}
	err := c.l.apply(ctx, file)
	c.swapped = c.swapped && err != nil
	return err
}

// cut blocks messages between a region's edges and those of others, or lets them pass again.
func (c *control) cut(ctx context.Context, verb, region string) error {
	if verb == "cut" {
		c.apart = region
	}
	host, _, err := net.SplitHostPort(c.l.state.DNS)
	if err != nil {
		return err
	}
	at := "http://" + net.JoinHostPort(strings.TrimSuffix(host, ".53")+".54", "8474")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/"+verb+"/"+region, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("regions cannot be cut off in a lab without round_trips: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: %s: %s", at, res.Status, text)
	}
	if verb == "join" {
		c.apart = ""
	}
	return nil
}

// calm ends the scenario: it undoes what a failed or interrupted script left.
func (c *control) calm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	ctx, cancel := patient(c.ctx)
	defer cancel()
	var errs []error
	for _, left := range []struct {
		is   bool
		undo string
	}{{c.apart != "", "join/" + c.apart}, {c.hurt, "heal"}, {c.tight, "shedder-back"}, {c.judging, "policy-back"}, {c.swapped, "rules"}, {c.homed != nil, "home-back"}} {
		if left.is {
			_, err := c.do(ctx, left.undo)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// halved writes the rules with half the limit of the rule rolling.
func (l *lab) halved() (string, error) {
	text, err := os.ReadFile(filepath.Join(l.root, "loadtest", "rules.json"))
	if err != nil {
		return "", err
	}
	var doc struct {
		Rules []map[string]any `json:"rules"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return "", err
	}
	for _, r := range doc.Rules {
		if r["id"] == "rolling" {
			r["limit"] = int(r["limit"].(float64)) / 2
		}
	}
	if text, err = json.MarshalIndent(doc, "", "  "); err != nil {
		return "", err
	}
	file := filepath.Join(l.dir, "loadtest-halved.json")
	return file, os.WriteFile(file, text, 0o600)
}

// master is a current Redis master and its slots.
type master struct {
	Name  string   `json:"name"`
	Slots [][2]int `json:"slots"`
}

// master finds a master in a region.
func (l *lab) master(ctx context.Context, region string) (master, error) {
	dirs, err := filepath.Glob(filepath.Join(l.dir, region, "redis-*"))
	if err != nil {
		return master{}, err
	}
	for _, dir := range dirs {
		conf, err := os.ReadFile(filepath.Join(dir, "redis.conf"))
		if err != nil {
			return master{}, err
		}
		address, _, _ := strings.Cut(strings.TrimPrefix(string(conf), "bind "), "\n")
		nodes, err := l.command(ctx, "redis-cli", "-h", strings.TrimSpace(address), "cluster", "nodes")
		if err != nil {
			continue // a dead one does not answer
		}
		if slots := ownSlots(string(nodes)); slots != nil {
			return master{region + "/" + filepath.Base(dir), slots}, nil
		}
	}
	return master{}, fmt.Errorf("no Redis of %s is a master", region)
}

// ownSlots reads the queried node's slots from CLUSTER NODES; nil if it is not a master.
func ownSlots(nodes string) [][2]int {
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line) // id address flags master ping pong epoch link slots...
		if len(f) < 9 || !strings.Contains(f[2], "myself,master") {
			continue
		}
		var slots [][2]int
		for _, s := range f[8:] {
			first, last, span := strings.Cut(s, "-")
			if !span {
				last = first
			}
			a, e1 := strconv.Atoi(first)
			b, e2 := strconv.Atoi(last)
			if e1 == nil && e2 == nil { // a migrating slot is in brackets
				slots = append(slots, [2]int{a, b})
			}
		}
		return slots
	}
	return nil
}

// stillMaster checks that the process to kill is the master that the script knows.
func (c *control) stillMaster(ctx context.Context, region string) error {
	was := c.chosen
	var err error
	if c.chosen, err = c.l.master(ctx, region); err != nil {
		return err
	}
	if was.Name != "" && (was.Name != c.chosen.Name || !slices.Equal(was.Slots, c.chosen.Slots)) {
		return fmt.Errorf("%s is no longer the chosen master; that is now %s", was.Name, c.chosen.Name)
	}
	return nil
}
