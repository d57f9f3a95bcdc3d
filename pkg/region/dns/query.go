package dns

import (
	"encoding/binary"
	"net/netip"

	wire "github.com/miekg/dns"
)

const (
	headerLen = 12
	// maxQuery is the longest query that is accepted. A question and its options need a
	// tenth of it.
	maxQuery = 4096
	// plainUDP is the limit of a client that does not state one.
	plainUDP = 512
)

// question is the question of a packet.
type question struct {
	id               uint16
	opcode           int
	recurse, nocheck bool // RD and CD, which an answer repeats
	name             string
	qtype, class     uint16
	edns             *edns
}

// edns is the OPT record of a query.
type edns struct {
	size    uint16
	version uint8
	do      bool
	subnet  *subnet
	faulty  bool // its options are malformed; everything before them is valid
}

// subnet is the client subnet of a query (RFC 7871), as sent.
type subnet struct {
	family uint16
	source uint8
	addr   []byte
	prefix netip.Prefix // not valid for family 0
	// mapped is how many bits of an IPv6 address precede the IPv4 network that prefix then is.
	mapped int
}

// parse parses a query. ok is false if it deserves no answer: it is too short, or an
// answer itself. Everything else gets one, with rcode if there is a fault; then q holds
// what could be parsed before the fault. It is stricter than the library, which does not
// show how a client subnet was written.
func parse(packet []byte) (q question, rcode int, ok bool) {
	if len(packet) < headerLen {
		return q, 0, false
	}
	bits := binary.BigEndian.Uint16(packet[2:])
	if bits&(1<<15) != 0 {
		return q, 0, false // answering an answer could continue forever
	}
	q.id = binary.BigEndian.Uint16(packet)
	q.opcode = int(bits >> 11 & 15)
	q.recurse, q.nocheck = bits&(1<<8) != 0, bits&(1<<4) != 0
	if q.opcode != wire.OpcodeQuery {
		return q, wire.RcodeNotImplemented, true
	}
	count := func(i int) int { return int(binary.BigEndian.Uint16(packet[4+2*i:])) }
	// IXFR comes with an SOA; keys and signatures follow the options.
	if count(0) != 1 || count(1) != 0 || count(2) > 1 || count(3) > 4 {
		return q, wire.RcodeFormatError, true
	}
	name, off, err := wire.UnpackDomainName(packet, headerLen)
	if err != nil || off+4 > len(packet) || compressed(packet[headerLen:off]) {
		return q, wire.RcodeFormatError, true
	}
	q.name = name
	q.qtype, q.class = binary.BigEndian.Uint16(packet[off:]), binary.BigEndian.Uint16(packet[off+2:])
	off += 4
	for i := range count(2) + count(3) {
		if off, ok = q.record(packet, off, i >= count(2)); !ok {
			q.edns = nil
			return q, wire.RcodeFormatError, true
		}
	}
	if off != len(packet) {
		q.edns = nil
		return q, wire.RcodeFormatError, true
	}
	if q.edns != nil && q.edns.version != 0 {
		q.edns.subnet = nil
		return q, wire.RcodeBadVers, true
	}
	if q.edns != nil && (q.edns.faulty || q.edns.subnet != nil && !q.edns.subnet.parse()) {
		q.edns.subnet = nil
		return q, wire.RcodeFormatError, true
	}
	return q, wire.RcodeSuccess, true
}

// compressed reports whether a name contains a pointer: in a question it could only lead
// into the header.
func compressed(name []byte) bool {
	for i := 0; i < len(name) && name[i] != 0; i += 1 + int(name[i]) {
		if name[i]&0xc0 != 0 {
			return true
		}
	}
	return false
}

// record skips a record, or reads it if it is the OPT.
func (q *question) record(packet []byte, off int, additional bool) (next int, ok bool) {
	start := off
	_, off, err := wire.UnpackDomainName(packet, off)
	if err != nil || off+10 > len(packet) {
		return 0, false
	}
	fixed := packet[off : off+10]
	data := off + 10
	next = data + int(binary.BigEndian.Uint16(fixed[8:]))
	if next > len(packet) {
		return 0, false
	}
	if binary.BigEndian.Uint16(fixed) != wire.TypeOPT {
		return next, true
	}
	// There is one, owned by the root, among the additional records.
	if q.edns != nil || packet[start] != 0 || !additional {
		return 0, false
	}
	q.edns = &edns{size: binary.BigEndian.Uint16(fixed[2:]), version: fixed[5], do: fixed[6]&0x80 != 0}
	q.edns.faulty = !q.edns.options(packet[data:next])
	return next, true
}

func (e *edns) options(data []byte) bool {
	for len(data) > 0 {
		if len(data) < 4 {
			return false
		}
		code, length := binary.BigEndian.Uint16(data), int(binary.BigEndian.Uint16(data[2:]))
		if data = data[4:]; len(data) < length {
			return false
		}
		if code == wire.EDNS0SUBNET && e.version == 0 {
			if e.subnet != nil || length < 4 {
				return false
			}
			if data[3] != 0 {
				return false // only answers set the scope
			}
			e.subnet = &subnet{family: binary.BigEndian.Uint16(data), source: data[2], addr: data[4:length]}
		}
		data = data[length:]
	}
	return true
}

// parse reports whether the subnet conforms to RFC 7871, section 6: exactly the octets
// that its length requires, and no bits beyond it. Family 0 means "no address", which dig
// sends for +subnet=0.
func (s *subnet) parse() bool {
	if len(s.addr) != (int(s.source)+7)/8 {
		return false
	}
	var a netip.Addr
	switch {
	case s.family == 0:
		return s.source == 0
	case s.family == 1 && s.source <= 32:
		var b [4]byte
		copy(b[:], s.addr)
		a = netip.AddrFrom4(b)
	case s.family == 2 && s.source <= 128:
		var b [16]byte
		copy(b[:], s.addr)
		a = netip.AddrFrom16(b)
	default:
		return false
	}
	s.prefix = netip.PrefixFrom(a, int(s.source))
	if s.prefix != s.prefix.Masked() {
		return false
	}
	if a.Is4In6() {
		// Its scope counts all bits: in those of IPv4 it would stand for half of IPv6.
		s.mapped = 96
		s.prefix = netip.PrefixFrom(a.Unmap(), int(s.source)-s.mapped)
	}
	return true
}
