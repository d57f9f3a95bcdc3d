package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// unfinished is what regionctl rules rollout prints.
type unfinished struct {
	Rollout *struct {
		By    string `json:"by"`
		State string `json:"state"`
		Waves [][]struct {
			State string `json:"state"`
			By    string `json:"by"`
		} `json:"waves"`
	} `json:"rollout"`
}

func (u *unfinished) states() (list []string) {
	if u.Rollout != nil {
		for _, wave := range u.Rollout.Waves {
			for _, r := range wave {
				list = append(list, r.State)
			}
		}
	}
	return list
}

func (f *fleet) unfinished(program string) (u unfinished) {
	f.t.Helper()
	stdout, stderr, status := f.runs(program, "rules", "rollout", "-o", "json")
	require.Zero(f.t, status, stderr)
	require.NoError(f.t, json.Unmarshal([]byte(stdout), &u))
	return u
}

// abandon kills a release's regionctl after the first of two waves, and waits until another's
// knows that.
func (f *fleet) abandon(program, other, document string, flags ...string) {
	f.t.Helper()
	ana := exec.Command(program, append([]string{"rules", "apply", document, "--yes", "--by", "ana", "--waves", "1,rest", "--soak", "10m", "--min-requests", "0"}, flags...)...)
	ana.Env = append(os.Environ(), "WEIR_FLEET="+f.file)
	require.NoError(f.t, ana.Start())
	eventually(f.t, testenv.Patience, "the first wave is done", func() bool {
		states := f.unfinished(other)
		return states.Rollout != nil && states.Rollout.State == "running" && states.states()[0] == "done"
	})
	require.NoError(f.t, ana.Process.Kill())
	_ = ana.Wait() // killed
	eventually(f.t, testenv.Patience, "nobody renews its record", func() bool {
		u := f.unfinished(other)
		return u.Rollout != nil && u.Rollout.State == "abandoned"
	})
	u := f.unfinished(other)
	require.Equal(f.t, "ana", u.Rollout.By)
	require.Equal(f.t, []string{"done", "waiting"}, u.states())
}

// running waits until each region's node has the document with that limit.
func (f *fleet) running(limits ...int) {
	f.t.Helper()
	eventually(f.t, testenv.Patience, fmt.Sprintf("regions have limits of %v", limits), func() bool {
		for i, n := range f.nodes() {
			now, err := rulesOf(n)
			if err != nil || now.Version != consul.NewPointer([]byte(doc(limits[i])), "", time.Time{}).Version {
				return false
			}
		}
		return true
	})
}

// A rollout whose regionctl was killed is resumed, or taken back, by the regionctl of another
// release that records rollouts. One of a release that records none changes regions as it
// always did; then this release says who did, and does not resume.
func TestTwoReleasesRollOut(t *testing.T) {
	records := os.Getenv("WEIR_BEFORE_LOANS")
	if records == "" {
		return
	}
	t.Parallel()
	this, earlier := testenv.Program(t, "regionctl"), testenv.ProgramOf(t, records, "regionctl")
	f := startFleet(t, testenv.ConsulOptions{}, 1, "eu-west", "us-east")
	limit := 100
	document := func() string {
		limit++
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, []byte(doc(limit)), 0o600))
		return file
	}
	f.apply(doc(limit))
	for _, n := range f.nodes() {
		n.WaitReady()
	}
	for _, pair := range [][2]string{{earlier, this}, {this, earlier}} {
		began, finishes := pair[0], pair[1]
		f.abandon(began, finishes, document())
		_, stderr, status := f.runs(finishes, "rules", "apply", "--resume", "--yes", "--by", "bob", "--soak", "1s")
		require.Zero(t, status, stderr)
		f.running(limit, limit)
		require.Nil(t, f.unfinished(began).Rollout)

		f.abandon(began, finishes, document())
		_, stderr, status = f.runs(finishes, "rules", "rollback", "--rollout", "--yes", "--by", "bob")
		require.Zero(t, status, stderr)
		f.running(limit-1, limit-1)
		require.Nil(t, f.unfinished(began).Rollout)

		// This release replaces what began, and the other one still knows the whole way back.
		had := limit - 1
		f.abandon(began, finishes, document())
		_, stderr, status = f.runs(this, "rules", "apply", document(), "--yes", "--waves", "1,rest")
		require.Equal(t, term.StatusConflict, status, stderr)
		f.abandon(this, earlier, document(), "--replace-rollout")
		_, stderr, status = f.runs(finishes, "rules", "rollback", "--rollout", "--yes", "--by", "bob")
		require.Zero(t, status, stderr)
		f.running(had, had)
		f.apply(doc(limit))
		f.running(limit, limit)
	}

	before := os.Getenv("WEIR_BEFORE")
	if before == "" {
		return
	}
	old := testenv.ProgramOf(t, before, "regionctl")
	had := limit
	f.abandon(this, this, document())
	_, stderr, status := f.runs(old, "rules", "apply", document(), "--yes", "--by", "cid", "--region", "us-east")
	require.Zero(t, status, stderr)
	f.running(limit-1, limit)
	u := f.unfinished(this)
	require.Equal(t, []string{"done", "changed"}, u.states())
	require.Equal(t, "cid", u.Rollout.Waves[1][0].By)
	_, stderr, status = f.runs(this, "rules", "apply", "--resume", "--yes")
	require.Equal(t, term.StatusConflict, status, stderr)
	require.Contains(t, stderr, "nothing was changed: us-east: cid applied")
	_, stderr, status = f.runs(this, "rules", "rollback", "--rollout", "--yes")
	require.Zero(t, status, stderr)
	f.running(had, limit)
}
