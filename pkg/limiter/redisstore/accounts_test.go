package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

func TestExchangeAccounts(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	now := int64(1_800_000_000_000_000)
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: func() int64 { return now }})
	say := func(node, key, accounts string) *redisstore.Accounts {
		t.Helper()
		c, err := s.ExchangeAccounts(t.Context(), node, key, accounts)
		require.NoError(t, err)
		require.Equal(t, now, c.Now.UnixMicro())
		return c
	}
	// All nodes use the first key; no node receives its own report.
	require.Equal(t, "k1", say("a", "k1", "of a").Key)
	got := say("b", "k2", "\x00\xff of b\n")
	require.Equal(t, "k1", got.Key)
	require.Equal(t, 1, got.Others)
	require.Empty(t, got.Words, "a node does not get its own report: nodes would get everything twice per second")
	require.Equal(t, []string{"of a"}, say("b", "k2", "").Words)
	large := strings.Repeat("x", 200<<10)
	say("a", "k1", large)
	require.Equal(t, []string{large}, say("b", "k1", "").Words)
	require.Equal(t, []string{"\x00\xff of b\n"}, say("a", "k1", "").Words, "asking reports nothing new")

	// Reports older than three seconds are gone, by either clock.
	now += 3_000_000
	got = say("c", "k1", "")
	require.Len(t, got.Words, 2)
	require.Equal(t, 2, got.Others)
	now += 1_000_000
	require.Zero(t, say("c", "k1", "").Others)
	require.EqualValues(t, 1, server.Client().HLen(t.Context(), "weir:{~behavior}").Val(), "only the key is left")
	say("a", "k1", "again")
	now -= 3_600_000_000
	require.Zero(t, say("b", "k1", "").Others)

	// A server that lost its data learns the key from the nodes that use it.
	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	require.Equal(t, "k1", say("b", "k1", "").Key)
	ttl, err := server.Client().PTTL(t.Context(), "weir:{~behavior}").Result()
	require.NoError(t, err)
	require.Positive(t, ttl)

	require.NoError(t, server.Client().Set(t.Context(), "weir:{~behavior}", "?", 0).Err())
	_, err = s.ExchangeAccounts(t.Context(), "a", "k1", "x")
	require.Error(t, err, "a foreign key")
	require.NoError(t, server.Client().Del(t.Context(), "weir:{~behavior}").Err())

	server.Suspend()
	began := time.Now()
	_, err = s.ExchangeAccounts(t.Context(), "a", "k1", "x")
	require.Error(t, err)
	t.Logf("a hung server was waited for %s", time.Since(began))
	server.Resume()
}
