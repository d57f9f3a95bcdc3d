package edge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/edge/proxy"
)

// credentials are headers by which origins usually tell who asks. In lower case, and in
// order.
var credentials = []string{
	"api-key", "apikey", "authorization", "cookie", "x-access-token", "x-amz-security-token", "x-api-key", "x-api-token",
	"x-apikey", "x-auth-token", "x-client-id", "x-csrf-token", "x-session-token", "x-xsrf-token",
}

// checkConnection refuses a request whose Connection header names one that decides
// anything: weir would go by it, and the origin never see it.
func (r *request) checkConnection() (err error) {
	proxy.EachNamed(&r.ctx.Request.Header, func(token []byte) {
		name := strings.ToLower(string(token))
		_, credential := slices.BinarySearch(credentials, name)
		if err == nil && (credential || r.decides(name)) {
			err = fmt.Errorf("the Connection header names %q, which must reach the origin", token)
		}
	})
	return err
}

// decides reports whether weir sets that header or goes by it. Its name is in lower case.
func (r *request) decides(header string) bool {
	switch header {
	case "host", "content-length", "transfer-encoding", "forwarded", "x-real-ip":
		return true
	}
	return strings.HasPrefix(header, "x-forwarded-") || r.edge.decider.Consults(&r.Request, header)
}

// hide removes what the origin must not take for the word of weir or of a trusted proxy:
// a tier that none has stated, and headers that programs which read "_" as "-" would take
// for one that weir sets or goes by.
func (r *request) hide() {
	header := &r.ctx.Request.Header
	if tier := r.edge.config.TierHeader; tier != "" && r.Tier == nil {
		header.Del(tier)
	}
	if !r.form.Unusual() {
		return
	}
	proxy.EachUnusual(header, func(name []byte) {
		written := strings.ToLower(string(name))
		read := strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				return c
			}
			return '-'
		}, written)
		if r.decides(read) && !r.decides(written) {
			header.DelBytes(name)
		}
	})
}
