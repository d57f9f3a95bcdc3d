package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// profile writes the CPU profile of the edge at addr under load into the folder of
// -profiles. make profile merges the profiles for the compiler.
func (b *bench) profile(addr string) error {
	return b.inspect(addr, "profile", fmt.Sprintf("%d.pprof", time.Now().UnixNano()))
}

// inspect saves what an edge's pprof endpoint shows of a measurement, if -profiles asks for it.
func (b *bench) inspect(addr, what, file string) error {
	admin, isEdge := b.admins[addr]
	if b.profiles == "" || !isEdge {
		return nil
	}
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", admin, what, max(1, int(b.duration.Seconds()))))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", what, resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	return cmp.Or(err, os.MkdirAll(b.profiles, 0o755), os.WriteFile(filepath.Join(b.profiles, file), data, 0o644))
}
