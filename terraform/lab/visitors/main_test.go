package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVisitors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	var asked, tooOften, guesses atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch client := r.Header.Get("X-Forwarded-For"); {
		case client == "203.0.113.66":
			tooOften.Add(1)
		case r.Method == http.MethodPost && r.URL.Path == "/login":
			guesses.Add(1)
		}
		// Chance sends some guesses to the edge that is none.
		if asked.Add(1) >= 200 && tooOften.Load() > 0 && guesses.Load() > 0 {
			cancel()
		}
	}))
	defer server.Close()
	edges := func(context.Context) ([]string, error) {
		return []string{strings.TrimPrefix(server.URL, "http://"), "not an address"}, nil
	}
	require.NoError(t, visit(ctx, edges, mostRate, rand.IntN))
	require.GreaterOrEqual(t, asked.Load(), int64(200))
	require.Positive(t, tooOften.Load())
	require.Positive(t, guesses.Load())
	require.ErrorContains(t, visit(t.Context(), func(context.Context) ([]string, error) { return nil, errors.New("none") }, 1, rand.IntN), "none")
}

// Edges that do not answer are asked by a bounded number of requests.
func TestVisitorsAreBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	let := make(chan struct{})
	var inside atomic.Int64 // none leaves before the end
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if inside.Add(1) >= mostAtOnce {
			cancel()
		}
		<-let
	}))
	defer server.Close()
	go func() { <-ctx.Done(); close(let) }()
	require.NoError(t, visit(ctx, func(context.Context) ([]string, error) {
		return []string{strings.TrimPrefix(server.URL, "http://")}, nil
	}, mostRate, rand.IntN))
	require.EqualValues(t, mostAtOnce, inside.Load())
}

func TestEdgesOf(t *testing.T) {
	program := filepath.Join(t.TempDir(), "regionctl")
	say := func(text string) {
		require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho '"+text+"'\nexit 3\n"), 0o755))
	}
	say(`{"regions": [{"nodes": [{"address": "127.1.1.11:8080"}]}, {"nodes": []}]}`)
	list, err := edgesOf(t.Context(), program, "fleet.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"127.1.1.11:8080"}, list)
	say(`{"regions": []}`)
	_, err = edgesOf(t.Context(), program, "fleet.yaml")
	require.ErrorContains(t, err, "no edge is registered")
	say("nonsense")
	_, err = edgesOf(t.Context(), program, "fleet.yaml")
	require.Error(t, err)
}
