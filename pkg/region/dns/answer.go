package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	wire "github.com/miekg/dns"

	"github.com/weir-edge/weir/pkg/region"
)

// The kinds of answers that an Observer counts.
const (
	kindAnswer    = "answer"    // addresses of a healthy PoP, or records of the zone itself
	kindSpilled   = "spilled"   // addresses of the next PoP, because the first sheds
	kindFailOpen  = "fail_open" // all addresses, because no PoP is healthy
	kindNoData    = "nodata"
	kindNXDomain  = "nxdomain"
	kindRefused   = "refused"
	kindFormErr   = "formerr"
	kindBadVers   = "badvers"
	kindNotImp    = "notimp"
	kindServFail  = "servfail"  // there is no topology yet
	kindYielded   = "yielded"   // another router has fresher facts: resolvers should ask that one
	kindTruncated = "truncated" // too long for UDP
	kindSlipped   = "slipped"   // over the rate limit: truncated, so that the client retries over TCP
	kindDropped   = "dropped"   // over the rate limit: no answer
)

// Kinds are all kinds of answers.
var Kinds = []string{
	kindAnswer, kindSpilled, kindFailOpen, kindNoData, kindNXDomain, kindRefused, kindFormErr, kindBadVers, kindNotImp, kindServFail, kindYielded, kindTruncated, kindSlipped, kindDropped,
}

// reply is an answer in progress.
type reply struct {
	*Server
	q     question
	view  *region.View
	zone  *zone
	node  *node  // what exists at the name; nil: nothing, or not looked up
	owner string // of the next record, in the letter case of the question or of the previous CNAME
	msg   wire.Msg
	scope int
	kind  string
	// trims means that the last records are addresses, the nearest first, of which a
	// subset is also useful.
	trims bool
}

// answer returns what to send for a packet, and its kind; nil if the packet deserves no
// answer. It does no I/O, and its work is bounded by the topology.
func (s *Server) answer(packet []byte, from netip.Addr, udp bool) ([]byte, string) {
	r := s.begin(packet)
	if r == nil {
		return nil, ""
	}
	return r.finish(from, udp)
}

// begin parses a packet and looks up its question; nil if it deserves no answer.
func (s *Server) begin(packet []byte) *reply {
	q, rcode, ok := parse(packet)
	if !ok {
		return nil
	}
	r := &reply{Server: s, q: q, view: s.config.View(), owner: q.name}
	r.msg.Id, r.msg.Response, r.msg.Opcode, r.msg.Compress = q.id, true, q.opcode, true
	r.msg.RecursionDesired, r.msg.CheckingDisabled = q.recurse, q.nocheck
	if q.name != "" {
		r.msg.Question = []wire.Question{{Name: q.name, Qtype: q.qtype, Qclass: q.class}}
	}
	switch rcode {
	case wire.RcodeSuccess:
		r.find()
	case wire.RcodeFormatError:
		r.fail(rcode, kindFormErr)
	case wire.RcodeBadVers:
		r.fail(rcode, kindBadVers)
	default:
		r.fail(rcode, kindNotImp)
	}
	return r
}

// finish builds the answer.
func (r *reply) finish(from netip.Addr, udp bool) ([]byte, string) {
	switch {
	case r.node == nil:
	case r.node.proves && udp: // signing costs more than any answer, so not for forged addresses
		r.truncate()
	default:
		r.resolve(from)
	}
	r.addOptions()
	return r.pack(udp)
}

func (r *reply) fail(rcode int, kind string) {
	r.msg.Rcode, r.kind = rcode, kind
}

// subject returns what the rate limit counts this as.
func (r *reply) subject() subject {
	switch {
	case r.node == nil:
		return subject{name: r.kind}
	case r.tailored() && r.asksAddress():
		if n := r.zone.end(r.node); n != nil && n.choose {
			return subject{}
		}
	}
	return subject{r.node.name, r.q.qtype}
}

func (r *reply) asksAddress() bool { return r.q.qtype == wire.TypeA || r.q.qtype == wire.TypeAAAA }

// tailored reports whether the resolver sends a client subnet and caches the answer for
// it.
func (r *reply) tailored() bool {
	return r.q.edns != nil && r.q.edns.subnet != nil && r.q.edns.subnet.source > 0
}

