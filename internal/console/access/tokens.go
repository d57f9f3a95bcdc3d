package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/internal/disk"
)

// Tokens names the file of the tokens for machines. The console writes it.
type Tokens struct {
	File string `yaml:"file" required:"name the file that the console writes, as tokens.json"`
}

// Issued describes a token for machines.
type Issued struct {
	Name string `json:"name"`
	// By created it. It never permits more than By may.
	By string `json:"by"`
	Right
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// String is the name in histories.
func (i *Issued) String() string { return "token:" + i.Name + " (by " + i.By + ")" }

// stored is a token in the file.
type stored struct {
	Issued
	Groups []string `json:"groups,omitempty"` // of By that had a right when it was created
	SHA256 []byte   `json:"sha256"`
}

const (
	// tokenPrefix begins each token, and nothing else that the header may contain.
	tokenPrefix = "weir."
	// MostDays is how long a token lasts at most.
	MostDays = 90
	// mostTokens bounds the tokens, and mostOfOne those of one person.
	mostTokens, mostOfOne = 200, 20
	mostTokensFile        = 8 << 20
	// mostNames bounds the regions of a token.
	mostNames = 64
)

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$`)

// tokens are those of one file. A nil one is of a console that issues none.
type tokens struct {
	file string
	mu   sync.Mutex // of writers
	list atomic.Pointer[[]stored]
}

// reload reads the file. If it is bad, the old tokens stay.
func (t *tokens) reload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read()
}

func (t *tokens) read() error {
	text, err := disk.Read(t.file, mostTokensFile)
	if errors.Is(err, fs.ErrNotExist) {
		err, text = nil, []byte("[]")
	}
	var list []stored
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return fmt.Errorf("tokens.file: %w", err)
	}
	t.list.Store(&list)
	return nil
}

// write replaces the tokens, without those that have expired.
func (t *tokens) write(now time.Time, change func([]stored) ([]stored, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	release, err := t.lock()
	defer release()
	if err == nil {
		err = t.read()
	}
	var list []stored
	if err == nil {
		list, err = change(slices.DeleteFunc(slices.Clone(*t.list.Load()), func(s stored) bool { return !now.Before(s.Expires) }))
	}
	var text []byte
	if err == nil {
		text, err = json.MarshalIndent(list, "", "  ")
	}
	if err == nil {
		err = disk.Replace(t.file, append(text, '\n'))
	}
	var known *Refusal
	switch {
	case err == nil:
		t.list.Store(&list)
	case !errors.As(err, &known):
		err = refusal(http.StatusInternalServerError, "", "nothing was changed: %v", err)
	}
	return err
}

// lock waits for other consoles that write the file. It locks one beside it, because the file
// itself is replaced.
func (t *tokens) lock() (release func(), err error) {
	f, err := os.OpenFile(t.file+".lock", os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = f.Close() }, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// find returns a token that has not expired.
func (t *tokens) find(secret string, now time.Time) (found *stored) {
	sum := sha256.Sum256([]byte(secret))
	list := *t.list.Load()
	for i := range list {
		if s := &list[i]; subtle.ConstantTimeCompare(sum[:], s.SHA256) == 1 && now.Before(s.Expires) {
			found = s
		}
	}
	return found
}

// machine returns whom a token speaks for. Its rights are those that both the token and its creator
// have now.
func (a *Access) machine(secret string) (Person, string, error) {
	t := a.tokens.find(secret, a.Now())
	if t == nil {
		return Person{}, "", refusal(http.StatusUnauthorized, "", "this token is not known, was revoked, or has expired; create another on the page Tokens")
	}
	rights := a.config.Roles.of(t.By, t.Groups).bounded(&t.Right)
	return Person{Name: t.String(), Rights: rights, Token: secret, Until: t.Expires, machine: true}, "token " + t.Name, nil
}

// IssuesTokens reports whether a person can create tokens here.
func (a *Access) IssuesTokens(p Person) bool { return a.tokens != nil && !p.machine }

func (a *Access) issues(p Person) error {
	switch {
	case a.tokens == nil:
		return refusal(http.StatusNotFound, "", "this console issues no tokens; its configuration has no tokens.file")
	case p.machine:
		return refusal(http.StatusForbidden, "", "a token can neither create tokens nor revoke them; log in")
	}
	return nil
}

// CreateToken creates a token with a right that the person has, and returns it. It cannot be read
// again.
func (a *Access) CreateToken(p Person, name string, right Right, days int) (secret string, issued Issued, err error) {
	if err := a.issues(p); err != nil {
		return "", Issued{}, err
	}
	now := a.Now().UTC().Truncate(time.Second)
	issued = Issued{Name: name, By: p.Name, Right: right, Created: now, Expires: now.AddDate(0, 0, days)}
	bad := func(format string, args ...any) (string, Issued, error) {
		return "", Issued{}, refusal(http.StatusBadRequest, "", format, args...)
	}
	if faults := right.faults(); len(faults) > 0 {
		return bad("%v", faults)
	}
	switch {
	case !tokenName.MatchString(name):
		return bad("name: must be 1 to 40 letters, digits, dots, dashes and underscores (got %.60q)", name)
	case len(issued.String()) > longestName:
		return bad("name: must be shorter, because histories have %d bytes for %s", longestName, issued.String())
	case len(right.Regions) > mostNames || len(right.Kinds) > mostNames:
		return bad("regions and kinds: must be at most %d names each", mostNames)
	case days < 1 || days > MostDays:
		return bad("days: must be 1 to %d (got %d)", MostDays, days)
	case !p.Rights.include(&right):
		return "", Issued{}, refusal(http.StatusForbidden, "", "a token may do at most what you may, and you are %s (asked for %s)", p.Rights, right)
	}
	secret = tokenPrefix + rand.Text()
	sum := sha256.Sum256([]byte(secret))
	err = a.tokens.write(now, func(list []stored) ([]stored, error) {
		mine := 0
		for _, s := range list {
			if s.Name == name {
				return nil, refusal(http.StatusConflict, "conflict", "name: %s has a token %s already; choose another, or revoke it", s.By, name)
			}
			if s.By == p.Name {
				mine++
			}
		}
		if len(list) >= mostTokens || mine >= mostOfOne {
			return nil, refusal(http.StatusConflict, "conflict", "there are %d tokens, %d of them yours, of at most %d and %d; revoke one first", len(list), mine, mostTokens, mostOfOne)
		}
		return append(list, stored{issued, p.groups, sum[:]}), nil
	})
	return secret, issued, err
}

// TokensOf lists the tokens that a person may revoke: their own, or all for an admin of everything.
func (a *Access) TokensOf(p Person) (list []Issued, err error) {
	if err := a.issues(p); err != nil {
		return nil, err
	}
	list = []Issued{}
	for _, s := range *a.tokens.list.Load() {
		if p.manages(&s) && a.Now().Before(s.Expires) {
			list = append(list, s.Issued)
		}
	}
	return list, nil
}

func (p *Person) manages(s *stored) bool {
	return s.By == p.Name || p.Rights.include(&Right{May: Admin})
}

// RevokeToken ends a token now.
func (a *Access) RevokeToken(p Person, name string) (revoked Issued, err error) {
	if err := a.issues(p); err != nil {
		return Issued{}, err
	}
	err = a.tokens.write(a.Now(), func(list []stored) ([]stored, error) {
		i := slices.IndexFunc(list, func(s stored) bool { return s.Name == name && p.manages(&s) })
		if i < 0 {
			return nil, refusal(http.StatusNotFound, "", "you have no token %.60q", name)
		}
		revoked = list[i].Issued
		return slices.Delete(list, i, i+1), nil
	})
	return revoked, err
}

func (a *Access) isToken(r *http.Request) bool {
	return a.tokens != nil && strings.HasPrefix(r.Header.Get(HeaderToken), tokenPrefix)
}
