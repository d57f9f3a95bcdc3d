package consul

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func noise(n int) []byte {
	rng, data := rand.NewChaCha8([32]byte{1}), make([]byte, n)
	rng.Read(data)
	return data
}

func TestEncodingRoundTrip(t *testing.T) {
	f := func(t require.TestingT, document []byte) []byte {
		stored, err := Encode(document)
		require.NoError(t, err)
		require.LessOrEqual(t, len(stored), maxValue)
		back, err := Decode(stored)
		require.NoError(t, err)
		require.True(t, bytes.Equal(document, back), "%d bytes", len(document))
		return stored
	}
	text := bytes.Repeat([]byte("rules: [] # and so on\n"), MaxDocument/22+1)[:MaxDocument]
	require.Len(t, f(t, text[:maxPlain]), maxPlain, "as it is while it fits")
	require.Less(t, len(f(t, text[:maxPlain+1])), maxPlain/10, "compressed from one byte more")
	f(t, text)
	f(t, append(noise(maxValue-10_000), text[:100_000]...))
	require.NotEqual(t, gzipMagic, f(t, gzipMagic), "what looks compressed is compressed too")
	rapid.Check(t, func(t *rapid.T) {
		document := rapid.SliceOf(rapid.Byte()).Draw(t, "document")
		if rapid.Bool().Draw(t, "magic") {
			document = append(bytes.Clone(gzipMagic), document...)
		}
		f(t, document)
	})
	first, err := Encode(text)
	require.NoError(t, err)
	second, err := Encode(text)
	require.NoError(t, err)
	require.Equal(t, first, second, "the same bytes each time")
}

func TestEncodeRefusesWhatDoesNotFit(t *testing.T) {
	_, err := Encode(noise(800_000))
	require.Regexp(t, `^document is 800\d{3} bytes after compression, over Consul's 524288 for one key; split or shorten it$`, err.Error())
	_, err = Encode(make([]byte, MaxDocument+1))
	require.EqualError(t, err, "document is 2097153 bytes; the maximum is 2097152; split or shorten it")
}

func TestDecodeRefuses(t *testing.T) {
	f := func(stored []byte, want string) {
		t.Helper()
		document, err := Decode(stored)
		require.EqualError(t, err, want)
		require.Nil(t, document)
	}
	pack := func(document []byte) []byte {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		require.NoError(t, err)
		_, err = w.Write(document)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	good := pack([]byte("rules: []\n"))

	bomb := pack(make([]byte, 64<<20))
	require.Less(t, len(bomb), maxValue)
	allocated := testing.AllocsPerRun(1, func() { f(bomb, "is over 2097152 bytes when decompressed, more than a document may have") })
	require.Less(t, allocated, 200.0)
	f(pack(make([]byte, MaxDocument+1)), "is over 2097152 bytes when decompressed, more than a document may have")
	f(make([]byte, MaxDocument+1), "is 2097153 bytes, over the 2097152 that a document may have")
	f(good[:len(good)-1], "decompress: unexpected EOF")
	f(good[:12], "decompress: unexpected EOF")
	f(good[:2], "decompress: unexpected EOF")
	f(append(bytes.Clone(good), "something else behind it"...), "decompress: gzip: invalid header")
	flipped := bytes.Clone(good)
	flipped[len(flipped)-6] ^= 1
	f(flipped, "decompress: gzip: invalid checksum")
	f(append(bytes.Clone(gzipMagic), "no gzip at all"...), "decompress: gzip: invalid header")

	_, err := Decode(pack(make([]byte, MaxDocument)))
	require.NoError(t, err)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("rules: []\n"))
	f.Add(append(bytes.Clone(gzipMagic), 8, 0))
	f.Fuzz(func(t *testing.T, stored []byte) {
		if document, err := Decode(stored); err == nil {
			require.LessOrEqual(t, len(document), MaxDocument)
		}
	})
}
