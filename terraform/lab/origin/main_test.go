package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// A lane with one worker serves one request at a time, whatever other lanes do.
func TestLanesQueue(t *testing.T) {
	l := lanes{all: map[string]chan struct{}{}}
	lane := func(name, workers string) url.Values { return url.Values{"lane": {name}, "workers": {workers}} }
	leave, err := l.enter(t.Context(), lane("ams1", "1"))
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.enter(gone, lane("ams1", "1"))
	require.ErrorIs(t, err, errGone)
	for _, other := range []url.Values{lane("fra1", "1"), lane("ams1", "2"), {}} {
		free, err := l.enter(t.Context(), other)
		require.NoError(t, err)
		free()
	}
	served := make(chan error)
	go func() {
		_, err := l.enter(t.Context(), lane("ams1", "1"))
		served <- err
	}()
	select {
	case <-served:
		t.Fatal("two are served at a time")
	default:
	}
	leave()
	require.NoError(t, <-served)

	for _, workers := range []string{"", "0", "-1", "10001", "x"} {
		_, err = l.enter(t.Context(), lane("ams1", workers))
		require.ErrorContains(t, err, "workers must be a number from 1 to 10000", workers)
	}
	for i := range mostLanes {
		_, err = l.enter(t.Context(), lane(fmt.Sprint(i), "1"))
	}
	require.ErrorIs(t, err, errLanes)
	w := httptest.NewRecorder()
	handler("eu-west").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?lane=ams1", nil))
	require.Equal(t, http.StatusBadRequest, w.Code)
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", "eu-west") }()
	cancel()
	require.NoError(t, <-ended)
	require.Error(t, run(t.Context(), "127.0.0.1:-1", ""))
}
