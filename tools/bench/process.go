package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// start runs a server and waits until it accepts connections.
func (b *bench) start(addr, name string, args ...string) error {
	log := filepath.Join(b.dir, fmt.Sprintf("%s-%d.log", filepath.Base(name), len(b.started)))
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w (make bench installs what is needed)", err)
	}
	b.started = append(b.started, cmd)
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log)
			return fmt.Errorf("%s does not listen on %s: %s", name, addr, text)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *bench) stopAll() {
	for _, cmd := range b.started {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nginx has children
		_ = cmd.Wait()
	}
	b.started = nil
	for _, c := range b.held {
		_ = c.Close()
	}
	b.held = nil
}

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // without loopback nothing can be measured
	}
	defer l.Close()
	return l.Addr().String()
}

func (b *bench) write(name, text string) string {
	file := filepath.Join(b.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err) // this program created the directory
	}
	return file
}

var (
	wrkRate = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
	wrkP99  = regexp.MustCompile(`99%\s+([\d.]+)(us|ms|s)`)
)

const connections = 64

// wrk loads addr for the duration with 64 connections.
func (b *bench) wrk(ctx context.Context, addr string, more ...string) (paired.Sample, error) {
	args := append([]string{"-t2", "-c", strconv.Itoa(connections), "-d", fmt.Sprintf("%ds", max(1, int(b.duration.Seconds()))), "--latency"}, more...)
	profiled := make(chan error, 1)
	go func() { profiled <- b.profile(addr) }()
	out, err := exec.CommandContext(ctx, "wrk", append(args, "http://"+addr+"/hello")...).CombinedOutput()
	if err != nil {
		return paired.Sample{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	if err := <-profiled; err != nil {
		return paired.Sample{}, err
	}
	rate, p99 := wrkRate.FindSubmatch(out), wrkP99.FindSubmatch(out)
	if rate == nil || p99 == nil {
		return paired.Sample{}, fmt.Errorf("wrk printed no rate: %s", out)
	}
	r, _ := strconv.ParseFloat(string(rate[1]), 64)
	d, err := time.ParseDuration(string(p99[1]) + string(p99[2]))
	return paired.Sample{Rate: r, P99: d}, err
}

var scriptCalls = regexp.MustCompile(`(?m)^cmdstat_evalsha:calls=(\d+)`)

// counted also counts the script calls that a Redis receives meanwhile.
func (b *bench) counted(addr string, measure func(context.Context, int) (paired.Sample, error)) func(context.Context, int) (paired.Sample, error) {
	calls := func(ctx context.Context) (float64, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		text, err := client.Info(ctx, "commandstats").Result()
		m := scriptCalls.FindStringSubmatch(text)
		if err != nil || m == nil {
			return 0, err
		}
		return strconv.ParseFloat(m[1], 64)
	}
	return func(ctx context.Context, round int) (paired.Sample, error) {
		before, err := calls(ctx)
		if err != nil {
			return paired.Sample{}, err
		}
		began := time.Now()
		s, err := measure(ctx, round)
		if err != nil {
			return s, err
		}
		took := time.Since(began)
		after, err := calls(ctx)
		// The load is slightly shorter than its process, so this may count too many calls, never too few.
		s.Calls = (after - before) / (s.Rate * min(took, b.duration).Seconds())
		return s, err
	}
}
