package consul

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// Pointer names the active document, or the one that a canary follows.
type Pointer struct {
	Version   string    `json:"version"` // the first 12 digits of SHA256
	SHA256    string    `json:"sha256"`  // of the document before compression, in hex
	AppliedAt time.Time `json:"applied_at"`
	AppliedBy string    `json:"applied_by"`
	// ExpiresAt is when this pointer expires: every canary does, and so does a
	// temporarily active document.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Successor becomes active after ExpiresAt; nil means each edge's own configuration.
	Successor *Named `json:"then,omitempty"`
	// ApartUntil is until when other regions differ on purpose: only this region was
	// changed, by --region or by a wave with more to come. Nil means that they should not
	// differ.
	ApartUntil *time.Time `json:"apart_until,omitempty"`
}

// Apart returns until when a node that follows p differs from others on purpose, or zero if
// it should not.
func (p Pointer) Apart(canary bool) (until time.Time) {
	switch {
	case canary && p.ExpiresAt != nil:
		return *p.ExpiresAt
	case p.ApartUntil != nil:
		return *p.ApartUntil
	}
	return until
}

// Named identifies a document by its version and its hash.
type Named struct {
	Version string `json:"version"` // the first 12 digits of SHA256
	SHA256  string `json:"sha256"`  // of the document before compression, in hex
}

// Expired reports whether p has expired.
func (p Pointer) Expired(now time.Time) bool {
	return p.ExpiresAt != nil && !now.Before(*p.ExpiresAt)
}

// ActiveAt returns the document that p makes active at the given time: its own or, after
// ExpiresAt, Successor, which may be nil.
func (p Pointer) ActiveAt(now time.Time) *Named {
	if p.Expired(now) {
		return p.Successor
	}
	return &Named{p.Version, p.SHA256}
}

// Change is an entry of the history: who replaced which version, when and why.
type Change struct {
	Pointer
	Replaced string `json:"replaced,omitempty"` // the version before, empty for the first
	Message  string `json:"message,omitempty"`
	// ID is the same in all regions of a change, also when it is repeated because a region did not
	// have it; empty: AppliedBy and AppliedAt are.
	ID string `json:"id,omitempty"`
	// Canary is the PoP that tried the version until this change; empty if the change made the
	// version active.
	Canary string `json:"canary,omitempty"`
	// Tried is the PoP whose canary passed before the change.
	Tried string `json:"tried,omitempty"`
	// BrokeLockOf names the holder whose lock AppliedBy broke to make the change.
	BrokeLockOf string `json:"broke_lock_of,omitempty"`
	// Forced is what nodes objected to, and AppliedBy overrode.
	Forced string `json:"forced,omitempty"`
	// Unreached are regions that were to get the change, too, and could not be reached.
	Unreached []string `json:"unreached,omitempty"`
	// Token is the owner of the token that made the change, according to Consul; nil
	// without ACLs.
	Token *Identity `json:"token,omitempty"`
}

const (
	versionDigits = 12
	sha256Digits  = 2 * sha256.Size
)

// NewPointer returns a pointer to a document.
func NewPointer(document []byte, by string, at time.Time) Pointer {
	sum := sha256.Sum256(document)
	digits := hex.EncodeToString(sum[:])
	return Pointer{Version: digits[:versionDigits], SHA256: digits, AppliedAt: at.UTC().Round(0), AppliedBy: by}
}

// ParsePointer parses a pointer. It is strict about known fields and ignores unknown
// ones, so that later versions may add fields.
func ParsePointer(value []byte) (Pointer, error) {
	var p Pointer
	if err := parseJSON(value, &p); err != nil {
		return Pointer{}, err
	}
	if err := p.validate(); err != nil {
		return Pointer{}, err
	}
	return p, nil
}

func parseChange(value []byte) (Change, error) {
	var c Change
	if err := parseJSON(value, &c); err != nil {
		return Change{}, err
	}
	if err := c.validate(); err != nil {
		return Change{}, err
	}
	return c, nil
}

func parseJSON(value []byte, to any) error {
	if len(value) == 0 {
		return errors.New("is empty; a pointer is a JSON object with version and sha256")
	}
	err := json.Unmarshal(value, to)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "" && wrong.Type.Kind() == reflect.Struct:
		return &field.Error{Path: wrong.Field, Msg: fmt.Sprintf("must be an object with version and sha256 (got a %s)", wrong.Value)}
	case errors.As(err, &wrong) && wrong.Field != "":
		return &field.Error{Path: wrong.Field, Msg: fmt.Sprintf("must be a string (got a %s)", wrong.Value)}
	}
	// An error about a time does not name its field.
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) == nil {
		for _, name := range []string{"applied_at", "expires_at", "apart_until"} {
			if text, given := fields[name]; given && json.Unmarshal(text, &time.Time{}) != nil {
				return &field.Error{Path: name, Msg: fmt.Sprintf("must be a time such as 2006-01-02T15:04:05Z (got %s)", shorten(string(text)))}
			}
		}
	}
	return fmt.Errorf("is not a JSON object with version and sha256: %w", err)
}

func (p Pointer) validate() error {
	if err := (Named{p.Version, p.SHA256}).validate(""); err != nil {
		return err
	}
	switch {
	case p.AppliedAt.IsZero():
		return &field.Error{Path: "applied_at", Msg: "must be the time of the change, such as 2006-01-02T15:04:05Z"}
	case p.Successor != nil && p.ExpiresAt == nil:
		return &field.Error{Path: "then", Msg: "requires expires_at, which is missing"}
	case p.Successor != nil:
		return p.Successor.validate("then.")
	}
	return nil
}

// validate prefixes the paths of fields with prefix.
func (n Named) validate(prefix string) error {
	switch {
	case !isHex(n.SHA256, sha256Digits):
		return &field.Error{Path: prefix + "sha256", Msg: fmt.Sprintf("must be %d hex digits in lower case (got %q)", sha256Digits, n.SHA256)}
	case !isHex(n.Version, versionDigits):
		return &field.Error{Path: prefix + "version", Msg: fmt.Sprintf("must be %d hex digits in lower case (got %q)", versionDigits, n.Version)}
	case n.Version != n.SHA256[:versionDigits]:
		return &field.Error{Path: prefix + "version", Msg: fmt.Sprintf("must be the first %d digits of sha256, %s (got %s)", versionDigits, n.SHA256[:versionDigits], n.Version)}
	}
	return nil
}

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// CheckName reports what is wrong with the name of a region, PoP or kind of document. Names
// become parts of keys, so they must be [a-z0-9-]{1,64}.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for _, b := range []byte(name) {
		ok = ok && (b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-')
	}
	if !ok {
		return fmt.Errorf("must be 1 to 64 lower-case letters, digits or - (got %q)", name)
	}
	return nil
}
