package edge

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// haproxy is the other end of a connection to listen.spoe, for what HAProxy itself would
// never send. internal/e2e has the real one.
type haproxy struct {
	t    *testing.T
	conn net.Conn
	next byte
}

// spoeNode answers HAProxys on this machine.
func spoeNode(t *testing.T, s setup) *node {
	t.Helper()
	change := s.config
	s.config = func(c *config.Config) {
		c.Listen.SPOE = &config.Decide{Address: fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0]), From: []string{"127.0.0.1"}}
		if change != nil {
			change(c)
		}
	}
	return start(t, s)
}

func (n *node) dialSPOE() *haproxy {
	n.t.Helper()
	conn, err := net.Dial("tcp", n.config.Listen.SPOE.Address)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(n.t, conn.SetDeadline(time.Now().Add(patience)))
	return &haproxy{t: n.t, conn: conn, next: 1}
}

// agreed is a connection that has agreed on frames of this many bytes.
func (n *node) agreed(size int) *haproxy {
	n.t.Helper()
	h := n.dialSPOE()
	h.send(spoeHello(size))
	kind, _ := h.read()
	require.EqualValues(n.t, 101, kind)
	return h
}

func spoeNumber(n int) string {
	if n < 240 {
		return string([]byte{byte(n)})
	}
	b := []byte{byte(n) | 0xf0}
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		b = append(b, byte(n)|0x80)
	}
	return string(append(b, byte(n)))
}

func spoeText(s string) string   { return spoeNumber(len(s)) + s }
func spoeString(s string) string { return "\x08" + spoeText(s) }
func spoeBinary(s string) string { return "\x09" + spoeText(s) }

func spoeHello(size int) string {
	return "\x01\x00\x00\x00\x01\x00\x00" + spoeText("supported-versions") + spoeString("2.0") + spoeText("max-frame-size") + "\x03" + spoeNumber(size) +
		spoeText("capabilities") + spoeString("pipelining,async")
}

// spoeHeaders has fields written "name: value".
func spoeHeaders(fields ...string) string {
	b := ""
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		b += spoeText(name) + spoeText(value)
	}
	return spoeBinary(b + "\x00\x00")
}

// spoeRequest is the four arguments; a change replaces one, or removes it if it is empty.
func spoeRequest(client, method, target, headers string, changes ...string) (args []string) {
	all := []string{"client", "\x06" + string(net.ParseIP(client).To4()), "method", spoeString(method), "target", spoeString(target), "headers", headers}
	for i := 0; i < len(changes); i += 2 {
		for j := 0; j < len(all); j += 2 {
			if all[j] == changes[i] {
				all[j+1] = changes[i+1]
			}
		}
	}
	for i := 0; i < len(all); i += 2 {
		if all[i+1] != "" {
			args = append(args, all[i], all[i+1])
		}
	}
	return args
}

func spoeNotify(id byte, args []string) string {
	b := "\x03\x00\x00\x00\x01" + string([]byte{id, 1}) + spoeText("decide") + string([]byte{byte(len(args) / 2)})
	for i := 0; i < len(args); i += 2 {
		b += spoeText(args[i]) + args[i+1]
	}
	return b
}

func (h *haproxy) send(frame string) {
	h.t.Helper()
	_, err := h.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	require.NoError(h.t, err)
}

// read returns the next frame's kind, and what follows its flags.
func (h *haproxy) read() (kind byte, rest []byte) {
	h.t.Helper()
	var head [4]byte
	_, err := io.ReadFull(h.conn, head[:])
	require.NoError(h.t, err)
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err = io.ReadFull(h.conn, frame)
	require.NoError(h.t, err)
	require.Equal(h.t, []byte{0, 0, 0, 1}, frame[1:5])
	return frame[0], frame[5:]
}

