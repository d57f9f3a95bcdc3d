package httpconns

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// far is one end of a connection from an address.
type far struct {
	net.Conn
	from string
}

// RemoteAddr implements net.Conn.
func (f far) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.from)) }

// door is a server and the listener that connects to it, within a bubble of synctest.
type door struct {
	t     *testing.T
	conns chan net.Conn
	ended chan error
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	if c, open := <-d.conns; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (d *door) Close() error { return nil }

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return &net.TCPAddr{} }

func open(t *testing.T, h http.HandlerFunc) *door {
	d := &door{t, make(chan net.Conn), make(chan error, 1)}
	go func() { d.ended <- New(h).Serve(d) }()
	t.Cleanup(func() { close(d.conns); require.ErrorIs(t, <-d.ended, net.ErrClosed) })
	return d
}

// connect returns a connection from an address that has sent text.
func (d *door) connect(from, text string) net.Conn {
	near, end := net.Pipe()
	d.conns <- far{end, from + ":1"}
	d.t.Cleanup(func() { near.Close() })
	_, _ = io.WriteString(near, text) // it may be closed
	synctest.Wait()
	return near
}

// says returns the status that comes, 0 if the connection is closed, and -1 if it waits.
func says(c net.Conn) int {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	switch e, ok := err.(net.Error); {
	case err == nil:
		return resp.StatusCode
	case ok && e.Timeout():
		return -1
	}
	return 0
}

const halfHeader = "GET / HTTP/1.1\r\nHost: a"

func request(path, more string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + more + "\r\n"
}

// application reads bodies, knows operators by a header, and answers /slow when done.
func application(done <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Operator") != "" || r.URL.Path == "/open" {
			Known(r, r.Header.Get("Operator") != "")
		}
		_, err := io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" || r.URL.Path == "/open" {
			select {
			case <-done:
			case <-r.Context().Done():
				err = r.Context().Err()
			}
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}
}

// Unfinished requests make room for new connections, those of the address with most first. They
// take the place of neither operators nor probes.
func TestWhoGoesFirst(t *testing.T) {
	halfBody := request("/", "Content-Length: 9\r\n") + "x"
	for name, begin := range map[string]string{"silent": "", "header": halfHeader, "body": halfBody, "body of a probe": request("/healthz", "Content-Length: 9\r\n"), "body without need of credentials": request("/open", "Content-Length: 9\r\n")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				d := open(t, application(done))
				first := d.connect("192.0.2.1", begin)
				at, complete := d.connect("192.0.2.9", request("/slow", "Operator: ana\r\n")), d.connect("192.0.2.9", request("/open", ""))
				upload := d.connect("192.0.2.9", request("/", "Operator: ana\r\nContent-Length: 9\r\n"))
				var crowd []net.Conn
				for i := range Max - 1 {
					crowd = append(crowd, d.connect(fmt.Sprintf("[2001:db8::%x]", i), begin))
				}
				require.Equal(t, 200, says(d.connect("192.0.2.2", request("/", ""))))
				require.Zero(t, says(crowd[0]), "the oldest of the crowd")
				require.Equal(t, -1, says(crowd[1]))
				require.Equal(t, -1, says(first), "which is older still")
				for i := range 3 * Max { // from the crowd's own address, and all stay open
					crowd = append(crowd, d.connect("[2001:db8::ffff]", begin))
					if i%Max == 0 {
						require.Equal(t, 200, says(d.connect("[2001:db8::ffff]", request("/readyz", ""))))
						require.Equal(t, 200, says(d.connect("[2001:db8::ffff]", request("/", "Operator: bob\r\n"))))
					}
				}
				require.Equal(t, -1, says(first))
				_, err := io.WriteString(upload, "123456789")
				require.NoError(t, err)
				close(done)
				for _, c := range []net.Conn{at, complete, upload} {
					require.Equal(t, 200, says(c))
				}
			})
		})
	}
}

// Operators make room for operators.
func TestOperatorsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		d := open(t, application(done))
		ana := d.connect("192.0.2.1", request("/slow", "Operator: ana\r\n"))
		var loop []net.Conn
		for range Max {
			loop = append(loop, d.connect("192.0.2.9", request("/slow", "Operator: bot\r\n")))
		}
		require.Equal(t, 200, says(d.connect("192.0.2.2", request("/", "Operator: bob\r\n"))))
		require.Zero(t, says(loop[1]))
		close(done)
		require.Equal(t, 200, says(ana))
		require.Equal(t, 200, says(loop[Max-1]))
	})
}

// Deadlines end requests that drip in, and not answers that take long.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		d := open(t, application(done))
		for text, within := range map[string]time.Duration{
			"": headerWithin, halfHeader: headerWithin, request("/", "Content-Length: 999\r\n"): requestWithin, request("/healthz", "Operator: ana\r\nContent-Length: 999\r\n"): requestWithin, request("/", ""): idleWithin,
		} {
			c, began := d.connect("192.0.2.1", text), time.Now()
			drips := make(chan struct{})
			go func() {
				defer close(drips)
				for range 999 {
					if text == "" || text == request("/", "") {
						return
					}
					if _, err := io.WriteString(c, "x"); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			_, _ = io.Copy(io.Discard, c)
			<-drips
			require.InDelta(t, within.Seconds(), time.Since(began).Seconds(), 1, "%q", text)
		}
		feed := d.connect("192.0.2.1", request("/slow", ""))
		after := d.connect("192.0.2.1", request("/slow", "Content-Length: 1\r\n")+"x")
		time.Sleep(time.Hour)
		close(done)
		require.Equal(t, 200, says(feed))
		require.Equal(t, 200, says(after), "its body has arrived")
	})
}

// Connections that end leave nothing.
func TestNothingStays(t *testing.T) {
	b := &bound{open: map[net.Conn]held{}, from: map[holder]int{}}
	var conns []net.Conn
	for i := range 2 * Max {
		_, end := net.Pipe()
		c := far{end, fmt.Sprintf("192.0.2.%d:1", i%7)}
		b.changed(c, http.StateNew)
		b.changed(c, http.StateActive)
		b.move(c, group(i%int(groups)), false)
		if i%5 == 0 {
			b.changed(c, http.StateIdle)
		}
		conns = append(conns, c)
	}
	require.Equal(t, Most, Max+Max+maxProbes)
	require.Equal(t, len(b.open), b.held[unauthenticated]+b.held[operators]+b.held[probes])
	for i, n := range b.held {
		require.LessOrEqual(t, n, most[i])
	}
	for _, c := range conns {
		b.changed(c, http.StateClosed)
		b.changed(c, http.StateIdle)
	}
	require.Empty(t, b.open)
	require.Empty(t, b.from)
	require.Equal(t, [groups]int{}, b.held)
}
