package router

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/pkg/region"
)

const (
	// saveEvery is how often to check for changes, and heardEvery how often a new time of
	// a region's last report, or of the last step of the spill, counts as one.
	saveEvery  = 5 * time.Second
	heardEvery = time.Minute
	// maxState is more than a fleet with the largest topology and 20,000 nodes needs.
	maxState = 64 << 20
)

// restore makes the follower start from the file's content. A router ignores a file that is
// missing, damaged, or of another fleet: the next good facts overwrite it.
func (c *Config) restore(f *region.Follower) error {
	if c.State == "" {
		return nil
	}
	k, err := readState(c.State)
	if err == nil {
		err = f.Restore(k, time.Now())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.State, err)
	}
	return nil
}

// A state file is a line with its format and the SHA-256 of the JSON that follows.
const stateFormat = "weir-dns 1 %x\n"

func encodeState(k *region.SavedState) ([]byte, error) {
	text, err := json.Marshal(k)
	return append(fmt.Appendf(nil, stateFormat, sha256.Sum256(text)), text...), err
}

func readState(file string) (*region.SavedState, error) {
	data, err := disk.Read(file, maxState)
	if err != nil {
		return nil, err
	}
	_, text, _ := bytes.Cut(data, []byte("\n"))
	if !bytes.HasPrefix(data, fmt.Appendf(nil, stateFormat, sha256.Sum256(text))) {
		return nil, errors.New("was not written by a router in this format, or is damaged")
	}
	k := &region.SavedState{}
	return k, json.Unmarshal(text, k)
}

// keep writes changes to the file until ctx ends, and once more then.
func (r *router) keep(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	var written []byte
	failed := ""
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-ticker.C:
		}
		var err error
		if written, err = r.save(written); err != nil {
			r.metrics.unsaved.Inc()
		}
		if text := errorText(err); text != failed {
			if failed = text; err != nil {
				r.Log.Error("the state cannot be saved: a restart without any Consul would use an older one", "file", r.State, "error", text)
			} else {
				r.Log.Info("the state can be saved again", "file", r.State)
			}
		}
	}
}

// save writes the state if it has changed, and returns the file's content.
func (r *router) save(written []byte) ([]byte, error) {
	k := r.follower.SavedState()
	if k == nil {
		return written, nil
	}
	for name, facts := range k.Regions {
		facts.Heard = facts.Heard.Truncate(heardEvery)
		k.Regions[name] = facts
	}
	spill := *k.Spill
	spill.At = spill.At.Truncate(heardEvery)
	k.Spill = &spill
	data, err := encodeState(k)
	if err != nil || bytes.Equal(data, written) {
		return written, err
	}
	if err := disk.Replace(r.State, data); err != nil {
		return written, err
	}
	return data, nil
}