// ask returns the variables that the node sets.
func (h *haproxy) ask(args []string) map[string]string {
	h.t.Helper()
	id := h.next
	h.next++
	h.send(spoeNotify(id, args))
	kind, rest := h.read()
	require.EqualValues(h.t, 103, kind)
	require.Equal(h.t, []byte{id, 1}, rest[:2])
	return h.variables(rest[2:])
}

func (h *haproxy) variables(b []byte) map[string]string {
	vars := map[string]string{}
	number := func() (n int) {
		n, b = int(b[0]), b[1:]
		for shift := 4; n >= 240 && shift < 60; shift += 7 {
			c := b[0]
			n, b = n+int(c)<<shift, b[1:]
			if c < 128 {
				break
			}
		}
		return n
	}
	text := func() (s string) {
		n := number()
		s, b = string(b[:n]), b[n:]
		return s
	}
	for len(b) > 0 {
		require.Equal(h.t, []byte{1, 3, 2}, b[:3], "set-var, three arguments, txn")
		b = b[3:]
		name := text()
		tag := b[0]
		b = b[1:]
		switch tag & 15 {
		case 1:
			vars[name] = fmt.Sprint(tag&16 != 0)
		case 3:
			vars[name] = fmt.Sprint(number())
		case 8:
			vars[name] = text()
		default:
			require.Fail(h.t, "a value of another type", "%s: %d", name, tag)
		}
	}
	return vars
}

