package redirect

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is a connection whose unread answers another goroutine can read.
type link struct {
	net.Conn
	read []byte // since the last write
	kept atomic.Bool
}

// unread is the error of a link on which no answer came in time.
type unread struct {
	error
	link *link
}

// Unwrap returns the connection's error.
func (u *unread) Unwrap() error { return u.error }

// Dialer opens connections on which Lead can leave before the answer. Other dialers' are closed
// then.
func Dialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := redis.NewDialer(o)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l := &link{Conn: conn}
		if raw, ok := conn.(syscall.Conn); ok { // go-redis checks whether the server has closed it
			return struct {
				*link
				syscall.Conn
			}{l, raw}, nil
		}
		return l, nil
	}
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.read = append(l.read, p[:n]...)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = &unread{err, l}
	}
	return n, err
}

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) {
	l.read = l.read[:0]
	return l.Conn.Write(p)
}

// Close implements net.Conn.
func (l *link) Close() error {
	if l.kept.Load() {
		return nil
	}
	return l.Conn.Close()
}

// answer reads the answers to commands, until the given time, and closes the link. It returns why
// there are none.
func (l *link) answer(cmds []redis.Cmder, by time.Time) (broken error) {
	defer func() { _ = l.Conn.Close() }()
	broken = l.SetReadDeadline(by)
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(l.read), l.Conn))
	for _, cmd := range cmds {
		if broken != nil {
			cmd.SetErr(broken)
			continue
		}
		numbers, err := readNumbers(r)
		cmd.(leading).numbers().SetVal(numbers)
		cmd.SetErr(err)
		if _, reply := err.(Reply); !reply {
			broken = err
		}
	}
	return broken
}

// readNumbers reads a script's reply.
func readNumbers(r *bufio.Reader) ([]int64, error) {
	n, err := readNumber(r, '*')
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for range n {
		number, err := readNumber(r, ':')
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

func readNumber(r *bufio.Reader, kind byte) (int64, error) {
	line, err := r.ReadString('\n')
	switch {
	case err != nil:
		return 0, err
	case line[0] == '-':
		return 0, Reply(strings.TrimSpace(line[1:]))
	case line[0] != kind:
		return 0, fmt.Errorf("the script returned %q instead of numbers", line)
	}
	return strconv.ParseInt(strings.TrimSpace(line[1:]), 10, 64)
}
