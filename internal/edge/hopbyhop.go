package edge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

// credentials are headers by which origins usually authenticate clients, in lower case and
// sorted.
var credentials = []string{
	"api-key", "apikey", "authorization", "cookie", "x-access-token", "x-amz-security-token", "x-api-key", "x-api-token",
	"x-apikey", "x-auth-token", "x-client-id", "x-csrf-token", "x-session-token", "x-xsrf-token",
}

// checkConnection rejects a request whose Connection header names a header that weir
// consults, because the origin would not see it.
func (r *request) checkConnection() (err error) {
	proxy.EachConnectionHeader(&r.ctx.Request.Header, func(token []byte) {
		name := strings.ToLower(string(token))
		_, credential := slices.BinarySearch(credentials, name)
		if err == nil && (credential || r.edge.decider.Sets(&r.Request, name)) {
			err = fmt.Errorf("the Connection header names %q, which must reach the origin", token)
		}
	})
	return err
}

// removeUntrustedHeaders removes headers that the origin must not attribute to weir or a trusted proxy: a
// tier that no proxy stated, trailers that weir sets or consults as headers, and names that a
// program would take for one of those.
func (r *request) removeUntrustedHeaders() {
	header := &r.ctx.Request.Header
	if tier := r.edge.config.TierHeader; tier != "" && r.Tier == nil {
		header.Del(tier)
	}
	if s, ok := r.ctx.Conn().(interface{ Trailer() http.Header }); ok {
		for name := range s.Trailer() { // which some origins read as headers
			if r.edge.decider.Sets(&r.Request, strings.ToLower(name)) || decide.CheckName(&r.edge.decider, &r.Request, name) != nil {
				delete(s.Trailer(), name)
			}
		}
	}
	if !r.scan.HasUnusualName() {
		return
	}
	proxy.EachUnusualName(header, func(name []byte) {
		if decide.CheckName(&r.edge.decider, &r.Request, name) != nil {
			header.DelBytes(name)
		}
	})
}
