package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// patience is a time budget that no healthy call uses up, however slow the machine.
const patience = 5 * time.Second

func open(t testing.TB, c redisstore.Config) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestTimelines(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	storetest.Run(t, func(t *testing.T, clock func() int64) limiter.TakeReturner {
		require.NoError(t, server.Client().FlushAll(context.Background()).Err())
		return open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: clock})
	})
}
