package access

import (
	"crypto/sha256"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Two consoles with one file lose no change, and a secret never finds another's token, while
// tokens come and go and the file is read again.
func TestTokensOfTwoConsoles(t *testing.T) {
	file, now := filepath.Join(t.TempDir(), "tokens.json"), time.Now()
	consoles := []*tokens{{file: file}, {file: file}}
	var writers, readers sync.WaitGroup
	var ended atomic.Bool
	for n, c := range consoles {
		require.NoError(t, c.reload())
		writers.Go(func() {
			for i := range 30 {
				name := strconv.Itoa(n) + "-" + strconv.Itoa(i)
				sum := sha256.Sum256([]byte(name))
				err := c.write(now, func(list []stored) ([]stored, error) {
					return append([]stored{{Issued: Issued{Name: name, Right: Right{May: Reader}, Expires: now.Add(time.Hour)}, SHA256: sum[:]}}, list...), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		readers.Go(func() {
			for i := 0; !ended.Load(); i++ {
				name := strconv.Itoa(n) + "-" + strconv.Itoa(i%30)
				if found := c.find(name, now); found != nil && found.Name != name {
					t.Errorf("%s found %s", name, found.Name)
				}
				if err := c.reload(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	ended.Store(true)
	readers.Wait()
	for _, c := range consoles {
		require.NoError(t, c.reload())
		require.Len(t, *c.list.Load(), 60)
	}
}
