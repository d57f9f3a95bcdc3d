package dns

import (
	"encoding/json"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strings"

	wire "github.com/miekg/dns"

	"github.com/weir-edge/weir/pkg/region"
)

// The kinds of answers that an Observer hears of.
const (
	kindAnswer    = "answer"    // addresses of a healthy PoP, or records of the zone itself
	kindSpilled   = "spilled"   // addresses of the next, because the first sheds
	kindFailOpen  = "fail_open" // all addresses, because no PoP is healthy
	kindNoData    = "nodata"
	kindNXDomain  = "nxdomain"
	kindRefused   = "refused"
	kindFormErr   = "formerr"
	kindBadVers   = "badvers"
	kindNotImp    = "notimp"
	kindServFail  = "servfail"  // there is no topology yet
	kindTruncated = "truncated" // too long for UDP
	kindSlipped   = "slipped"   // over the rate limit: truncated, to be asked by TCP
	kindDropped   = "dropped"   // over the rate limit: no answer
)

// reply is an answer under way.
type reply struct {
	*Server
	q     question
	view  *region.View
	zone  *zone
	owner string // the name asked for, in lower case
	msg   wire.Msg
	scope int
	kind  string
}

// answer returns what to send for a packet, and what kind of answer that is; nil
// if it deserves none. It does no I/O, and its work is bounded by the topology.
func (s *Server) answer(packet []byte, from netip.Addr, udp bool) ([]byte, string) {
	q, rcode, ok := parse(packet)
	if !ok {
		return nil, ""
	}
	r := s.reply(q)
	r.view, r.msg.Compress = s.config.View(), true
	switch rcode {
	case wire.RcodeSuccess:
		r.resolve(from)
	case wire.RcodeFormatError:
		r.fail(rcode, kindFormErr)
	case wire.RcodeBadVers:
		r.fail(rcode, kindBadVers)
	default:
		r.fail(rcode, kindNotImp)
	}
	r.addOptions()
	return r.pack(udp)
}

// reply begins an answer to q.
func (s *Server) reply(q question) *reply {
	r := &reply{Server: s, q: q}
	r.msg.Id, r.msg.Response, r.msg.Opcode = q.id, true, q.opcode
	r.msg.RecursionDesired, r.msg.CheckingDisabled = q.recurse, q.nocheck
	if q.name != "" {
		r.msg.Question = []wire.Question{{Name: q.name, Qtype: q.qtype, Qclass: q.class}}
	}
	return r
}

func (r *reply) fail(rcode int, kind string) {
	r.msg.Rcode, r.kind = rcode, kind
}

// resolve finds what there is at the name.
func (r *reply) resolve(from netip.Addr) {
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
	r.owner = strings.ToLower(r.q.name)
	inside, label := r.zone.within(r.owner)
	if !inside || r.q.class != wire.ClassINET {
		r.fail(wire.RcodeRefused, kindRefused)
		return
	}
	r.msg.Authoritative = true
	name, branch, nested := strings.Cut(label, ".")
	switch {
	case label == "":
		r.apex(from)
	case r.zone.hosts[r.owner] != nil:
		r.kind = kindAnswer
		r.addresses(r.zone.hosts[r.owner], infrastructureTTL)
	case label == "pop" || label == "region":
		// They are there because of the names in front of them (RFC 8020).
		r.exists()
	case nested && branch == "pop" && r.view.PoP(name) != nil:
		r.kind = kindAnswer
		r.addresses(r.view.PoP(name).Addresses, r.config.ttl())
	case nested && branch == "region" && r.view.HasRegion(name):
		r.choose(from, name)
	case nested && (branch == "pop" || branch == "region") && r.view.Topology == nil:
		r.fail(wire.RcodeServerFailure, kindServFail)
	default:
		r.fail(wire.RcodeNameError, kindNXDomain)
		r.negative()
	}
}

func (r *reply) apex(from netip.Addr) {
	r.kind = kindAnswer
	switch r.q.qtype {
	case wire.TypeNS:
		for _, rr := range r.zone.ns {
			r.add(wire.Copy(rr))
		}
		r.msg.Extra = append(r.msg.Extra, r.zone.glue...)
	case wire.TypeSOA:
		r.add(r.soa())
	default:
		r.choose(from, "")
	}
}

