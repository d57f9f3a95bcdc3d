package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/networks"
)

const (
	// maxNetworkCache is the size of the longest list, with some room.
	maxNetworkCache = 128 << 20
	retryCache      = time.Minute
)

// networkCache keeps the client networks on disk, off the paths that activate them.
type networkCache struct {
	file  string
	owner documents.Owner
	next  chan *networks.List
	// inFile is the index of the file's content.
	inFile *networks.Index
}

// networkFile is the file's content.
type networkFile struct {
	documents.Owner
	List *networks.List `json:"networks"`
}

func newNetworkCache(file string, owner documents.Owner) *networkCache {
	return &networkCache{file: file, owner: owner, next: make(chan *networks.List, 1)}
}

// read returns the file's content, or nil without one.
func (c *networkCache) read() (*networks.List, error) {
	data, err := disk.Read(c.file, maxNetworkCache)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var f networkFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.List == nil {
		err = errors.New("is damaged: it has no networks")
	}
	if err == nil {
		err = c.owner.Refuse(f.Owner)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; the networks in consul will overwrite it", c.file, err)
	}
	c.inFile = f.List.Index
	return f.List, nil
}

// put makes run write a list soon, replacing one that is pending.
func (c *networkCache) put(l *networks.List) {
	select {
	case <-c.next:
	default:
	}
	c.next <- l // room: there is one caller at a time
}

// run writes until ctx ends, and retries failures.
func (c *networkCache) run(ctx context.Context, note func(error)) {
	var l *networks.List
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case l = <-c.next:
		case <-again:
		}
		err := c.write(l)
		if again = nil; err != nil {
			again = time.After(retryCache)
		}
		note(err)
	}
}

func (c *networkCache) write(l *networks.List) error {
	if x := c.inFile; x != nil && x.Version == l.Version() && x.AppliedAt.Equal(l.Index.AppliedAt) {
		if _, err := os.Stat(c.file); err == nil {
			return nil
		}
	}
	data, err := json.Marshal(networkFile{c.owner, l})
	if err == nil {
		err = disk.Replace(c.file, data)
	}
	if err == nil {
		c.inFile = l.Index
	}
	return err
}
