package region

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Pointer names the document that is in force, or that a canary follows.
type Pointer struct {
	Version   string    `json:"version"` // the first 12 digits of SHA256
	SHA256    string    `json:"sha256"`  // of the document before compression, in hex
	AppliedAt time.Time `json:"applied_at"`
	AppliedBy string    `json:"applied_by"`
	// ExpiresAt is when a canary ends by itself. Only canaries have one.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Expired reports whether p names a canary whose time is over.
func (p Pointer) Expired(now time.Time) bool {
	return p.ExpiresAt != nil && !now.Before(*p.ExpiresAt)
}

// Change is an entry of the history: who replaced which version, when and why.
type Change struct {
	Pointer
	Replaced string `json:"replaced,omitempty"` // the version before, empty for the first
	Message  string `json:"message,omitempty"`
}

const (
	versionDigits = 12
	sha256Digits  = 2 * sha256.Size
)

// NewPointer names a document.
func NewPointer(document []byte, by string, at time.Time) Pointer {
	sum := sha256.Sum256(document)
	digits := hex.EncodeToString(sum[:])
	return Pointer{Version: digits[:versionDigits], SHA256: digits, AppliedAt: at.UTC().Round(0), AppliedBy: by}
}

// ParsePointer reads a pointer. It is strict about what it is for and lenient
// about the rest, so that a later program may add fields.
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
	case errors.As(err, &wrong) && wrong.Field != "":
		return &FieldError{wrong.Field, fmt.Sprintf("must be a string (got a %s)", wrong.Value)}
	}
	// The error of a time does not name its field.
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) == nil {
		for _, name := range []string{"applied_at", "expires_at"} {
			if text, given := fields[name]; given && json.Unmarshal(text, &time.Time{}) != nil {
				return &FieldError{name, fmt.Sprintf("must be a time such as 2006-01-02T15:04:05Z (got %s)", shorten(string(text)))}
			}
		}
	}
	return fmt.Errorf("is no JSON object with version and sha256: %w", err)
}

func (p Pointer) validate() error {
	switch {
	case !isHex(p.SHA256, sha256Digits):
		return &FieldError{"sha256", fmt.Sprintf("must be %d hex digits in lower case (got %q)", sha256Digits, p.SHA256)}
	case !isHex(p.Version, versionDigits):
		return &FieldError{"version", fmt.Sprintf("must be %d hex digits in lower case (got %q)", versionDigits, p.Version)}
	case p.Version != p.SHA256[:versionDigits]:
		return &FieldError{"version", fmt.Sprintf("must be the first %d digits of sha256, %s (got %s)", versionDigits, p.SHA256[:versionDigits], p.Version)}
	case p.AppliedAt.IsZero():
		return &FieldError{"applied_at", "must be the time of the change, such as 2006-01-02T15:04:05Z"}
	}
	return nil
}

func isHex(s string, digits int) bool {
	if len(s) != digits {
		return false
	}
	for _, b := range []byte(s) {
		if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'f') {
			return false
		}
	}
	return true
}

// CheckName reports what is wrong with the name of a region, PoP or kind of
// document: these go into keys, so they are [a-z0-9-]{1,64}.
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
