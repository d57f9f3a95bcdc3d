package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

// The router of the lab, and the TTL of its answers: terraform/lab/main.tf.
const (
	dnsPort = "5300"
	dnsTTL  = 2
)

// state is what the scripts know of the lab.
type state struct {
	DNS     string   `json:"dns"`
	Zone    string   `json:"zone" yaml:"zone"`
	TTL     int      `json:"ttl"`
	Nodes   int      `json:"nodes"` // edges of a region
	Regions []region `json:"regions" yaml:"regions"`
}

type region struct {
	Name   string `json:"name" yaml:"name"`
	Subnet string `json:"subnet"`
	Pops   []pop  `json:"pops" yaml:"pops"`
}

type pop struct {
	Name      string   `json:"name" yaml:"name"`
	Addresses []string `json:"addresses" yaml:"addresses"`
	Clients   []string `json:"-" yaml:"clients"`
}

// lab is the lab that is loaded.
type lab struct {
	root, dir string
	vars      []string // what make lab got as LAB_VARS
	state     state
	saved     map[string]map[string][]byte // kind, region
}

// openLab finds the lab or brings it up, mends it, saves rules and settings, and puts
// those of the scenarios in force. leave undoes all of that.
func openLab(ctx context.Context, root, dir, vars string) (l *lab, leave func() error, err error) {
	l = &lab{root: root, dir: dir, saved: map[string]map[string][]byte{}}
	if vars != "" {
		l.vars = []string{vars}
	}
	_, missing := os.Stat(filepath.Join(dir, "fleet.yaml"))
	down := func() error { return nil }
	if missing != nil {
		fmt.Println("bringing the lab up, for this run")
		down = func() error {
			return l.script(context.WithoutCancel(ctx), "down.sh")
		}
	}
	leave = func() error { return errors.Join(l.restore(context.WithoutCancel(ctx)), down()) }
	defer func() {
		if err != nil {
			err = errors.Join(err, leave())
		}
	}()
	// Of one that is there this starts again what has died.
	if missing != nil || l.script(ctx, "status.sh") != nil {
		if err = l.script(ctx, "up.sh", l.vars...); err != nil {
			return nil, nil, err
		}
	}
	if err = l.load(); err != nil {
		return nil, nil, err
	}
	for _, kind := range []string{"rules", "shedder"} {
		l.saved[kind] = map[string][]byte{}
		for _, r := range l.state.Regions {
			text, e := l.show(ctx, kind, r.Name)
			if e != nil {
				err = e
				return nil, nil, err
			}
			l.saved[kind][r.Name] = text
		}
	}
	if err = l.apply(ctx, filepath.Join(root, "loadtest", "rules.json")); err != nil {
		return nil, nil, err
	}
	return l, leave, nil
}

// load reads the topology.
func (l *lab) load() error {
	text, err := os.ReadFile(filepath.Join(l.dir, "topology.yaml"))
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &l.state); err != nil {
		return err
	}
	s := &l.state
	s.TTL = dnsTTL
	for i := range s.Regions {
		r := &s.Regions[i]
		nodes := 0
		for _, p := range r.Pops {
			nodes += len(p.Addresses)
			for _, c := range p.Clients {
				if r.Subnet == "" && !strings.Contains(c, ":") {
					r.Subnet = c
				}
			}
		}
		if r.Subnet == "" {
			return fmt.Errorf("region %s has no PoP with client networks in the topology, so the DNS router cannot know its clients", r.Name)
		}
		if s.Nodes != 0 && s.Nodes != nodes {
			return errors.New("the scenarios need regions with the same number of edges")
		}
		s.Nodes = nodes
		parts := strings.SplitN(r.Pops[0].Addresses[0], ".", 3)
		s.DNS = net.JoinHostPort(parts[0]+"."+parts[1]+".0.53", dnsPort)
	}
	if len(s.Regions) < 2 {
		return errors.New("the scenarios need two regions at least")
	}
	return nil
}

