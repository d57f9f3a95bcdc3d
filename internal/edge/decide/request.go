package decide

import (
	"net/netip"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Request is one request in progress. Reuse it after Reset: its buffers grow to what the
// requests need, and then deciding allocates nothing.
type Request struct {
	// Set by the protocol. Rules are those active when the request began.
	Began         time.Time
	Rules         Rules
	Peer          netip.Addr // the other end of the connection
	Method        []byte     // as sent
	Host          []byte     // as sent: any case, perhaps with a port
	Paths         paths.Readings
	ForwardedPath []byte // the path as it is forwarded; Paths are its readings
	Query         []byte // as sent
	Fields        Fields // kept by Reset
	// FromGateway lets the peer name the client: it is a gateway, authenticated by other means
	// than Decider.Trusted.
	FromGateway bool
	// Source is the address that a gateway reports as the other end of its connection,
	// independent of headers; otherwise it is not valid.
	Source netip.Addr
	// CompletionUnknown says that the end of the request will never be known, so that it cannot hold a
	// slot.
	CompletionUnknown bool
	// DryRun says that nobody sent the request. Decide charges, delays and reports nothing
	// then, and goes on where it would refuse, so that Match and Decision show all.
	DryRun bool

	// The client. Decide finds it; a caller that only describes a request sets it.
	Client    netip.Addr // the peer, or the address that trusted proxies name
	Trusted   bool       // the peer is a trusted proxy
	Tier      []byte
	ListEntry *clientlist.Entry // what an operator decided about the client, or nil
	// Hashes replace secret values in a request that is only described, by key part, such
	// as header:X-Api-Key. Received requests have none.
	Hashes map[string]string

	// The decision.
	Err            error // of a Malformed or Uncountable request
	Match          rules.Match
	Decision       limiter.Decision
	Upstream       int // group
	Permit         shedder.Permit
	BehaviorResult BehaviorResult
	RecentID       uint64  // where Decider.Decided keeps it; 0: nowhere
	Costs          []int64 // of a described request's checks, before its tier scaled them
	// Took is how long after Began the checks were decided; set by Rules.Decided.
	Took time.Duration

	path       []byte                 // the reading in question
	decoded    []byte                 // the query parameter asked for last
	slotID     uint64                 // of the slots that a concurrency limit gives this request
	prechecked limiter.PrecheckResult // of the memory of refusals
	refused    []limiter.Check        // by lowered limits
	gaps       limiter.Decision       // about those
	other      rules.Match            // of a further reading
	scratch    rules.Match            // for the behavior policy
	buf        []byte                 // for the user, and then for the answer
}

// Fields gives the named parts of a request. The slices stay valid as long as the request.
type Fields interface {
	// Header returns the values of a header in the order received. The name is in canonical
	// form. The outer slice stays valid until Header is called again.
	Header(name string) [][]byte
	// Cookie returns the first value of a cookie, and how many times it occurs.
	Cookie(name string) (value []byte, n int)
}

// StoreCalledAt returns when the store was called, or would have been if the refusal had not been
// known; zero if the node has no memory of refusals.
func (r *Request) StoreCalledAt() time.Time { return r.prechecked.CheckedAt }

func (r *Request) Reset() {
	r.Began, r.Rules, r.Peer, r.Method, r.Host, r.Query = time.Time{}, nil, netip.Addr{}, nil, nil, nil
	r.FromGateway, r.CompletionUnknown, r.Source, r.ForwardedPath, r.RecentID, r.Took = false, false, netip.Addr{}, nil, 0, 0
	r.DryRun, r.Costs = false, nil
	r.Client, r.Trusted, r.Tier, r.ListEntry, r.Hashes = netip.Addr{}, false, nil, nil, nil
	r.Err, r.Upstream, r.Permit, r.path, r.prechecked = nil, 0, shedder.Permit{}, nil, limiter.PrecheckResult{}
	r.BehaviorResult = BehaviorResult{}
	r.Paths.Reset()
	r.Match.Reset()
	r.Decision.Reset(0)
	clear(r.refused)
	r.refused = r.refused[:0]
}

// view is a Request as rules, routes and classes see it.
type view struct{ *Request }

var (
	_ rules.Request = view{}
	_ rules.Hashed  = view{}
)

func (a view) Client() netip.Addr { return a.Request.Client }
func (a view) Host() []byte       { return a.Request.Host }
func (a view) Path() []byte       { return a.path }
func (a view) Method() []byte     { return a.Request.Method }
func (a view) Tier() []byte       { return a.Request.Tier }

// BehaviorResult returns the tier unless it is the mildest or the policy is in shadow mode, which
// must not change anything.
func (a view) Risk() string {
	k := &a.Request.BehaviorResult
	if k.Policy == nil || k.Policy.Shadow || k.Tier == 0 {
		return ""
	}
	return k.Name()
}

// Hash implements rules.Hashed.
func (a view) Hash(part *rules.KeyPart) []byte {
	if a.Hashes == nil {
		return nil
	}
	return []byte(a.Hashes[part.String()])
}

func (a view) Trusted() bool { return a.Request.Trusted }

func (a view) Header(name string) ([]byte, int) {
	values := a.Fields.Header(name)
	if len(values) == 0 {
		return nil, 0
	}
	return values[0], len(values)
}

func (a view) Cookie(name string) ([]byte, int) { return a.Fields.Cookie(name) }

func (a view) Query(name string) (value []byte, n int) {
	a.decoded, n = paths.AppendQuery(a.decoded[:0], a.Request.Query, name)
	return a.decoded, n
}
