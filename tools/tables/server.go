package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// server is a redis-server of this run.
type server struct {
	addr   string
	client *redis.Client
	cmd    *exec.Cmd
	ended  chan struct{}
	dir    string
	mode   redisstore.Mode
}

// startRedis starts one server, or a cluster of one to show the cost of counting separately by
// slot.
func startRedis(ctx context.Context, mode redisstore.Mode) (*server, error) {
	port := freePort()
	addr := net.JoinHostPort("127.0.0.1", port)
	dir, err := os.MkdirTemp("", "weir-tables")
	if err != nil {
		return nil, err
	}
	s := &server{addr: addr, dir: dir, mode: mode, ended: make(chan struct{}), client: redis.NewClient(&redis.Options{Addr: addr})}
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", dir, "--logfile", filepath.Join(dir, "log"))
	if mode == redisstore.Cluster {
		s.cmd.Args = append(s.cmd.Args, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port", freePort())
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// The signal arrives when the thread that started the process ends. The caller's must
		// stay free: a bubble of virtual time in it would wake that one thread at every instant.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.ended)
		err := s.cmd.Start()
		if started <- err; err == nil {
			_ = s.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w (make deps installs it)", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = s.ready(ctx); err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, err
		}
	}
}

// ready gives a cluster its slots, and reports why it does not answer yet.
func (s *server) ready(ctx context.Context) error {
	if s.mode == redisstore.Single {
		return s.client.Ping(ctx).Err()
	}
	info, err := s.client.ClusterInfo(ctx).Result()
	if err != nil || strings.Contains(info, "cluster_state:ok") {
		return err
	}
	if strings.Contains(info, "cluster_slots_assigned:0") {
		return errors.Join(s.client.ClusterAddSlotsRange(ctx, 0, 16383).Err(), errors.New("slots were just given"))
	}
	return errors.New("the cluster is not whole")
}

func freePort() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // without loopback nothing can be measured
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

func (s *server) stop() {
	_ = s.client.Close()
	_ = s.cmd.Process.Kill()
	<-s.ended
	_ = os.RemoveAll(s.dir)
}

type stats struct{ calls, usec, cpu float64 }

var (
	scripts = regexp.MustCompile(`(?m)^cmdstat_(?:evalsha|eval|fcall):calls=(\d+),usec=(\d+)`)
	cpus    = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([\d.]+)`)
)

func (s *server) stats(ctx context.Context) (st stats, err error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return st, err
	}
	for _, m := range scripts.FindAllStringSubmatch(text, -1) {
		st.calls += number(m[1])
		st.usec += number(m[2])
	}
	if text, err = s.client.Info(ctx, "cpu").Result(); err != nil {
		return st, err
	}
	for _, m := range cpus.FindAllStringSubmatch(text, -1) {
		st.cpu += number(m[1])
	}
	return st, nil
}

func number(s string) float64 {
	v, _ := strconv.ParseFloat(s, 64) // digits, by the expression
	return v
}
