// Package sign signs documents with Ed25519 and verifies their signatures. Keys are PEM
// files as openssl writes them.
//
// A signature says that the holder of a key approves this document as this kind, in this
// region. It does not say that it is the newest: a document that was signed once may become
// active again, as a rollback requires.
package sign

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Subject is what a signature covers.
type Subject struct {
	Kind   string // of the document: rules, shedder, topology
	Region string // where it may become active; "" is every region
	SHA256 string // of the document, in hex
}

// text returns what is signed. Fields are quoted so that one cannot read like two.
func (s Subject) text(until *time.Time) []byte {
	text := fmt.Sprintf("weir document 1\nkind %q\nregion %q\nsha256 %q\n", s.Kind, s.Region, s.SHA256)
	if until != nil {
		text += fmt.Sprintf("until %q\n", until.UTC().Format(time.RFC3339Nano))
	}
	return []byte(text)
}

// Signature is a signature as it is stored.
type Signature struct {
	Key string `json:"key"` // the ID of the key that verifies it
	// Until, if set, allows only pointers that expire by then.
	Until *time.Time `json:"until,omitempty"`
	Value []byte     `json:"signature"`
}

const (
	// maxText is the longest list of signatures that is read, in bytes.
	maxText = 64 << 10
	// maxKept is how many signatures a document keeps.
	maxKept = 32
)

// Parse reads what Encode wrote, and ignores fields that a later release may have added.
func Parse(text []byte) ([]Signature, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("is %d bytes long; the maximum is %d; sign the document again", len(text), maxText)
	}
	var list []Signature
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("is not a list of signatures (%w); sign the document again", err)
	}
	return list, nil
}

// Encode returns signatures as JSON.
func Encode(list []Signature) ([]byte, error) { return json.Marshal(list) }

// Add returns the list with one more signature, without those that it makes superfluous.
// The newest are at the end.
func Add(list []Signature, s Signature, now time.Time) []Signature {
	list = slices.DeleteFunc(slices.Clone(list), func(old Signature) bool {
		return old.Until != nil && !now.Before(*old.Until) || old.Key == s.Key && (old.Until == nil) == (s.Until == nil)
	})
	return append(list[max(0, len(list)+1-maxKept):], s)
}

// Fault is why a document counts as unsigned.
type Fault struct{ Why string }

func (f *Fault) Error() string { return f.Why }

// IsFault reports whether an error is a Fault, rather than a failure to verify.
func IsFault(err error) bool {
	var f *Fault
	return errors.As(err, &f)
}

// Keys are the public keys that a program trusts, by ID.
type Keys map[string]ed25519.PublicKey

// Verify returns nil if one of the signatures is by one of the keys, covers the subject,
// and allows its expiry (nil means that it does not expire), and a *Fault otherwise.
func (k Keys) Verify(s Subject, list []Signature, expires *time.Time) error {
	if len(list) == 0 {
		return &Fault{"is not signed; apply it with regionctl --sign KEYFILE"}
	}
	var unknown, reasons []string
	for _, one := range list {
		key, trusted := k[one.Key]
		switch {
		case !trusted:
			unknown = append(unknown, fmt.Sprintf("%.16q", one.Key))
		case !ed25519.Verify(key, s.text(one.Until), one.Value):
			reasons = append(reasons, fmt.Sprintf("the signature by key %s is damaged, or covers another document, kind or region", one.Key))
		case one.Until != nil && expires == nil:
			reasons = append(reasons, fmt.Sprintf("key %s signed it as temporary, until %s, but the pointer does not expire", one.Key, one.Until.UTC().Format(time.RFC3339)))
		case one.Until != nil && expires.After(*one.Until):
			reasons = append(reasons, fmt.Sprintf("key %s signed it until %s, but the pointer expires at %s", one.Key, one.Until.UTC().Format(time.RFC3339), expires.UTC().Format(time.RFC3339)))
		default:
			return nil
		}
	}
	if len(reasons) == 0 {
		reasons = []string{fmt.Sprintf("is signed by key %s, but the trusted keys are %s", strings.Join(unknown[:min(3, len(unknown))], ", "), strings.Join(slices.Sorted(maps.Keys(k)), ", "))}
	}
	return &Fault{strings.Join(reasons[:min(3, len(reasons))], "; ") + "; apply it with regionctl --sign KEYFILE"}
}
