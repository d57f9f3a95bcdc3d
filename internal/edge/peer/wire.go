package peer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// exchangePath is followed by a topic. By itself, it returns the node's identity.
const exchangePath = "/v1/exchange/"

// The headers of both directions.
const (
	headerVersion  = "Weir-Version"  // in which a message is written
	headerVersions = "Weir-Versions" // that a node speaks, separated by commas
	headerRegion   = "Weir-Region"   // the sender's
	headerNode     = "Weir-Node"     // the sender's
	headerRegions  = "Weir-Regions"  // fingerprint of all regions in order
)

// compressFrom is the size from which compression saves more than it costs.
const compressFrom = 512

const encodingZstd = "zstd"

var (
	errTooLong  = fmt.Errorf("longer than %d bytes", MaxBody)
	errDamaged  = errors.New("damaged")
	errEncoding = errors.New("must be zstd or not encoded")
)

var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2),
		zstd.WithSingleSegment(true), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // only if the options above are wrong
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxBody), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // only if the options above are wrong
	}
	return d
})

// encode returns a body as transmitted, and its encoding. The caller must not change body
// while the result is in use.
func encode(body []byte) (wire []byte, encoding string) {
	if len(body) < compressFrom {
		return body, ""
	}
	if wire = encoder().EncodeAll(body, nil); len(wire) < len(body) {
		return wire, encodingZstd
	}
	return body, ""
}

// decodedSize returns how long a body will be, without decoding it.
func decodedSize(wire []byte, encoding string) (int, error) {
	switch encoding {
	case "":
		return len(wire), nil
	case encodingZstd:
		var h zstd.Header
		if h.Decode(wire) != nil || !h.HasFCS || h.Skippable {
			return 0, errDamaged
		}
		if h.FrameContentSize > MaxBody {
			return 0, errTooLong
		}
		return int(h.FrameContentSize), nil
	default:
		return 0, errEncoding
	}
}

// decode returns the body, whose length decodedSize has returned. A body that claims to be
// shorter than it is fails before it takes more memory.
func decode(wire []byte, encoding string, size int) ([]byte, error) {
	if encoding == "" {
		return wire, nil
	}
	body, err := decoder().DecodeAll(wire, make([]byte, 0, size))
	if err != nil || len(body) != size {
		return nil, errDamaged
	}
	return body, nil
}

// readWire reads a body of a stated length.
func readWire(r io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return nil, errors.New("needs a Content-Length")
	}
	if length > MaxBody {
		return nil, errTooLong
	}
	wire := make([]byte, length)
	_, err := io.ReadFull(r, wire)
	return wire, err
}

// formatVersions and parseVersions write and read Weir-Versions.
func formatVersions(list []int) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = strconv.Itoa(v)
	}
	return strings.Join(words, ",")
}

func parseVersions(text string) (list []int) {
	for word := range strings.SplitSeq(text, ",") {
		if v, err := strconv.Atoi(strings.TrimSpace(word)); err == nil && v > 0 && len(list) < 16 {
			list = append(list, v)
		}
	}
	return list
}

// oldestCommon returns the oldest version in both lists.
func oldestCommon(own, other []int) (oldest int, ok bool) {
	for _, v := range own {
		if slices.Contains(other, v) && (!ok || v < oldest) {
			oldest, ok = v, true
		}
	}
	return oldest, ok
}

// fingerprint identifies an ordered list of regions: nodes that number regions differently
// must not accept each other's messages.
func fingerprint(regions []string) string {
	if len(regions) == 0 {
		return ""
	}
	return strconv.FormatUint(xxhash.Sum64String(strings.Join(regions, "\n")), 16)
}

// sign writes the sender of a message.
func (c *Config) sign(h http.Header) {
	h.Set(headerRegion, c.Self.Region)
	h.Set(headerNode, c.Self.ID)
	h.Set(headerRegions, c.Directory.fingerprint())
}

// line turns received text into one line.
func line(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), 200)], "?"))
}
