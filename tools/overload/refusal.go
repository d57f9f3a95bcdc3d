package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
	"github.com/weir-edge/weir/tools/internal/overload"
	"github.com/weir-edge/weir/tools/internal/paired"
)

// processes is how many processes of weir and of the server that it is compared with take
// turns: processes of one program differ by a percent or two.
const processes = 5

// cost is what a program spent on requests.
type cost struct {
	name    string
	servers []server
	cpu     []float64 // ns of user and system time a request, by round
	rates   []float64 // requests per second, by round
	// requests and allocs are sums; only weir's allocations are counted.
	requests, allocs float64
}

// server is one process of a program.
type server struct {
	addr    string
	process *process
	node    *node // nil: not weir
}

// refusal measures the cost of refusing for weir and for bare fasthttp, in turn, with
// 64 connections that send as fast as they get answers. The ratios are to the server
// that sends the same bytes.
func (o *options) refusal(ctx context.Context) (r *overload.Refusal, err error) {
	l, err := newLab()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	bare, same, weir := &cost{name: "bare fasthttp 503, a short message"}, &cost{name: "bare fasthttp 503, weir's message"}, &cost{name: "weir"}
	if err := bare.add(l, "refuse"); err != nil {
		return nil, err
	}
	for range processes {
		if err := same.add(l, "refuse-same"); err != nil {
			return nil, err
		}
		n, err := o.full(ctx, l)
		if err != nil {
			return nil, err
		}
		weir.servers = append(weir.servers, server{n.public, n.process, n})
	}

	const least, most, each = 15, 60, 2 * time.Second
	for i := 0; i < least || i < most && (i%processes > 0 || !settled(weir, same)); i++ {
		order := []*cost{same, weir}
		if i%5 == 0 { // for orientation
			order = append(order, bare)
		}
		if i%2 == 1 { // alternate the order, so that drift favors neither
			slices.Reverse(order)
		}
		for _, c := range order {
			if err := c.measure(ctx, i, each); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	fmt.Printf("\nRefusing, 64 connections\n  %-44s %12s %8s %16s %8s\n", "", "a second", "ratio", "CPU a request, ns", "ratio")
	for _, c := range []*cost{same, bare, weir} {
		fmt.Printf("  %-44s %12.0f %8.2f %16.0f %8.2f\n", c.name, median(c.rates), median(c.rates)/median(same.rates), median(c.cpu), median(c.cpu)/median(same.cpu))
	}
	rate, fault := paired.Compare(weir.rates, same.rates)
	cpu, _ := paired.Compare(weir.cpu, same.cpu)
	fmt.Printf("  weir: %.3f ± %.3f of the throughput, %.2f of the CPU time, %d rounds\n", rate, fault, cpu, len(weir.rates))
	return &overload.Refusal{CPU: cpu, Throughput: rate, Allocs: weir.allocs / weir.requests}, nil
}

// add starts a process of this program.
func (c *cost) add(l *lab, role string) error {
	addr, p, err := l.self(role)
	c.servers = append(c.servers, server{addr: addr, process: p})
	return err
}

// settled reports whether the rounds vary so little that more of them would not help.
func settled(a, b *cost) bool {
	ratio, fault := paired.Compare(a.rates, b.rates)
	return fault <= 0.005*ratio
}

// full starts a node that refuses everything: it may have one request in flight, and has it.
func (o *options) full(ctx context.Context, l *lab) (*node, error) {
	origin, _, err := l.self("origin")
	if err != nil {
		return nil, err
	}
	settings := overload.Settings(shedder.LawCap)
	for i := range settings.Classes {
		settings.Classes[i].MaxInFlight = 1
	}
	n, err := l.startNode(o.edge, origin, settings, false)
	if err != nil {
		return nil, err
	}
	go func() {
		resp, err := http.Get("http://" + n.public + "/hold") // until the node is stopped
		if err == nil {
			resp.Body.Close()
		}
	}()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s, err := n.sample(ctx)
		if err == nil && s.InFlight == 1 {
			return n, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no request is in flight: %+v, %w", s, err)
		}
	}
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkRefused  = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	wrkRate     = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
)

// measure loads the server whose turn it is, and records what its refusals cost.
func (c *cost) measure(ctx context.Context, round int, d time.Duration) error {
	s := c.servers[round%len(c.servers)]
	mallocs := func() (float64, error) {
		if s.node == nil {
			return 0, nil
		}
		return s.node.mallocs(ctx)
	}
	allocsBefore, err := mallocs()
	if err != nil {
		return err
	}
	before, err := cpuTime(s.process.cmd.Process.Pid)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "wrk", "-t2", "-c64", fmt.Sprintf("-d%d", int(d.Seconds())),
		"-H", "X-Api-Key: user-1", "http://"+s.addr+"/catalogue").CombinedOutput()
	if err != nil {
		return fmt.Errorf("wrk: %w: %s; make overload installs it", err, out)
	}
	after, err := cpuTime(s.process.cmd.Process.Pid)
	if err != nil {
		return err
	}
	allocsAfter, err := mallocs()
	if err != nil {
		return err
	}
	requests, refused, rate := number(wrkRequests, out), number(wrkRefused, out), number(wrkRate, out)
	if requests == 0 || requests != refused {
		return fmt.Errorf("%.0f of %.0f requests were refused; all had to be: %s", refused, requests, out)
	}
	c.requests += requests
	c.allocs += allocsAfter - allocsBefore
	c.cpu = append(c.cpu, float64(after-before)/requests)
	c.rates = append(c.rates, rate)
	return nil
}

func number(in *regexp.Regexp, text []byte) float64 {
	m := in.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	return n
}

// cpuTime returns the user and system time of a process, which Linux reports in
// hundredths of a second (proc(5), stat).
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), ") ") // the name may contain spaces
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