// find looks up the name.
func (r *reply) find() {
	if r.zone = r.zoneOf(r.view); r.zone == nil {
		r.fail(wire.RcodeServerFailure, kindServFail)
		return
	}
	switch r.q.qtype {
	case wire.TypeNone, wire.TypeOPT:
		r.fail(wire.RcodeFormatError, kindFormErr)
		return
	case wire.TypeAXFR, wire.TypeIXFR, wire.TypeMAILA, wire.TypeMAILB, wire.TypeTKEY, wire.TypeTSIG:
		r.fail(wire.RcodeRefused, kindRefused)
		return
	}
	name := strings.ToLower(r.q.name)
	if inside, _ := r.zone.within(name); !inside || r.q.class != wire.ClassINET {
		r.fail(wire.RcodeRefused, kindRefused)
		return
	}
	r.msg.Authoritative = true
	if r.node = r.zone.find(name); r.node == nil {
		r.missing()
	}
}

// missing answers that the name does not exist. Without a topology, that is unknown.
func (r *reply) missing() {
	if r.view.Topology == nil {
		r.msg.Authoritative = false
		r.fail(wire.RcodeServerFailure, kindServFail)
		return
	}
	r.fail(wire.RcodeNameError, kindNXDomain)
	r.negative()
}

// maxAliases is how many CNAMEs are followed within the zone. A topology allows no more.
const maxAliases = 8

// resolve answers with the node's content, and follows CNAMEs within the zone.
func (r *reply) resolve(from netip.Addr) {
	for n, links := r.node, 0; ; links++ {
		alias := n.records[wire.TypeCNAME]
		if alias == nil || r.q.qtype == wire.TypeCNAME || r.q.qtype == wire.TypeANY || links == maxAliases {
			r.fill(n, from)
			return
		}
		r.kind = kindAnswer
		r.add(alias[0])
		r.owner = alias[0].(*wire.CNAME).Target
		if inside, _ := r.zone.within(r.owner); !inside {
			return
		}
		if n = r.zone.find(r.owner); n == nil {
			r.missing()
			return
		}
	}
}

// fill answers with the content of the last name.
func (r *reply) fill(n *node, from netip.Addr) {
	r.kind = kindAnswer
	switch list := n.records[r.q.qtype]; {
	case r.q.qtype == wire.TypeANY && n.records[wire.TypeCNAME] != nil:
		r.add(n.records[wire.TypeCNAME][0]) // which stands alone
	case r.q.qtype == wire.TypeANY:
		// A query for any type gets one record that says to ask for a specific one (RFC
		// 8482).
		r.add(&wire.HINFO{Hdr: header("", wire.TypeHINFO, infrastructureTTL), Cpu: "RFC8482"})
	case list != nil:
		for _, rr := range list {
			r.add(rr)
		}
		if r.asksAddress() {
			r.spread(n, len(list))
		}
	case n.choose && r.asksAddress():
		r.choose(from, n.region)
	case n.proves && n == r.node && r.q.qtype == wire.TypeTXT:
		r.prove(from)
	case n.pop != nil && r.asksAddress():
		if r.addresses(n); !r.trims {
			r.empty()
		}
	default:
		r.empty()
	}
}

// prove answers another router. Each network gets as many proofs as answers.
func (r *reply) prove(from netip.Addr) {
	text := ""
	if r.config.Proof != nil && r.limiter.check(from, r.subject(), time.Since(r.started)) == send {
		text = r.config.Proof(strings.ToLower(r.q.name))
	}
	if text == "" {
		r.empty()
		return
	}
	r.add(&wire.TXT{Hdr: header("", wire.TypeTXT, 0), Txt: chunks(text)})
}

// choose answers with the nearest PoP, of region in if not empty.
func (r *reply) choose(from netip.Addr, in string) {
	switch {
	case r.view.Topology == nil:
		r.missing()
		return
	case r.config.Yields != nil && r.config.Yields():
		r.msg.Authoritative, r.msg.Answer = false, nil // without the CNAMEs that led here
		r.fail(wire.RcodeServerFailure, kindYielded)
		return
	}
	q := region.Query{Client: netip.PrefixFrom(from, from.BitLen()), Region: in, Family: 6, Random: rand.Uint64()}
	if r.q.qtype == wire.TypeA {
		q.Family = 4
	}
	if r.tailored() {
		// The resolver caches an answer per network, so a client can stay put.
		q.Client = r.q.edns.subnet.prefix
		q.Random = region.StickyRandom(q.Client)
	}
	a := r.view.Choose(q)
	switch {
	case a.FailOpen:
		r.kind = kindFailOpen
	case a.Spilled:
		r.kind = kindSpilled
	}
	pops := a.PoPs[:min(1, len(a.PoPs))]
	if a.FailOpen {
		pops = a.PoPs
	}
	for _, name := range pops {
		r.addresses(r.zone.pops[name])
	}
	if !r.trims {
		r.empty()
	}
	if r.tailored() && len(a.PoPs) > 0 && r.config.Observer != nil && r.moves.moved(q.Client, r.node.name, a.PoPs[0]) {
		r.config.Observer.Moved()
	}
	if r.tailored() && r.trims { // an empty answer holds for all clients
		r.scope = r.q.edns.subnet.mapped + a.Scope
	}
}

