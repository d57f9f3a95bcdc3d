package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at answers all networks with these addresses.
func at(addresses ...netip.Addr) *resolver {
	return &resolver{ask: func(context.Context, netip.Prefix) ([]netip.Addr, time.Duration, error) {
		return addresses, time.Second, nil
	}}
}

// serve starts an edge, and returns its address and port.
func serve(t *testing.T, handle http.HandlerFunc) (netip.Addr, string) {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	to := netip.MustParseAddrPort(server.Listener.Addr().String())
	_, port, _ := net.SplitHostPort(to.String())
	return to.Addr(), port
}

func TestVisitors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	var asked, tooOften, guesses, everywhere atomic.Int64
	edge, port := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		switch client := r.Header.Get("X-Forwarded-For"); {
		case client == "203.0.113.66":
			tooOften.Add(1)
		case client == "192.0.2.210":
			everywhere.Add(1)
		case r.Method == http.MethodPost && r.URL.Path == "/login":
			guesses.Add(1)
		}
		if asked.Add(1) >= 200 {
			cancel()
		}
	})
	require.NoError(t, visit(ctx, at(edge), port, mostRate, rand.IntN))
	require.GreaterOrEqual(t, asked.Load(), int64(200))
	require.Positive(t, tooOften.Load())
	require.Positive(t, guesses.Load())
	require.Positive(t, everywhere.Load())
	silent := &resolver{ask: func(context.Context, netip.Prefix) ([]netip.Addr, time.Duration, error) {
		return nil, 0, errors.New("none")
	}}
	require.ErrorContains(t, visit(t.Context(), silent, port, 1, rand.IntN), "none")
}

// Edges that do not answer are asked by a bounded number of requests.
func TestVisitorsAreBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	let := make(chan struct{})
	var inside atomic.Int64 // none leaves before the end
	edge, port := serve(t, func(http.ResponseWriter, *http.Request) {
		if inside.Add(1) >= mostAtOnce {
			cancel()
		}
		<-let
	})
	go func() { <-ctx.Done(); close(let) }()
	require.NoError(t, visit(ctx, at(edge), port, mostRate, rand.IntN))
	require.EqualValues(t, mostAtOnce, inside.Load())
}

// When DNS sends a network elsewhere, as after a drain, its clients follow within a TTL. While DNS
// does not answer they stay where they are.
func TestVisitorsFollowDNS(t *testing.T) {
	var drained, silent bool
	var network netip.Prefix
	r := &resolver{ask: func(_ context.Context, n netip.Prefix) ([]netip.Addr, time.Duration, error) {
		network = n
		switch {
		case silent:
			return nil, 0, errors.New("no answer")
		case drained:
			return []netip.Addr{netip.MustParseAddr("127.1.2.21")}, 0, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.1.2.11")}, 0, nil
	}}
	goes := func(want string) {
		t.Helper()
		list, err := r.addresses(t.Context(), networks[1])
		require.NoError(t, err)
		require.Equal(t, want, list[0].String())
		require.Equal(t, networks[1], network)
	}
	goes("127.1.2.11")
	drained = true
	goes("127.1.2.21")
	silent, drained = true, false
	goes("127.1.2.21")
	clear(r.known)
	_, err := r.addresses(t.Context(), networks[1])
	require.Error(t, err)
}

func TestResolve(t *testing.T) {
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	answers := make(chan func(*dnsmessage.Message), 1)
	asked := make(chan dnsmessage.Message, 1)
	go func() {
		for answer := range answers {
			buf := make([]byte, 512)
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			_ = m.Unpack(buf[:n])
			asked <- m
			m.Response, m.Additionals = true, nil
			answer(&m)
			packed, _ := m.Pack()
			_, _ = server.WriteTo(packed, from)
		}
	}()
	defer close(answers)
	answers <- func(m *dnsmessage.Message) {
		for _, host := range []byte{11, 12} {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 2}, Body: &dnsmessage.AResource{A: [4]byte{127, 1, 2, host}},
			})
		}
	}
	list, ttl, err := resolve(t.Context(), server.LocalAddr().String(), "edge.lab.test", networks[1])
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("127.1.2.11"), netip.MustParseAddr("127.1.2.12")}, list)
	require.Equal(t, 2*time.Second, ttl)
	m := <-asked
	require.Equal(t, "edge.lab.test.", m.Questions[0].Name.String())
	require.Equal(t, []dnsmessage.Option{{Code: 8, Data: []byte{0, 1, 24, 0, 203, 0, 113}}}, m.Additionals[0].Body.(*dnsmessage.OPTResource).Options)
	answers <- func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure }
	_, _, err = resolve(t.Context(), server.LocalAddr().String(), "edge.lab.test", networks[1])
	require.ErrorContains(t, err, "it names no address (RCodeServerFailure)")
	<-asked
}
