package documents

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// pointer is the state of one pointer in Consul.
type pointer[T any] struct {
	queryErr   error // why Consul could not be asked for the pointer, nil if it answered
	known      bool  // there is a finding
	resolution resolution[T]
	good       *Document[T] // the last good document that the pointer named
	refused    *adminapi.Refusal

	// For an expiring pointer: the last one seen, and when it expires by this node's
	// monotonic clock. A clock that is behind, or set back, must not prolong it.
	seen consul.Pointer
	ends time.Time
}

// ErrNoAnswer describes the time before the first answer.
var ErrNoAnswer = errors.New("has not answered yet")

// note processes an event, and reports whether it was a finding.
func (f *pointer[T]) note(ev event[T], now time.Time) bool {
	if ev.resolution == nil {
		f.queryErr = ev.queryErr
		return false
	}
	found := *ev.resolution
	f.known, f.resolution = true, found
	if found.pointer != nil && found.pointer.ExpiresAt != nil && (ev.canary || !found.untrusted) {
		f.see(found.pointer, now)
	}
	if found.document != nil {
		f.good = found.document
	}
	return true
}

// see records an expiring pointer. From when it is first seen, it lasts no longer than it
// was set to last.
func (f *pointer[T]) see(p *consul.Pointer, now time.Time) {
	if f.seen.ExpiresAt != nil && f.seen.SHA256 == p.SHA256 && f.seen.AppliedAt.Equal(p.AppliedAt) && f.seen.ExpiresAt.Equal(*p.ExpiresAt) {
		return
	}
	f.seen, f.ends = *p, now.Add(p.ExpiresAt.Sub(p.AppliedAt))
}

// lives reports whether there is an expiring pointer that has not expired.
func (f *pointer[T]) lives(now time.Time) bool { return f.resolution.pointer != nil && f.left(now) > 0 }

// left returns how long the pointer seen last remains valid.
func (f *pointer[T]) left(now time.Time) time.Duration {
	if f.seen.ExpiresAt == nil {
		return 0
	}
	return min(f.seen.ExpiresAt.Sub(now), f.ends.Sub(now))
}

// judge records once what is wrong with the finding. nothing says that nothing was ever
// published.
func (f *pointer[T]) judge(nothing, canary bool) {
	found, version := &f.resolution, ""
	if found.pointer != nil {
		version = found.pointer.Version
	}
	switch {
	case errors.Is(found.fault, errNoPointer) && nothing:
		f.refused = nil
	case found.fault != nil:
		f.refused = refuse(f.refused, version, canary, found.fault)
	case found.failure != nil && f.refused != nil && f.refused.Version == version:
		// Consul was unreachable when it was read again.
	default:
		f.refused = nil
	}
}

// unanswered returns why Consul does not answer, or nil. ErrNoAnswer is the weakest reason.
func unanswered(reasons ...error) (err error) {
	for _, why := range reasons {
		if err == nil || why != nil && errors.Is(err, ErrNoAnswer) {
			err = why
		}
	}
	return err
}

// newer returns the later of two refusals, either of which may be nil.
func newer(a, b *adminapi.Refusal) *adminapi.Refusal {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// refuse records why a version is not activated. It keeps an existing refusal of the same
// version, so that the caller can tell which ones are new.
func refuse(standing *adminapi.Refusal, version string, canary bool, err error) *adminapi.Refusal {
	why := Faults(err)
	if standing != nil && standing.Version == version && slices.Equal(standing.Errors, why) {
		return standing
	}
	return &adminapi.Refusal{At: time.Now().UTC(), Version: version, Canary: canary, Errors: why}
}

// Faults returns the faults of a document one by one.
func Faults(err error) []string {
	var out []string
	for _, e := range field.All(err) {
		out = append(out, e.Error())
	}
	return out
}
