package gateway

import (
	"bytes"
	"fmt"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// authRequest is a gateway's description of one request. It is pooled, so no part of it may be
// retained.
type authRequest struct {
	decide.Request
	server *Server
	ctx    *fasthttp.RequestCtx
	answer Answer
	nginx  bool // the answer is for auth_request
	scan   proxy.HeaderScan
	values [][]byte // what Header returned
	buf    []byte   // scratch for header values
}

var _ decide.Fields = (*authRequest)(nil)

// Header implements decide.Fields: gateways forward the client's headers as they came.
func (q *authRequest) Header(name string) [][]byte {
	if q.scan.DefinitelyLacks(name) {
		return nil
	}
	q.values = proxy.AppendSent(q.values[:0], &q.ctx.Request.Header, name)
	return q.values
}

// Cookie implements decide.Fields.
func (q *authRequest) Cookie(name string) ([]byte, int) {
	return rules.Cookie(q.Header("Cookie"), name)
}

// The headers in which gateways state the request. nginx is configured to send the first
// of each pair; Traefik, Caddy and most others send the second.
var (
	methodNames = [2]string{"X-Original-Method", "X-Forwarded-Method"}
	targetNames = [2]string{"X-Original-Uri", "X-Forwarded-Uri"}
	hostNames   = [2]string{"X-Original-Host", "X-Forwarded-Host"}
)

const clientName = "X-Forwarded-For"

// read fills in what the gateway states. Missing, repeated or contradictory data is an error:
// a gateway that leaves out a header would forward the client's own.
func (q *authRequest) read() error {
	if err := q.checkHeader(); err != nil {
		return err
	}
	var target []byte
	var err error
	if q.Method, err = q.one(methodNames); err != nil {
		return err
	}
	if target, err = q.one(targetNames); err != nil {
		return err
	}
	if q.Host, err = q.one(hostNames); err != nil {
		return err
	}
	if err := q.checkClient(); err != nil {
		return err
	}
	return q.server.config.Decider.ReadTarget(&q.Request, target)
}

// checkHeader rejects a header that the origin might read differently from the rules.
func (q *authRequest) checkHeader() (err error) {
	h := &q.ctx.Request.Header
	if q.scan, err = proxy.CheckFraming(h); err != nil || !q.scan.HasUnusualName() {
		return err
	}
	proxy.EachUnusualName(h, func(name []byte) {
		if err == nil {
			err = decide.CheckName(q.server.config.Decider, &q.Request, name)
		}
	})
	return err
}

// one returns what a gateway states in either of two headers.
func (q *authRequest) one(names [2]string) (value []byte, err error) {
	for _, name := range names {
		for i, v := range q.Header(name) {
			switch {
			case i > 0:
				return nil, fmt.Errorf("%s occurs twice: the gateway must set it, not add to what the client sent", name)
			case len(v) == 0: // gateways that remove a header leave it empty
			case value == nil:
				value = v
			case !bytes.Equal(value, v):
				return nil, fmt.Errorf("%s and %s differ: the gateway must set one and remove the other", names[0], names[1])
			}
		}
	}
	if value == nil {
		return nil, fmt.Errorf("%s or %s is required: the gateway must set it", names[0], names[1])
	}
	return value, nil
}

// checkClient makes sure that the gateway names the client, which decide then reads as from any
// trusted proxy.
func (q *authRequest) checkClient() error {
	switch hops := q.Header(clientName); {
	case len(hops) == 0:
		return fmt.Errorf("%s is required: the gateway must name its client there", clientName)
	case len(hops) > 1:
		return fmt.Errorf("%s occurs twice: the gateway must send one list", clientName)
	default:
		if _, _, ok := decide.NearestHop(hops[0]); !ok {
			return fmt.Errorf("%s must end in the address of the gateway's client", clientName)
		}
	}
	return nil
}
