package handshake

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Reason says why a handshake failed.
type Reason uint8

// The reasons.
const (
	Timeout     Reason = iota // it took too long
	Closed                    // the other end closed the connection during it
	Certificate               // the client's certificate was missing or invalid
	Rejected                  // the client refused, for instance our certificate
	Protocol                  // not TLS, or no version, cipher or protocol in common
	Reasons                   // how many there are
)

var reasonNames = [Reasons]string{"timeout", "closed", "certificate", "rejected", "protocol"}

func (r Reason) String() string { return reasonNames[r] }

// ReasonOf returns why a server's handshake failed. It reports false for a connection that was
// closed before its first message, as TCP health checks do.
func ReasonOf(c *tls.Conn, err error) (Reason, bool) {
	var network net.Error
	var op *net.OpError
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.As(err, &network) && network.Timeout():
		return Timeout, true
	case errors.As(err, &op) && op.Op == "remote error":
		return Rejected, true
	case errors.Is(err, io.ErrUnexpectedEOF): // in the middle of a message
		return Closed, true
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Closed, c.ConnectionState().Version != 0
	case errors.As(err, &invalid), strings.Contains(err.Error(), "certificate"): // crypto/tls has no other way to tell
		return Certificate, true
	}
	return Protocol, true
}

// explain answers a client that speaks HTTP without TLS, as net/http does.
func explain(err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil {
		return
	}
	switch string(record.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
}
