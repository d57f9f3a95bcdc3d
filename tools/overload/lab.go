package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lab is a folder and the processes started in it.
type lab struct {
	dir     string
	started []*process
}

// process is a server that runs until it is stopped.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

func newLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "weir-overload-")
	return &lab{dir: dir}, err
}

// start runs a server and waits until it accepts connections at addr.
func (l *lab) start(addr, program string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(program), exited: make(chan struct{})}
	p.log = filepath.Join(l.dir, fmt.Sprintf("%s-%d.log", p.name, len(l.started)))
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; make overload builds and installs what is needed", err)
	}
	l.started = append(l.started, p)
	go func() {
		_ = p.cmd.Wait() // its log says how it ended
		close(p.exited)
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return p, c.Close()
		}
		if err := p.alive(); err != nil {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s does not listen on %s: %s", p.name, addr, p.lastWords())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// alive returns why the process ended, if it did.
func (p *process) alive() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended: %s", p.name, p.lastWords())
	default:
		return nil
	}
}

func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// stop ends a process and waits for its exit, so that it does not slow down the next one.
func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
}

// stop ends all processes.
func (l *lab) stop() {
	for _, p := range slices.Backward(l.started) {
		p.stop()
	}
	l.started = nil
}

func (l *lab) close() error {
	l.stop()
	return os.RemoveAll(l.dir)
}

func (l *lab) write(name, text string) (string, error) {
	file := filepath.Join(l.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// self runs a part of this program.
func (l *lab) self(role string, more ...string) (string, *process, error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return "", nil, err
	}
	p, err := l.start(addr, program, append([]string{"-role", role, "-listen", addr}, more...)...)
	return addr, p, err
}

func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", errors.Join(errors.New("no port of 127.0.0.1 is free"), err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
