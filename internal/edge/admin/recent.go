package admin

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/edge/recent"
)

// recentWrite bounds each write of an answer with recent requests.
const recentWrite = 30 * time.Second

// showRecent writes the latest requests, a JSON object a line.
func (a *Admin) showRecent(w http.ResponseWriter, r *http.Request) {
	if a.Recent == nil {
		adminError(w, http.StatusNotFound, errors.New("this node keeps no requests; set recent.keep to how many it should"))
		return
	}
	f, err := recentFilter(r.URL.Query())
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	err = a.Recent.Find(f, func(found *recent.Found) {
		h := w.Header()
		h.Set("Content-Type", "application/x-ndjson")
		h.Set(adminapi.HeaderSince, found.Since.UTC().Format(time.RFC3339Nano))
		h.Set(adminapi.HeaderShare, strconv.FormatFloat(found.Share, 'g', -1, 64))
		h.Set(adminapi.HeaderLost, strconv.FormatUint(found.Lost, 10))
		to, out := http.NewResponseController(w), bufio.NewWriterSize(w, 64<<10)
		// Without support for deadlines, as in tests, writes are not bounded.
		_ = to.SetWriteDeadline(time.Now().Add(recentWrite))
		_ = a.Recent.Lines(found, func(line []byte) error { // until the client hangs up
			if out.Available() < len(line) {
				_ = to.SetWriteDeadline(time.Now().Add(recentWrite))
			}
			_, err := out.Write(line)
			return err
		})
		_ = out.Flush()
		_ = to.SetWriteDeadline(time.Time{}) // the connection may serve another request
	})
	if err != nil {
		w.Header().Set("Retry-After", "1")
		adminError(w, http.StatusServiceUnavailable, err)
	}
}

// recentFilter reads client, refused, rules and most. An unknown parameter is an error,
// because a typo would show different requests.
func recentFilter(q url.Values) (f recent.Filter, err error) {
	f.Most = 1000
	for name, values := range q {
		last := values[len(values)-1]
		switch name {
		case "client":
			if f.Client, err = clientlist.Parse(last); err != nil {
				return f, fmt.Errorf("client: %w", err)
			}
			if a := f.Client.Addr(); a.Is6() && f.Client.Bits() > 64 { // the network that rules count
				f.Client = netip.PrefixFrom(a, 64).Masked()
			}
		case "refused":
			f.Refused = true
		case "rules":
			f.ByRules = true
		case "most":
			if f.Most, err = strconv.Atoi(last); err != nil || f.Most < 1 {
				return f, fmt.Errorf("most: must be a number from 1 (got %q)", last)
			}
		default:
			return f, fmt.Errorf("%s: unknown; use client, refused, rules or most", name)
		}
	}
	return f, nil
}
