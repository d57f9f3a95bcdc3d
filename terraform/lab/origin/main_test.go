package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHandler(t *testing.T) {
	f := func(target string, status int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler("eu-west").ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		require.Equal(t, status, w.Code)
		require.Equal(t, body, w.Body.String())
		if status == http.StatusOK {
			require.Equal(t, "eu-west", w.Header().Get("Origin-Region"))
		}
	}
	f("/hello?a=b", 200, "hello from eu-west: GET /hello?a=b\n")
	f("/?wait=1ms", 200, "hello from eu-west: GET /?wait=1ms\n")
	for _, wait := range []string{"x", "-1s", "31s"} {
		f("/?wait="+wait, 400, "wait must be a duration from 0s to 30s\n")
	}
}

func TestAClientThatGoesIsNotWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	began := time.Now()
	handler("eu-west").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?wait=30s", nil).WithContext(ctx))
	require.Less(t, time.Since(began), 20*time.Second)
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", "eu-west") }()
	cancel()
	require.NoError(t, <-ended)
	require.Error(t, run(t.Context(), "127.0.0.1:-1", ""))
}