// ends requires that the node closes the connection, and returns the status that it states.
func (h *haproxy) ends() (status int) {
	h.t.Helper()
	b, err := io.ReadAll(h.conn)
	var timeout net.Error
	require.False(h.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays open")
	const code = "\x0bstatus-code\x03"
	if at := strings.Index(string(b), code); at >= 0 {
		return int(b[at+len(code)])
	}
	return -1
}

func TestSPOE(t *testing.T) {
	n := spoeNode(t, setup{rules: gatewayRules, config: func(c *config.Config) { c.LegacyHeaders = true }})
	h := n.agreed(16380)
	shop := spoeHeaders("host: shop.example.com", "x-api-key: one", "cookie: a=1; b=2")
	for left := 2; left >= 0; left-- {
		vars := h.ask(spoeRequest("203.0.113.1", "GET", "/api/x?y=z", shop))
		require.Equal(t, "false", vars["refused"])
		require.Equal(t, "200", vars["status"])
		require.Equal(t, "pass", vars["reason"])
		require.Equal(t, `"api";q=3;w=3600`, vars["ratelimit_policy"])
		require.Contains(t, vars["ratelimit"], fmt.Sprintf(`"api";r=%d;`, left))
		require.Equal(t, "3", vars["x_ratelimit_limit"])
		require.NotContains(t, vars, "problem")
	}
	vars := h.ask(spoeRequest("203.0.113.1", "GET", "/api/x", shop))
	require.Equal(t, "true", vars["refused"])
	require.Equal(t, "429", vars["status"])
	require.Equal(t, "limited", vars["reason"])
	require.NotEmpty(t, vars["retry_after"])
	require.Contains(t, vars["problem"], `"violated-policies":["api"]`)
	require.Equal(t, "false", n.agreed(16380).ask(spoeRequest("203.0.113.2", "GET", "/api/x", shop))["refused"], "another client")
	require.Contains(t, h.ask(spoeRequest("203.0.113.9", "GET", "/keyed", shop))["ratelimit"], `"keyed";r=2`)
	require.Contains(t, h.ask(spoeRequest("203.0.113.9", "POST", "/", spoeHeaders("host: API.example.com:8443")))["ratelimit"], `"hosted";r=2`)
	vars = h.ask(spoeRequest("203.0.113.9", "GET", "/slots", shop))
	require.Equal(t, "500", vars["status"])
	require.Equal(t, "failed", vars["reason"])
	six := h.ask(spoeRequest("203.0.113.9", "GET", "/api/x", shop, "client", "\x07"+string(net.ParseIP("2001:db8::1"))))
	require.Equal(t, "false", six["refused"])
	require.Zero(t, n.asked.Load(), "nothing is forwarded")
	eventually(t, "all are counted", func() bool { return n.metric(`weir_gateway_seconds{protocol="spoe"}`) == 9 })
	require.EqualValues(t, 1, n.metric(`weir_gateway_answers_total{protocol="spoe",answer="limited"}`))

	// A client names nobody else, unless HAProxy's own client is a trusted proxy.
	forwarded := spoeHeaders("host: shop.example.com", "x-forwarded-for: 203.0.113.77")
	require.Contains(t, h.ask(spoeRequest("203.0.113.5", "GET", "/api/x", forwarded))["ratelimit"], "r=2")
	require.Contains(t, h.ask(spoeRequest("203.0.113.5", "GET", "/api/x", shop))["ratelimit"], "r=1")
}

// A question that HAProxy's configuration or a client leaves unclear is refused, and nothing is charged.
func TestSPOEMustBeClear(t *testing.T) {
	n := spoeNode(t, setup{rules: gatewayRules})
	h := n.agreed(16380)
	host := spoeHeaders("host: a")
	for _, c := range []struct {
		args  []string
		fault string
	}{
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "client", ""), "argument client is required"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "method", ""), "argument method is required"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "target", ""), "argument target is required"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", ""), "argument headers is required"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "client", "\x00"), "argument client must be src"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "client", spoeString("203.0.113.1")), "argument client must be src"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "method", "\x00"), "argument method must be method"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", host, "target", "\x03\x01"), "argument target must be pathq"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", spoeString("host: a")), "argument headers must be req.hdrs_bin"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", spoeBinary("\x04host\x01a")), "argument headers must be req.hdrs_bin"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", spoeHeaders("Host: a")), "argument headers must be req.hdrs_bin"},
		{append(spoeRequest("203.0.113.1", "GET", "/api/x", host), "method", spoeString("GET")), "argument method occurs twice"},
		{append(spoeRequest("203.0.113.1", "GET", "/api/x", host), "tier", spoeString("pro")), `argument \"tier\" is unknown`},
		{spoeRequest("203.0.113.1", "GET", "/api/x", spoeHeaders("x: y")), "argument headers must have one host (got 0)"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", spoeHeaders("host: a", "host: b")), "argument headers must have one host (got 2)"},
		{spoeRequest("203.0.113.1", "G(ET", "/api/x", host), "the method is not one of HTTP's"},
		{spoeRequest("203.0.113.1", "GET", "api/x", host), "path"},
		{spoeRequest("203.0.113.1", "GET", "/keyed", spoeHeaders("host: a", "x-api-key: one", "x-api-key: two")), "X-Api-Key"},
		{spoeRequest("203.0.113.1", "GET", "/keyed", spoeHeaders("host: a", "x-api-key: one\x0b")), "has a control character"},
		{spoeRequest("203.0.113.1", "GET", "/keyed", spoeHeaders("host: a", "x-api-key: one\x00two")), "has a control character"},
		{spoeRequest("203.0.113.1", "GET", "/api/x", spoeHeaders("host: a", "x-other: \x7f")), "has a control character"},
	} {
		vars := h.ask(c.args)
		require.Equal(t, "true", vars["refused"], c.fault)
		require.Equal(t, "400", vars["status"], c.fault)
		require.Contains(t, vars["problem"], c.fault)
	}
	for _, name := range lookAlikes {
		require.Contains(t, h.ask(spoeRequest("203.0.113.1", "GET", "/api/x", spoeHeaders("host: a", name+": 1")))["problem"], name)
	}
	h.send(spoeNotify(h.next, spoeRequest("203.0.113.1", "GET", "/api/x", host)) + spoeText("decide") + "\x00")
	kind, rest := h.read()
	require.EqualValues(t, 103, kind)
	require.Contains(t, h.variables(rest[2:])["problem"], "the frame must have one message")
	require.EqualValues(t, 3, n.explained("api", "203.0.113.1", "&path=/api/x").Remaining)
}