// choose answers with the nearest PoP, of one region if that is not empty.
func (r *reply) choose(from netip.Addr, in string) {
	family := 4
	switch r.q.qtype {
	case wire.TypeA:
	case wire.TypeAAAA:
		family = 6
	default:
		r.exists()
		return
	}
	if r.view.Topology == nil {
		r.msg.Authoritative = false
		r.fail(wire.RcodeServerFailure, kindServFail)
		return
	}
	q := region.Query{Client: netip.PrefixFrom(from, from.BitLen()), Region: in, Family: family, Random: rand.Uint64()}
	tailored := r.q.edns != nil && r.q.edns.subnet != nil && r.q.edns.subnet.source > 0
	if tailored {
		// The resolver keeps an answer for each network, so a client can stay put.
		q.Client = r.q.edns.subnet.prefix
		q.Random = region.StickyRandom(q.Client)
	}
	a := r.view.Choose(q)
	switch {
	case a.FailOpen:
		r.kind = kindFailOpen
	case a.Spilled:
		r.kind = kindSpilled
	default:
		r.kind = kindAnswer
	}
	r.addresses(a.Addresses, r.config.ttl())
	if tailored && r.msg.Answer != nil { // an answer that there is nothing holds for all
		r.scope = a.Scope
	}
}

// addresses adds those of the family that was asked for.
func (r *reply) addresses(list []netip.Addr, ttl uint32) {
	for _, a := range list {
		if r.q.qtype == wire.TypeA && a.Is4() || r.q.qtype == wire.TypeAAAA && !a.Is4() {
			r.add(record(r.q.name, a, ttl))
		}
	}
	if r.msg.Answer == nil {
		r.exists()
	}
}

// add answers with a record, in the letters of the question.
func (r *reply) add(rr wire.RR) {
	rr.Header().Name = r.q.name
	r.msg.Answer = append(r.msg.Answer, rr)
}

// exists says that the name is there, and nothing of that type. Who asks for any
// type gets one record that says to ask for one (RFC 8482).
func (r *reply) exists() {
	if r.q.qtype == wire.TypeANY {
		r.kind = kindAnswer
		r.add(&wire.HINFO{Hdr: header("", wire.TypeHINFO, infrastructureTTL), Cpu: "RFC8482"})
		return
	}
	r.kind = kindNoData
	r.negative()
}

func (r *reply) negative() {
	r.msg.Ns = append(r.msg.Ns, r.soa())
}

func (r *reply) soa() wire.RR {
	soa := r.zone.soa
	soa.Serial = r.serial(r.view.Topology)
	return &soa
}

// addOptions answers an OPT with one, and a client subnet with the same and the
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

// limit is how long the answer may be.
func (r *reply) limit(udp bool) int {
	switch {
	case !udp:
		return wire.MaxMsgSize
	case r.q.edns == nil:
		return plainUDP
	}
	return min(max(int(r.q.edns.size), plainUDP), r.config.MaxUDP)
}

// pack writes the answer. What is too long for the client loses the glue first,
// and then everything: a part would be taken for the whole.
func (r *reply) pack(udp bool) ([]byte, string) {
	limit := r.limit(udp)
	packet, err := r.msg.Pack()
	if err == nil && len(packet) > limit && r.msg.Answer != nil {
		r.stripGlue()
		packet, err = r.msg.Pack()
	}
	if err == nil && len(packet) > limit {
		packet, err = r.truncate()
		r.kind = kindTruncated
	}
	if err != nil {
		return nil, kindServFail // what was read from a packet can be written into one
	}
	return packet, r.kind
}

func (r *reply) stripGlue() {
	r.msg.Extra = nil
	r.addOptions()
}

func (r *reply) truncate() ([]byte, error) {
	r.msg.Truncated, r.msg.Answer, r.msg.Ns = true, nil, nil
	r.stripGlue()
	return r.msg.Pack()
}

// serial numbers a topology by its content, so that all routers say the same.
// That later numbers are higher matters only to those who copy zones, and this
// one is not given away.
func (s *Server) serial(t *region.Topology) uint32 {
	if last := s.serialOf.Load(); last != nil && last.topology == t {
		return last.serial
	}
	text, _ := json.Marshal(t) // plain data
	serial := crc32.ChecksumIEEE(text)
	s.serialOf.Store(&numbered{t, serial})
	return serial
}

type numbered struct {
	topology *region.Topology
	serial   uint32
}

// zoneOf returns the zone to answer for: that of the configuration, or of the
// topology; nil if neither names one.
func (s *Server) zoneOf(v *region.View) *zone {
	if s.fixed != nil || v.Topology == nil {
		return s.fixed
	}
	if z := s.derived.Load(); z != nil && z.name == v.Topology.Zone+"." {
		return z
	}
	z, err := newZone(v.Topology.Zone, &s.config)
	if err != nil {
		return nil
	}
	s.derived.Store(z)
	return z
}
