package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

// The lab's router and the TTL of its answers: terraform/lab/main.tf.
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

// documents are those that scenarios change, and that the run restores.
var documents = []string{"rules", "shedder", "policy"}

// lab is the lab under load.
type lab struct {
	root, dir string
	vars      []string // LAB_VARS of make lab
	state     state
	saved     map[string]map[string][]byte // kind, region
	active    string                       // the document in loadtest/
}

// openLab finds or starts the lab, repairs it, saves its documents, and applies
// those of the scenarios. leave undoes all of that; so does openLab if it fails.
func openLab(ctx context.Context, root, dir, vars string) (*lab, func() error, error) {
	l := &lab{root: root, dir: dir, saved: map[string]map[string][]byte{}}
	if vars != "" {
		l.vars = []string{vars}
	}
	_, missing := os.Stat(filepath.Join(dir, "fleet.yaml"))
	leave := func() error {
		ctx, cancel := patient(ctx)
		defer cancel()
		if missing != nil { // a lab that will be removed needs no rules
			return l.script(ctx, "down.sh")
		}
		return l.restore(ctx)
	}
	if err := l.prepare(ctx, missing != nil); err != nil {
		return nil, nil, errors.Join(err, leave())
	}
	return l, leave, nil
}

// patient is the context for restoring a lab: an interrupt does not end it, but a hang
// does.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
}

func (l *lab) prepare(ctx context.Context, missing bool) error {
	dead := !missing && l.script(ctx, "status.sh") != nil
	switch {
	case missing:
		fmt.Println("starting a lab for this run")
	case dead:
		fmt.Println("restarting what has died in the lab")
	}
	if missing || dead {
		if err := l.script(ctx, "up.sh", l.vars...); err != nil {
			return err
		}
	}
	if err := l.load(); err != nil {
		return err
	}
	for _, kind := range documents {
		l.saved[kind] = map[string][]byte{}
		for _, r := range l.state.Regions {
			text, err := l.show(ctx, kind, r.Name)
			if err != nil {
				return err
			}
			l.saved[kind][r.Name] = text
		}
	}
	return l.use(ctx, "rules.json")
}

// use applies a document of loadtest/, unless it is active.
func (l *lab) use(ctx context.Context, document string) error {
	if l.active == document {
		return nil
	}
	err := l.apply(ctx, filepath.Join(l.root, "loadtest", document))
	if err == nil {
		l.active = document
	}
	return err
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
	apart(cmd)
	cmd.WaitDelay = 5 * time.Second // processes of the lab may keep our pipes
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, tail(out.String()+log.String(), 1500))
	}
	return out.Bytes(), nil
}

// apart gives a command its own process group: Ctrl-C in a terminal reaches all of
// ours, and would interrupt the restoring of the lab. Only its context ends it.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// show returns an active document, byte by byte.
func (l *lab) show(ctx context.Context, kind, region string) ([]byte, error) {
	if kind != "shedder" {
		return l.regionctl(ctx, kind, "show", "--region", region)
	}
	// The text form begins with where it is active.
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

// restore applies the previous documents.
func (l *lab) restore(ctx context.Context) error {
	var errs []error
	for _, kind := range documents {
		errs = append(errs, l.restoreKind(ctx, kind))
	}
	return errors.Join(errs...)
}

func (l *lab) restoreKind(ctx context.Context, kind string) error {
	verb := "apply"
	if kind == "shedder" {
		verb = "set"
	}
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
