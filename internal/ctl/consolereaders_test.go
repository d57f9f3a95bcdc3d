package ctl

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/ctl/command"
)

// people sends a person's request to a console of the fleet behind a proxy, in which bob is an
// operator and all others are readers.
func (f *testFleet) people(t *testing.T) func(ctx context.Context, user, method, path, body string) *httptest.ResponseRecorder {
	config, err := access.Load(write(t, "console.yaml", "listen: 127.0.0.1:0\npublic: https://weir.example.com\nproxy: {from: [192.0.2.1/32], header: X-Forwarded-User}\nroles: [{who: {groups: [\"*\"]}, may: reader}, {who: {users: [bob]}, may: operator}]\n"))
	require.NoError(t, err)
	gate, err := access.New(config, "console@host")
	require.NoError(t, err)
	p := f.program(strings.NewReader(""), io.Discard, io.Discard)
	p.FleetFile, p.Timeout = f.file, command.DefaultTimeout
	handler := console.New(t.Context(), console.Config{Do: perform(p), Access: gate, Origin: config.Origin(), Log: slog.New(slog.DiscardHandler)}, netip.MustParseAddrPort("127.0.0.1:8090")).Handler()
	return func(ctx context.Context, user, method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, method, config.Origin()+console.Prefix+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-User", user)
		if person, err := gate.Identify(r); err == nil {
			r.Header.Set(access.HeaderToken, person.Token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
}

// A reader whose requests take long, because a region hangs, starves neither operators nor other
// readers.
func TestReadersStarveNobody(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	send := f.people(t)

	f.consuls["us-east"].Suspend()
	var loops sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); loops.Wait() }()
	full := make(chan struct{}, 1)
	for range 24 {
		loops.Go(func() {
			for ctx.Err() == nil {
				if send(ctx, "eve", "GET", "/audit/changes", "").Code == http.StatusServiceUnavailable {
					select {
					case full <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	<-full
	for range 3 {
		w := send(t.Context(), "bob", "POST", "/shedder/off", `{"for": "1h", "region": ["eu-west"]}`)
		require.Equal(t, 200, w.Code, "%s", w.Body)
		w = send(t.Context(), "ana", "GET", "/shedder?region=eu-west", "")
		require.Equal(t, 200, w.Code, "%s", w.Body)
	}
}