func (l *lab) json() string {
	text, err := json.Marshal(l.state)
	if err != nil {
		panic(err) // plain fields
	}
	return string(text)
}

// script runs one of the lab's.
func (l *lab) script(ctx context.Context, name string, args ...string) error {
	_, err := l.command(ctx, filepath.Join(l.root, "terraform", "lab", "scripts", name), args...)
	return err
}

func (l *lab) regionctl(ctx context.Context, args ...string) ([]byte, error) {
	return l.command(ctx, filepath.Join(l.root, "bin", "regionctl"), append([]string{"--fleet", filepath.Join(l.dir, "fleet.yaml")}, args...)...)
}

func (l *lab) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Env = append(os.Environ(), "LAB="+l.dir, "LAB_BIN="+filepath.Join(l.root, "bin"), "WEIR_USER=loadtest", "NO_COLOR=1")
	if os.Getenv("TERRAFORM") == "" {
		if _, err := exec.LookPath("terraform"); err != nil {
			cmd.Env = append(cmd.Env, "TERRAFORM="+filepath.Join(l.root, ".bin", "tofu"))
		}
	}
	cmd.WaitDelay = 5 * time.Second // what the lab starts may keep our pipes
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, tail(out.String()+log.String(), 1500))
	}
	return out.Bytes(), nil
}

// show returns a document that is in force, byte by byte.
func (l *lab) show(ctx context.Context, kind, region string) ([]byte, error) {
	if kind == "rules" {
		return l.regionctl(ctx, kind, "show", "--region", region)
	}
	// As text it says first where it is in force.
	text, err := l.regionctl(ctx, kind, "show", "--region", region, "-o", "json")
	if err != nil {
		return nil, err
	}
	var shown []struct {
		Document string `json:"document"`
	}
	if err := json.Unmarshal(text, &shown); err != nil || len(shown) != 1 {
		return nil, fmt.Errorf("regionctl %s show: %.300s", kind, text)
	}
	return []byte(shown[0].Document), nil
}

func (l *lab) apply(ctx context.Context, file string, more ...string) error {
	_, err := l.regionctl(ctx, append([]string{"rules", "apply", file, "--yes", "--wait", "60s", "-m", "make loadtest"}, more...)...)
	return err
}

// restore puts the rules and settings in force that were.
func (l *lab) restore(ctx context.Context) error {
	return errors.Join(l.restoreKind(ctx, "rules"), l.restoreKind(ctx, "shedder"))
}

func (l *lab) restoreKind(ctx context.Context, kind string) error {
	verb := map[string]string{"rules": "apply", "shedder": "set"}[kind]
	var errs []error
	for name, text := range l.saved[kind] {
		now, err := l.show(ctx, kind, name)
		if err == nil && bytes.Equal(now, text) {
			continue
		}
		file := filepath.Join(l.dir, "loadtest-"+kind+".yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		_, err = l.regionctl(ctx, kind, verb, file, "--region", name, "--yes", "--wait", "60s", "-m", "as before make loadtest")
		errs = append(errs, err, os.Remove(file))
	}
	return errors.Join(errs...)
}

var fallback = regexp.MustCompile(`(?m)^weir_decisions_total\{.*source="fallback".*\} ([0-9.e+]+)$`)

// fallbacks counts the decisions of each edge that were made without the store.
func (l *lab) fallbacks(ctx context.Context) map[[2]string]float64 {
	counts := map[[2]string]float64{}
	client := http.Client{Timeout: 2 * time.Second}
	for _, r := range l.state.Regions {
		for _, p := range r.Pops {
			for _, a := range p.Addresses {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(a, "8081")+"/metrics", nil)
				if err != nil {
					continue
				}
				res, err := client.Do(req)
				if err != nil {
					continue // a dead one has none
				}
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				for _, m := range fallback.FindAllSubmatch(text, -1) {
					v, _ := strconv.ParseFloat(string(m[1]), 64)
					counts[[2]string{r.Name, a}] += v
				}
			}
		}
	}
	return counts
}

