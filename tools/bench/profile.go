package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// profile writes the CPU profile of the edge at addr under load into the folder of
// -profiles. make profile merges the profiles for the compiler.
func (b *bench) profile(ctx context.Context, addr string) error {
	return b.inspect(ctx, addr, "profile", fmt.Sprintf("%d.pprof", time.Now().UnixNano()))
}

// trace writes an execution trace, which go tool trace -pprof turns into profiles of the time that
// goroutines wait. Tracing costs CPU time, so figures of such a run say less.
func (b *bench) trace(ctx context.Context, addr, name string, rate int) error {
	name = strings.NewReplacer(" ", "-", ",", "", ":", "", "/", "").Replace(name)
	return b.inspect(ctx, addr, "trace", fmt.Sprintf("%s-%d.trace", name, rate))
}

// inspect saves what an edge's pprof endpoint shows of one measurement, if -profiles asks for it.
func (b *bench) inspect(ctx context.Context, addr, what, file string) error {
	admin, isEdge := b.admins[addr]
	if b.profiles == "" || !isEdge {
		return nil
	}
	url := fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", admin, what, max(1, int(b.duration.Seconds())))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", what, resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.profiles, file), data, 0o644)
}
