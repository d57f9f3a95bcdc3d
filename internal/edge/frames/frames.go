// Package frames follows the frames of an HTTP/2 connection without keeping what they carry, and
// counts them against budgets.
package frames

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Follower follows the frames in one direction of a connection. The zero value begins with a frame.
type Follower struct {
	head [headSize + goAwaySize]byte
	n    int // of head
	left int // of the payload
	last Frame
}

const (
	headSize = 9
	codeSize = 4 // the payload of RST_STREAM, and the end of GOAWAY's fixed part
	// goAwaySize is the fixed part of GOAWAY's payload: the last stream precedes the code.
	goAwaySize = 8
)

// Frame is the header of a frame.
type Frame struct {
	Kind   http2.FrameType
	Flags  http2.Flags
	Stream uint32
	Length int           // bytes of its payload
	Pad    int           // of DATA, in bytes
	Code   http2.ErrCode // of RST_STREAM and GOAWAY
}

// Data returns how many bytes of data a DATA frame has.
func (f *Frame) Data() int { return f.Length - f.Pad }

// Ends reports whether the sender's half of the stream ends with a HEADERS or DATA frame.
func (f *Frame) Ends() bool {
	return (f.Kind == http2.FrameHeaders || f.Kind == http2.FrameData) && f.Flags.Has(http2.FlagDataEndStream) // the same in HEADERS
}

// SkipPreface says that the client's preface precedes the first frame.
func (s *Follower) SkipPreface() { s.left = len(http2.ClientPreface) }

// Follow calls each for every frame whose head ends in b. The frame is valid during the call.
func (s *Follower) Follow(b []byte, each func(*Frame)) {
	for len(b) > 0 {
		if s.left > 0 {
			skipped := min(s.left, len(b))
			s.left, b = s.left-skipped, b[skipped:]
			continue
		}
		n := copy(s.head[s.n:s.needs()], b)
		s.n, b = s.n+n, b[n:]
		if s.n < headSize || s.n < s.needs() {
			continue
		}
		f := &s.last // a local variable would be allocated for each frame
		*f = Frame{
			Kind: http2.FrameType(s.head[3]), Flags: http2.Flags(s.head[4]),
			Stream: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1), Length: s.length(),
		}
		switch {
		case f.Kind == http2.FrameData && s.n > headSize:
			f.Pad = 1 + int(s.head[headSize]) // its length is a byte itself
		case s.n > headSize:
			f.Code = http2.ErrCode(binary.BigEndian.Uint32(s.head[s.n-codeSize:]))
		}
		s.left = f.Length - (s.n - headSize)
		s.n = 0
		each(f)
	}
}

func (s *Follower) length() int {
	return int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
}

// needs returns how much of head this frame needs.
func (s *Follower) needs() int {
	switch kind := http2.FrameType(s.head[3]); {
	case s.n < headSize:
		return headSize
	case kind == http2.FrameData && http2.Flags(s.head[4]).Has(http2.FlagDataPadded) && s.length() > 0:
		return headSize + 1
	case kind == http2.FrameRSTStream && s.length() == codeSize:
		return headSize + codeSize
	case kind == http2.FrameGoAway && s.length() >= goAwaySize:
		return headSize + goAwaySize
	}
	return headSize
}

// Within reports whether the last frame is incomplete and is, or may be, part of a header.
func (s *Follower) Within() bool {
	kind := http2.FrameType(s.head[3])
	return s.n > 0 || s.left > 0 && (kind == http2.FrameHeaders || kind == http2.FrameContinuation)
}

// Between reports whether the last frame is complete.
func (s *Follower) Between() bool { return s.n == 0 && s.left == 0 }
