package documents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// maxCache is the size of a file for the longest document, with every byte escaped.
const maxCache = 6*consul.MaxDocument + 1<<20

type Cached struct {
	Pointer    consul.Pointer
	Document   []byte
	Signatures []sign.Signature // for a node that verifies them
}

// id identifies what was written. A document may be signed later.
func (c *Cached) id() string {
	return fmt.Sprint(c.Pointer.Version, c.Pointer.SHA256, c.Signatures)
}

// Owner identifies whose documents a cache holds. A file copied from another region must
// not limit this one's clients.
type Owner struct {
	Region     string `json:"region"`
	Datacenter string `json:"datacenter"` // as configured; empty: the agent's
	Prefix     string `json:"prefix"`
}

// Refuse reports why a node of o must not use the cache of other.
func (o Owner) Refuse(other Owner) error {
	switch {
	case o.Region != other.Region:
		return fmt.Errorf("is of region %s, this node is in %s", other.Region, o.Region)
	case o.Datacenter != other.Datacenter:
		return fmt.Errorf("is of consul.datacenter %q, this node follows %q", other.Datacenter, o.Datacenter)
	case o.Prefix != other.Prefix:
		return fmt.Errorf("is of consul.prefix %s, this node follows %s", other.Prefix, o.Prefix)
	}
	return nil
}

// cacheLookEvery is how often the file is checked, in case an operator deletes it.
const cacheLookEvery = time.Minute

// content is what a cache should hold.
type content struct {
	id     string
	encode func() ([]byte, error)
}

// cache keeps the last good document on disk. It writes in its own goroutine, so that a
// slow disk does not delay rules.
type cache struct {
	file      string
	state     *Condition
	failed    func() // called at each failure
	lookEvery time.Duration
	next      chan *content
	written   string // the id of the file's content
}

func newCache(file string, state *Condition, failed func()) *cache {
	return &cache{file: file, state: state, failed: failed, lookEvery: cacheLookEvery, next: make(chan *content, 1)}
}

// prepare creates the folder and checks that it is writable.
func (c *cache) prepare() error {
	if err := os.MkdirAll(filepath.Dir(c.file), 0o750); err != nil {
		return err
	}
	probe, err := os.CreateTemp(filepath.Dir(c.file), filepath.Base(c.file)+".probe")
	if err != nil {
		return err
	}
	_ = probe.Close() // nothing was written
	return os.Remove(probe.Name())
}

// put makes run write a document soon, replacing one that is pending.
func (c *cache) put(d *content) {
	select {
	case <-c.next:
	default:
	}
	c.next <- d // room: there is one caller at a time
}

// run keeps the file up to date until ctx ends. It retries failures.
func (c *cache) run(ctx context.Context) {
	var kept *content // nil until one is put
	for failures := 0; ; {
		wait := c.lookEvery
		if !c.state.View().OK {
			wait = consul.Backoff(failures, rand.Float64())
			failures++
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case kept = <-c.next:
			failures = 0
		case <-timer.C:
		}
		timer.Stop()
		err := c.keep(kept)
		c.state.Note(err)
		if err != nil {
			c.failed()
		} else {
			failures = 0
		}
	}
}

// keep writes p to the file. If the file already has it, or there is nothing to write, keep
// checks whether an earlier error is over.
func (c *cache) keep(p *content) error {
	if p != nil && (p.id != c.written || !c.present()) {
		data, err := p.encode()
		if err == nil {
			err = disk.Replace(c.file, data)
		}
		if err == nil {
			c.written = p.id
		}
		return err
	}
	if c.state.View().OK {
		return nil
	}
	return c.prepare()
}

// present reports whether there is a file.
func (c *cache) present() bool {
	info, err := os.Stat(c.file)
	return err == nil && info.Mode().IsRegular()
}

// cacheFile is the file's content.
type cacheFile struct {
	Owner
	Pointer  consul.Pointer `json:"pointer"`
	Document string         `json:"document"` // UTF-8
	// Signatures are missing unless the node verifies them.
	Signatures []sign.Signature `json:"signatures,omitempty"`
	// Checksum is the SHA-256 of the other fields as they appear in the file.
	Checksum string `json:"checksum"`
}

func encodeCache(owner Owner, d *Cached) ([]byte, error) {
	c := cacheFile{Owner: owner, Pointer: d.Pointer, Document: string(d.Document), Signatures: d.Signatures}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	c.Checksum = fmt.Sprintf("%x", sha256.Sum256(data))
	data, err = json.Marshal(c)
	return append(data, '\n'), err
}

// WriteCache writes a file for ReadCache.
func WriteCache(file string, owner Owner, pointer consul.Pointer, document []byte) error {
	data, err := encodeCache(owner, &Cached{Pointer: pointer, Document: document})
	if err != nil {
		return err
	}
	return disk.Replace(file, data)
}

var errDamaged = errors.New("is damaged: it is not what the node wrote")

// ReadCache returns what encodeCache wrote for owner, provided that not a bit has changed.
func ReadCache(file string, owner Owner) (*Cached, error) {
	data, err := disk.Read(file, maxCache)
	if err != nil {
		return nil, err
	}
	return decodeCache(data, owner)
}

func decodeCache(data []byte, owner Owner) (*Cached, error) {
	var c cacheFile
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	d := &Cached{c.Pointer, []byte(c.Document), c.Signatures}
	// Encoding it again compares everything: names, spaces and the checksum too.
	again, err := encodeCache(c.Owner, d)
	if err != nil || !bytes.Equal(again, data) {
		return nil, errDamaged
	}
	named := consul.NewPointer(d.Document, "", time.Time{})
	if c.Pointer.SHA256 != named.SHA256 || c.Pointer.Version != named.Version {
		return nil, fmt.Errorf("%w (the document has version %s, its pointer names %s)", errDamaged, named.Version, c.Pointer.Version)
	}
	if err := owner.Refuse(c.Owner); err != nil {
		return nil, err
	}
	return d, nil
}
