package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// profile writes the CPU profile of the edge at addr under load into the folder of
// -profiles. make profile merges the profiles for the compiler.
func (b *bench) profile(ctx context.Context, addr string) error {
	admin, isEdge := b.admins[addr]
	if b.profiles == "" || !isEdge {
		return nil
	}
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, max(1, int(b.duration.Seconds())))
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
		return fmt.Errorf("profile: %s", resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%d.pprof", time.Now().UnixNano())), data, 0o644)
}
