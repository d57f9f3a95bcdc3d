package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frames follows the frames in one direction of a connection.
type frames struct {
	head [headSize + goAwaySize]byte
	n    int // of head
	left int // of the payload
	last frame
}

const (
	headSize = 9
	codeSize = 4 // the payload of RST_STREAM, and the end of GOAWAY's fixed part
	// goAwaySize is the fixed part of GOAWAY's payload: the last stream precedes the code.
	goAwaySize = 8
)

// frame is the header of a frame.
type frame struct {
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
	length int
	pad    int           // of DATA
	code   http2.ErrCode // of RST_STREAM and GOAWAY
}

// data returns how many bytes of data a DATA frame has.
func (f *frame) data() int { return f.length - f.pad }

// follow calls each for every frame whose head ends in b. The frame is valid during the call.
func (s *frames) follow(b []byte, each func(*frame)) {
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
		*f = frame{
			kind: http2.FrameType(s.head[3]), flags: http2.Flags(s.head[4]),
			stream: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1), length: s.length(),
		}
		switch {
		case f.kind == http2.FrameData && s.n > headSize:
			f.pad = 1 + int(s.head[headSize]) // its length is a byte itself
		case s.n > headSize:
			f.code = http2.ErrCode(binary.BigEndian.Uint32(s.head[s.n-codeSize:]))
		}
		s.left = f.length - (s.n - headSize)
		s.n = 0
		each(f)
	}
}

func (s *frames) length() int {
	return int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
}

// needs returns how much of head this frame needs.
func (s *frames) needs() int {
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

// within reports whether the last frame is incomplete and is, or may be, part of a header.
func (s *frames) within() bool {
	kind := http2.FrameType(s.head[3])
	return s.n > 0 || s.left > 0 && (kind == http2.FrameHeaders || kind == http2.FrameContinuation)
}

// between reports whether the last frame is complete.
func (s *frames) between() bool { return s.n == 0 && s.left == 0 }
