package dns

import (
	"net/netip"
	"testing"
	"testing/synctest"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// Only TCP gets a proof, and at most as many as the rate limit allows one network: a signature costs
// more than any other answer.
func TestProofs(t *testing.T) {
	c := config(view(t, fleet, healthy))
	text, signed := "", 0
	c.Proof = func(name string) string { signed++; return text + name }
	c.RateLimit = 3
	from := "127.0.0.1"
	f := func(s *Server, name string, qtype uint16, udp bool) (*wire.Msg, string) {
		t.Helper()
		answer, kind := s.answer(ask(t, name, qtype), netip.MustParseAddr(from), udp)
		m := new(wire.Msg)
		require.NoError(t, m.Unpack(answer))
		return m, kind
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := New(c)
		require.NoError(t, err)
		text = "fresh "
		m, _ := f(s, "Abc._Weir-facts.edge.example.com.", wire.TypeTXT, false)
		require.Equal(t, []string{"fresh abc._weir-facts.edge.example.com."}, m.Answer[0].(*wire.TXT).Txt)
		require.Zero(t, m.Answer[0].Header().Ttl)
		m, kind := f(s, "abc._weir-facts.edge.example.com.", wire.TypeTXT, true)
		require.Equal(t, []any{true, 0, kindTruncated}, []any{m.Truncated, len(m.Answer), kind})
		_, kind = f(s, "abc._weir-facts.edge.example.com.", wire.TypeA, false)
		require.Equal(t, kindNoData, kind)
		_, kind = f(s, "_weir-facts.edge.example.com.", wire.TypeTXT, false)
		require.Equal(t, kindNoData, kind)
		require.Equal(t, 1, signed)
		for range 10 {
			_, kind = f(s, "abc._weir-facts.edge.example.com.", wire.TypeTXT, false)
		}
		require.Equal(t, kindNoData, kind)
		require.Equal(t, 3, signed)
		from = "192.0.2.1"
		_, kind = f(s, "abc._weir-facts.edge.example.com.", wire.TypeTXT, false)
		require.NotEqual(t, kindNoData, kind, "one network uses up nobody else's")
	})
	c.Proof = nil
	s, err := New(c)
	require.NoError(t, err)
	_, kind := f(s, "abc._weir-facts.edge.example.com.", wire.TypeTXT, false)
	require.Equal(t, kindNoData, kind)
}
