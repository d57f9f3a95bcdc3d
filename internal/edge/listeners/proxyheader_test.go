package listeners

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const addresses4 = "\xcb\x00\x71\x07\xc0\x00\x02\x01\x9c\x40\x01\xbb" // 203.0.113.7 to 192.0.2.1

// version2 is a header of version 2 with these bytes behind the fixed part.
func version2(command, family byte, rest string) string {
	b := append([]byte(nil), proxyproto.SIGV2...)
	b = binary.BigEndian.AppendUint16(append(b, command, family), uint16(len(rest)))
	return string(b) + rest
}

// Whatever a balancer sends, in whatever pieces: the same end, the same fault, the same client,
// and what the library reads, this reads too.
func FuzzPROXYHeader(f *testing.F) {
	for _, header := range []string{
		"PROXY TCP4 203.0.113.7 192.0.2.1 40000 443\r\n", "PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n", "PROXY UNKNOWN\r\n",
		version2(0x21, 0x11, addresses4), version2(0x21, 0x11, addresses4+"\x01\x00\x02h2"), version2(0x21, 0x11, addresses4+strings.Repeat("\xff", 65535-len(addresses4))),
		version2(0x20, 0x00, ""), version2(0x20, 0x11, addresses4), version2(0x21, 0x00, ""), version2(0x21, 0x31, strings.Repeat("/", 216)), version2(0x22, 0x11, addresses4),
	} {
		f.Add([]byte(header + "GET / HTTP/1.1\r\n"))
	}
	f.Add([]byte("PROXY TCP4 " + strings.Repeat("1", 100)))
	f.Fuzz(func(t *testing.T, input []byte) {
		testenv.Bounded(t, 1<<20+64*uint64(len(input)), func() {
			whole, pieces := newProxyHeader(), newProxyHeader()
			n, ended, err := whole.take(input)
			require.LessOrEqual(t, len(whole.kept), fixedHeader+longestAddresses)
			at, also := 0, false
			var fault error
			for at < len(input) && !also && fault == nil {
				var k int
				k, also, fault = pieces.take(input[at : at+1])
				at += k
			}
			require.Equal(t, []any{n, ended, err}, []any{at, also, fault})
			library, libraryErr := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(input), 1<<17))
			if !ended || err != nil {
				require.Error(t, libraryErr)
				return
			}
			client, err := whole.source()
			if libraryErr == nil {
				require.NoError(t, err)
				if source, _, ok := library.TCPAddrs(); ok && library.Command.IsProxy() {
					require.Equal(t, source.String(), client.String())
				} else {
					require.Nil(t, client)
				}
			}
		})
	})
}