// A hostile connection ends or waits, whatever it sends. The node keeps nothing of it, and answers
// others.
func TestSPOEHostile(t *testing.T) {
	n := spoeNode(t, setup{rules: gatewayRules})
	const statusTooBig, statusInvalid, statusFragmented = 3, 4, 10
	f := func(want int, frames ...string) {
		t.Helper()
		h := n.dialSPOE()
		for _, frame := range frames {
			h.send(frame)
		}
		require.Equal(t, want, h.ends(), "%.40q", frames)
	}
	notify := spoeNotify(1, spoeRequest("203.0.113.1", "GET", "/api/x", spoeHeaders("host: a")))
	f(statusInvalid, "")
	f(statusInvalid, "\x01")
	f(statusInvalid, notify) // no hello
	f(8, strings.Replace(spoeHello(16380), "2.0", "9.9", 1))
	f(9, spoeHello(100))
	f(statusTooBig, strings.Repeat("x", 5000))
	h := n.dialSPOE()
	_, err := io.WriteString(h.conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // a frame of 1.2 GB
	require.NoError(t, err)
	require.Equal(t, statusTooBig, h.ends())

	g := func(want int, frame string) {
		t.Helper()
		h := n.agreed(16380)
		h.send(frame)
		require.Equal(t, want, h.ends(), "%.40q", frame)
	}
	g(statusInvalid, "")
	g(statusInvalid, "\x63\x00\x00\x00\x01\x01\x01")
	g(statusInvalid, notify[:len(notify)-3])
	g(statusInvalid, notify[:7]+"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
	g(statusFragmented, "\x03\x00\x00\x00\x00\x01\x01")
	g(statusTooBig, strings.Repeat("x", 16381))
	g(0, "\x02\x00\x00\x00\x01\x00\x00"+spoeText("status-code")+"\x03\x00"+spoeText("message")+spoeString("bye"))
	eventually(t, "nothing is left", func() bool { return n.spoe.server.Connections() == 0 })
	require.NotZero(t, n.metric(`weir_gateway_answers_total{protocol="spoe",answer="malformed"}`))

	// An answer that would be longer than HAProxy reads leaves out what matters least.
	small := n.agreed(256)
	vars := small.ask(spoeRequest("203.0.113.1", "GET", "/a", spoeHeaders("host: a", "host: b")))
	require.Equal(t, "400", vars["status"])
	require.EqualValues(t, 3, n.explained("api", "203.0.113.1", "&path=/api/x").Remaining, "nothing was charged")
}

// Slow connections end, and those beyond the bound are closed at once.
func TestSPOEBounds(t *testing.T) {
	bounded := func(timeout time.Duration) *node {
		return spoeNode(t, setup{config: func(c *config.Config) {
			c.Server.MaxConnections, c.Server.ReadTimeout, c.Server.IdleTimeout = 3, timeout, timeout
		}})
	}
	n := bounded(2 * time.Second)
	silent, idle, slow := n.dialSPOE(), n.agreed(16380), n.agreed(16380)
	_, err := slow.conn.Write([]byte{0, 0, 1, 0, 3})
	require.NoError(t, err)
	for _, h := range []*haproxy{silent, idle, slow} {
		require.Equal(t, -1, h.ends())
	}
	eventually(t, "all have ended", func() bool { return n.spoe.server.Connections() == 0 })

	n = bounded(patience)
	for range 3 {
		n.dialSPOE()
	}
	require.Equal(t, -1, n.dialSPOE().ends())
	require.EqualValues(t, 1, n.metric(`weir_gateway_answers_total{protocol="spoe",answer="failed"}`), "the one beyond the bound is counted")
}

func TestSPOEOnly(t *testing.T) {
	n := spoeNode(t, setup{rules: gatewayRules, config: func(c *config.Config) { c.Listen.SPOE.From = []string{"10.0.0.0/8"} }})
	require.Equal(t, -1, n.dialSPOE().ends())
	require.EqualValues(t, 1, n.metric(`weir_gateway_answers_total{protocol="spoe",answer="unauthenticated"}`))
}

// A node that stops answers the questions that it receives, and sends HAProxy elsewhere before it
// ends a connection on which a question may be on its way.
func TestSPOEDrains(t *testing.T) {
	s := setup{rules: gatewayRules, config: func(c *config.Config) { c.Shutdown.Timeout = patience }}
	delayed, closes := s.lingering()
	defer closes()
	n := spoeNode(t, s)
	idle, busy := n.agreed(16380), n.agreed(16380)
	question := spoeRequest("203.0.113.1", "GET", "/", spoeHeaders("host: a"))
	require.Equal(t, "200", idle.ask(question)["status"])
	n.cancel()
	<-delayed
	for _, h := range []*haproxy{busy, n.agreed(16380)} {
		require.Equal(t, "200", h.ask(question)["status"])
		require.Equal(t, 0, h.ends())
	}
	check := n.dialSPOE()
	check.send(spoeHello(16380) + spoeText("healthcheck") + "\x11") // true
	require.Equal(t, -1, check.ends())
	closes()
	require.Equal(t, 0, idle.ends())
	n.stop()
}

// A busy connection ends after a while, and no question is lost with it.
func TestSPOERenewsConnections(t *testing.T) {
	n := spoeNode(t, setup{rules: gatewayRules})
	h := n.agreed(16380)
	arrived := bufio.NewReader(h.conn)
	h.conn = readAhead{h.conn, arrived}
	frame := spoeNotify(1, spoeRequest("203.0.113.1", "GET", "/", spoeHeaders("host: a")))
	for arrived.Buffered() == 0 { // an old connection says goodbye with the answer, in one packet
		h.send(frame)
		kind, _ := h.read()
		require.EqualValues(t, 103, kind)
	}
	require.Equal(t, 0, h.ends())
}

// readAhead is a connection of which more may have arrived than was asked for.
type readAhead struct {
	net.Conn
	arrived *bufio.Reader
}

func (c readAhead) Read(b []byte) (int, error) { return c.arrived.Read(b) }

func TestSPOEAllocatesNothing(t *testing.T) {
	if raceEnabled {
		return // it allocates for itself
	}
	n := spoeNode(t, setup{rules: "rules: [{id: api, key: [client_ip, 'header:X-Api-Key', 'cookie:a'], algorithm: fixed_window, limit: 1000000, window: 1h}]"})
	h := n.agreed(16380)
	args := spoeRequest("203.0.113.1", "GET", "/api/x?y=z", spoeHeaders("host: shop.example.com", "x-api-key: one", "cookie: a=1; b=2"))
	frame := spoeNotify(7, args)
	wire := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	var answer [4096]byte
	ask := func() {
		if _, err := h.conn.Write(wire); err != nil {
			panic(err)
		}
		if _, err := h.conn.Read(answer[:]); err != nil {
			panic(err)
		}
	}
	for range 100 {
		ask()
	}
	require.Less(t, testing.AllocsPerRun(500, ask), 1.0)
}

// After a panic HAProxy gets a refusal: without an answer it might let the request pass.
func TestSPOEPanics(t *testing.T) {
	n := spoeNode(t, setup{rules: gatewayRules, change: seePanics})
	h := n.agreed(16380)
	for range 2 {
		vars := h.ask(spoeRequest("203.0.113.1", "GET", "/free", spoeHeaders("host: a")))
		require.Equal(t, "true", vars["refused"])
		require.Equal(t, "500", vars["status"])
		require.Contains(t, vars["problem"], "internal error")
	}
	require.EqualValues(t, 2, n.metric("weir_panics_total"))
}