// difference sums by region; an edge that was started anew counted from zero.
func difference(before, after map[[2]string]float64) map[string]int {
	all := map[string]int{}
	for key, v := range after {
		if was := before[key]; was <= v {
			v -= was
		}
		all[key[0]] += int(v)
	}
	return all
}

// control does what a script asks for.
type control struct {
	l      *lab
	ctx    context.Context
	url    string
	server *http.Server

	mu      sync.Mutex
	named   []phase
	hurt    bool
	tight   bool
	swapped bool
}

// phase is a part of a scenario.
type phase struct {
	Name string    `json:"name"`
	From time.Time `json:"from"`
}

func (l *lab) control(ctx context.Context) (*control, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &control{l: l, ctx: ctx, url: "http://" + ln.Addr().String()}
	c.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.act(strings.TrimPrefix(r.URL.Path, "/")); err != nil {
			fmt.Println("  ", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	go func() { _ = c.server.Serve(ln) }()
	return c, nil
}

func (c *control) close() { _ = c.server.Close() }

func (c *control) phases() []phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named
}

func (c *control) act(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ctx := c.l, c.ctx
	verb, rest, _ := strings.Cut(what, "/")
	switch verb {
	case "phase":
		c.named = append(c.named, phase{rest, time.Now()})
		fmt.Printf("   %s\n", rest)
		return nil
	case "kill":
		c.hurt = true
		return l.script(ctx, "signal.sh", "KILL", rest)
	case "kill-master":
		name, err := l.master(ctx, rest)
		if err != nil {
			return err
		}
		c.hurt = true
		return l.script(ctx, "signal.sh", "KILL", name)
	case "heal":
		err := l.script(ctx, "up.sh", l.vars...)
		c.hurt = err != nil
		return err
	case "rules", "rules-halved":
		c.swapped = verb == "rules-halved"
		file := filepath.Join(l.root, "loadtest", "rules.json")
		if c.swapped {
			var err error
			if file, err = l.halved(); err != nil {
				return err
			}
		}
		return l.apply(ctx, file)
	case "shedder-tight":
		c.tight = true
		args := []string{"shedder", "set", "--yes", "--wait", "60s", "-m", "make loadtest", "patience=1s", "signals.inflight.low=0", "signals.inflight.high=5", "signals.upstream_wait=off"}
		_, err := l.regionctl(ctx, args...)
		return err
	case "shedder-back":
		err := l.restoreKind(ctx, "shedder")
		c.tight = err != nil
		return err
	}
	return fmt.Errorf("unknown: %s", what)
}

// calm undoes what a script that failed left.
func (c *control) calm() error {
	c.mu.Lock()
	hurt, tight, swapped := c.hurt, c.tight, c.swapped
	c.mu.Unlock()
	var errs []error
	if hurt {
		errs = append(errs, c.act("heal"))
	}
	if tight {
		errs = append(errs, c.act("shedder-back"))
	}
	if swapped {
		errs = append(errs, c.act("rules"))
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

// master names a process of a region that is a Redis master now.
func (l *lab) master(ctx context.Context, region string) (string, error) {
	dirs, err := filepath.Glob(filepath.Join(l.dir, region, "redis-*"))
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		conf, err := os.ReadFile(filepath.Join(dir, "redis.conf"))
		if err != nil {
			return "", err
		}
		address, _, _ := strings.Cut(strings.TrimPrefix(string(conf), "bind "), "\n")
		role, err := l.command(ctx, "redis-cli", "-h", strings.TrimSpace(address), "role")
		if err == nil && strings.HasPrefix(string(role), "master") {
			return region + "/" + filepath.Base(dir), nil
		}
	}
	return "", fmt.Errorf("no Redis of %s is a master", region)
}
