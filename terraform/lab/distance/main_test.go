package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
}

// A link delays what passes, lets nothing through while one of its regions is cut off, and
// everything once both are joined again.
func TestDistance(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer target.Close()
	control := freeAddress(t)
	links := []link{{From: "a", To: "b", Listen: freeAddress(t), Target: target.Listener.Addr().String(), Milliseconds: 60}}
	text, err := json.Marshal(links)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "links.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, control, file) }()
	defer func() { stop(); require.NoError(t, <-ended) }()
	post := func(what string) int {
		resp, err := http.Post("http://"+control+"/"+what, "", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	get := func(within time.Duration) error {
		c := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Get("http://" + links[0].Listen)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	require.Eventually(t, func() bool { resp, err := http.Get("http://" + control); return err == nil && resp.Body.Close() == nil }, testenv.Patience, 5*time.Millisecond)
	began := time.Now()
	require.NoError(t, get(testenv.Patience))
	require.GreaterOrEqual(t, time.Since(began), 60*time.Millisecond)

	require.Equal(t, http.StatusOK, post("cut/b"))
	require.Equal(t, http.StatusOK, post("cut/b"), "again changes nothing")
	require.Error(t, get(300*time.Millisecond))
	require.Equal(t, http.StatusOK, post("cut/a"))
	require.Equal(t, http.StatusOK, post("join/b"))
	require.Error(t, get(300*time.Millisecond), "the other end is cut off")
	require.Equal(t, http.StatusOK, post("join/a"))
	require.NoError(t, get(testenv.Patience))
	require.Equal(t, http.StatusBadRequest, post("cut/c"))
	require.Equal(t, http.StatusNotFound, post("else"))
}
