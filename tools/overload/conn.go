package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weir-edge/weir/tools/internal/overload"
)

// conn is a connection kept open while answers arrive in time. It serves one attempt at a time.
type conn struct {
	addr string
	tcp  *net.TCPConn // nil: not connected
	in   *bufio.Reader
	out  []byte
}

var (
	shedHeader   = []byte("Weir-Shed-Reason:")
	lengthHeader = []byte("Content-Length:")
	closeHeader  = []byte("Connection: close")
	byLevel      = []byte("kind=level")
)

// ask sends one request and reads its answer, until the deadline.
func (c *conn) ask(class, user int, deadline time.Time) (outcome overload.Outcome, capped bool, err error) {
	if c.tcp == nil {
		if err := c.dial(deadline); err != nil {
			return overload.Failed, false, err
		}
	}
	outcome, capped, keep, err := c.exchange(class, user, deadline)
	if err != nil || !keep {
		c.close()
	}
	if err != nil {
		return overload.Failed, false, err
	}
	return outcome, capped, nil
}

func (c *conn) dial(deadline time.Time) error {
	dialer := net.Dialer{Deadline: deadline}
	tcp, err := dialer.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	c.tcp = tcp.(*net.TCPConn)
	if c.in == nil {
		c.in = bufio.NewReaderSize(nil, 2<<10)
	}
	c.in.Reset(c.tcp)
	return nil
}

// close resets the connection, so that thousands of abandoned ones do not use up the ports.
func (c *conn) close() {
	if c.tcp != nil {
		_ = c.tcp.SetLinger(0)
		_ = c.tcp.Close()
		c.tcp = nil
	}
}

func (c *conn) exchange(class, user int, deadline time.Time) (outcome overload.Outcome, capped, keep bool, err error) {
	if err := c.tcp.SetDeadline(deadline); err != nil {
		return 0, false, false, err
	}
	c.out = append(c.out[:0], classRequests[class]...)
	c.out = strconv.AppendInt(c.out, int64(user), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	if _, err := c.tcp.Write(c.out); err != nil {
		return 0, false, false, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, false, false, err
	}
	if len(line) < 12 {
		return 0, false, false, fmt.Errorf("no status line: %q", line)
	}
	ok := string(line[9:12]) == "200"
	shed, keep, length := false, true, -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, false, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		switch {
		case bytes.HasPrefix(line, lengthHeader):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthHeader):]))); err != nil {
				return 0, false, false, err
			}
		case bytes.HasPrefix(line, shedHeader):
			shed, capped = true, !bytes.Contains(line, byLevel)
		case bytes.EqualFold(line, closeHeader):
			keep = false
		}
	}
	if length < 0 {
		return 0, false, false, errors.New("an answer without Content-Length")
	}
	if _, err := c.in.Discard(length); err != nil {
		return 0, false, false, err
	}
	switch {
	case shed:
		return overload.Shed, capped, keep, nil
	case ok:
		return overload.Answered, false, keep, nil
	}
	return overload.Failed, false, keep, nil
}
