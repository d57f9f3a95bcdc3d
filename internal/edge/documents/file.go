package documents

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// file is the state of a document that the node reads itself.
type file[T any] struct {
	seen   [sha256.Size]byte // at the last look
	last   [sha256.Size]byte // activated, or refused
	choice choice[T]
}

// Load reads the document of a node that does not follow Consul, and activates it. A bad one
// changes nothing: the previous one stays, and the fault is counted and shown. An unchanged
// document is not checked twice. Unless asked to load, it waits until two looks find the same
// content: the beginning of a document that is still being written can be a valid document.
func (k *Keeper[T]) Load(requested bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.read(requested)
	_, failed := k.activateChosen(time.Now())
	return cmp.Or(err, failed)
}

func (k *Keeper[T]) read(requested bool) error {
	f := &k.file
	data, err := k.Read()
	if f.choice.lost = err; err != nil {
		f.seen, f.last = [sha256.Size]byte{}, [sha256.Size]byte{}
		return k.refuse("", err)
	}
	sum := sha256.Sum256(data)
	settled := sum == f.seen
	f.seen = sum
	if sum == f.last {
		if requested {
			k.Log.Info("the file is unchanged since the last load", "document", k.Name, "refused", f.choice.refused != nil)
		}
		return nil
	}
	if !settled && !requested {
		return nil
	}
	f.last = sum
	d := &Document[T]{Pointer: consul.NewPointer(data, "", time.Time{}), Source: k.Source}
	if d.Compiled, err = k.Compile(data); err != nil {
		return k.refuse(d.Pointer.Version, fmt.Errorf("%s refused: %w", k.What, err))
	}
	f.choice.document, f.choice.refused = d, nil
	return nil
}

// refuse records a document that is not activated, and returns why.
func (k *Keeper[T]) refuse(version string, err error) error {
	standing := k.file.choice.refused
	if k.file.choice.refused = refuse(standing, version, false, err); k.file.choice.refused != standing {
		count(k.Metrics.Rejected)
	}
	return err
}