// addresses adds a PoP's addresses of the family in the question.
func (r *reply) addresses(n *node) {
	count := 0
	for _, a := range n.pop.Addresses {
		if a.Is4() == (r.q.qtype == wire.TypeA) {
			r.msg.Answer = append(r.msg.Answer, record(r.owner, a, r.config.ttl()))
			count++
		}
	}
	r.spread(n, count)
	r.trims = r.trims || count > 0
}

// spread orders the last records, which are addresses of n.
func (r *reply) spread(n *node, count int) {
	spread(r.msg.Answer[len(r.msg.Answer)-count:], r.seed, n.turns.next(r.q.qtype))
}

// add answers with a copy of a record, in the letter case of the question.
func (r *reply) add(rr wire.RR) {
	rr = wire.Copy(rr)
	rr.Header().Name = r.owner
	r.msg.Answer = append(r.msg.Answer, rr)
}

// empty answers that the name exists but has no records of the type.
func (r *reply) empty() {
	r.kind = kindNoData
	r.negative()
}

func (r *reply) negative() {
	soa := r.zone.soa // packing a record writes to it
	r.msg.Ns = append(r.msg.Ns, &soa)
}

// addOptions answers an OPT with an OPT, and a client subnet with the same subnet and the
// scope.
func (r *reply) addOptions() {
	e := r.q.edns
	if e == nil {
		return
	}
	opt := &wire.OPT{Hdr: wire.RR_Header{Name: ".", Rrtype: wire.TypeOPT}}
	opt.SetUDPSize(uint16(r.config.MaxUDP))
	if e.do {
		opt.SetDo()
	}
	if n := e.subnet; n != nil {
		data := append([]byte{byte(n.family >> 8), byte(n.family), n.source, byte(r.scope)}, n.addr...)
		opt.Option = append(opt.Option, &wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: data})
	}
	r.msg.Extra = append(r.msg.Extra, opt)
}

// limit returns how long the answer may be.
func (r *reply) limit(udp bool) int {
	switch {
	case !udp:
		return wire.MaxMsgSize
	case r.q.edns == nil:
		return plainUDP
	}
	return min(max(int(r.q.edns.size), plainUDP), r.config.MaxUDP)
}

// pack encodes the answer. If addresses are too long for the client, it sends those that
// fit, the nearest first. Part of anything else would be taken for the whole, so the
// client must retry over TCP.
func (r *reply) pack(udp bool) ([]byte, string) {
	limit := r.limit(udp)
	packet, err := r.msg.Pack()
	if err == nil && len(packet) > limit {
		if !r.trim(len(packet) - limit) {
			r.truncate()
		}
		packet, err = r.msg.Pack()
	}
	if err != nil {
		return nil, kindServFail // what was parsed from a packet can be encoded
	}
	return packet, r.kind
}

// trim drops the last addresses, and reports whether any are left.
func (r *reply) trim(excess int) bool {
	size := 2 + 10 + 4 // a pointer to the name, the fixed part of a record, the address
	if r.q.qtype == wire.TypeAAAA {
		size += 12
	}
	left := len(r.msg.Answer) - (excess+size-1)/size
	if !r.trims || left < 1 || r.msg.Answer[left-1].Header().Rrtype != r.q.qtype {
		return false
	}
	r.msg.Answer = r.msg.Answer[:left]
	return true
}

func (r *reply) truncate() {
	r.msg.Truncated, r.msg.Answer, r.msg.Ns, r.kind = true, nil, nil, kindTruncated
}

// slip answers that the client must retry over TCP, at almost no cost; nil if its packet
// cannot be parsed.
func (r *reply) slip() []byte {
	if r.kind == kindFormErr || r.kind == kindBadVers || r.kind == kindNotImp {
		return nil
	}
	r.truncate()
	r.msg.Rcode, r.msg.Authoritative = wire.RcodeSuccess, false
	r.addOptions()
	packet, err := r.msg.Pack()
	if err != nil {
		return nil // as above
	}
	return packet
}
