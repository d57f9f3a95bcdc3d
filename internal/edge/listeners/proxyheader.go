package listeners

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"

	"github.com/pires/go-proxyproto"

	"github.com/weir-edge/weir/internal/edge/proxy"
)

// balancedConn is a connection from a load balancer that begins with a PROXY header, version 1
// or 2. Read removes the header below TLS, on the goroutine that serves the connection, so a
// slow balancer does not delay other connections.
type balancedConn struct {
	countedConn
	header *proxyHeader // nil once it has been read
	client net.Addr     // nil: the balancer's own
}

// RemoteAddr returns the client that the header names, or the balancer.
func (c *balancedConn) RemoteAddr() net.Addr {
	if c.client != nil {
		return c.client
	}
	return c.TCPConn.RemoteAddr()
}

// Read reads what follows the header. fasthttp sets a deadline of server.read_timeout before the
// first Read, so any expired deadline means that the header is late.
func (c *balancedConn) Read(b []byte) (int, error) {
	if c.header == nil || len(b) == 0 {
		return c.TCPConn.Read(b)
	}
	for {
		n, err := c.TCPConn.Read(b)
		taken, whole, fault := c.header.take(b[:n])
		switch {
		case fault != nil || whole:
		case errors.Is(err, os.ErrDeadlineExceeded):
			fault = errHeaderLate
		case err == io.EOF && len(c.header.kept) > 0:
			fault = errHeaderCut
		case err != nil: // a connection that ends without a byte is a balancer's check of the port
			return 0, err
		default:
			continue
		}
		if fault == nil {
			c.client, fault = c.header.source()
		}
		if fault != nil {
			c.clients.refuseHeader(c.TCPConn.RemoteAddr(), fault)
			_ = c.Close()
			return 0, fault
		}
		c.header = nil
		if c.client != nil && !c.clients.enter(&c.countedConn, proxy.AddrOf(c.client)) {
			c.clients.refuse(tooManyOfOne, proxy.AddrOf(c.client))
			_ = c.Close()
			return 0, net.ErrClosed
		}
		if n = copy(b, b[taken:n]); n > 0 || err != nil {
			return n, err
		}
		return c.TCPConn.Read(b)
	}
}

var (
	errNoHeader   = errors.New("the connection does not begin with a PROXY header; make the balancer send one, or remove it from listen.proxy_protocol.from")
	errHeaderLong = errors.New("the PROXY header has no end")
	errHeaderLate = errors.New("the PROXY header did not arrive within server.read_timeout")
	errHeaderCut  = errors.New("the connection ended within the PROXY header")
)

// Version 1 is a line; version 2 has a fixed part that states how much follows.
const (
	longestHeaderLine = 107
	fixedHeader       = 16
	longestAddresses  = 216 // for Unix sockets
)

var headerLine = []byte("PROXY ")

// proxyHeader collects a PROXY header that may arrive in pieces. It keeps everything but the
// TLVs of version 2, of which there may be 64 KiB.
type proxyHeader struct {
	kept []byte
	skip int // bytes of TLVs to come
	buf  [fixedHeader + longestAddresses]byte
}

func newProxyHeader() *proxyHeader {
	h := &proxyHeader{}
	h.kept = h.buf[:0]
	return h
}

// take consumes the header's bytes from the beginning of b. It returns how many it
// consumed, and whether the header is complete.
func (h *proxyHeader) take(b []byte) (n int, whole bool, err error) {
	for n < len(b) && !whole && err == nil {
		if h.skip > 0 {
			skipped := min(h.skip, len(b)-n)
			n, h.skip = n+skipped, h.skip-skipped
			whole = h.skip == 0
			continue
		}
		h.kept = append(h.kept, b[n])
		n++
		whole, err = h.end()
	}
	return n, whole, err
}

// end reports whether the header is complete.
func (h *proxyHeader) end() (whole bool, err error) {
	size := len(h.kept)
	begins := func(with []byte) bool { return bytes.Equal(h.kept[:min(size, len(with))], with[:min(size, len(with))]) }
	switch {
	case begins(headerLine):
		if whole = h.kept[size-1] == '\n'; !whole && size == longestHeaderLine {
			return false, errHeaderLong
		}
		return whole, nil
	case !begins(proxyproto.SIGV2):
		return false, errNoHeader
	case size < fixedHeader:
		return false, nil
	}
	length := int(binary.BigEndian.Uint16(h.kept[fixedHeader-2:]))
	if size < fixedHeader+min(length, longestAddresses) {
		return false, nil
	}
	h.skip = length - (size - fixedHeader)
	return h.skip == 0, nil
}

// source returns the client that the header names; nil if the connection is the balancer's own,
// or its client has no IP address.
func (h *proxyHeader) source() (net.Addr, error) {
	if h.kept[0] != headerLine[0] {
		command, family := proxyproto.ProtocolVersionAndCommand(h.kept[12]), proxyproto.AddressFamilyAndProtocol(h.kept[13])
		if command == proxyproto.LOCAL || command == proxyproto.PROXY && family == proxyproto.UNSPEC {
			// The rest of LOCAL must be ignored, including its family. HAProxy sends PROXY
			// without a family for a client that it cannot name. The library rejects some
			// of these.
			return nil, nil
		}
		binary.BigEndian.PutUint16(h.kept[fixedHeader-2:], uint16(len(h.kept)-fixedHeader)) // without the skipped TLVs
	}
	parsed, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(h.kept), len(h.kept)))
	if err != nil || parsed.Command.IsLocal() {
		return nil, err
	}
	if source, _, ok := parsed.TCPAddrs(); ok {
		return source, nil
	}
	return nil, nil
}
