package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeLab is a root whose programs record their calls. Active rules and settings are
// files.
type fakeLab struct {
	t                  *testing.T
	root, dir, network string
}

func newFakeLab(t *testing.T) *fakeLab {
	f := &fakeLab{t: t, root: t.TempDir(), dir: filepath.Join(t.TempDir(), "lab")}
	const note = "#!/bin/sh\necho \"$(basename $0) $*\" >>\"$LAB/../calls\"\n"
	for _, name := range []string{"status.sh", "up.sh", "down.sh", "signal.sh"} {
		f.write(filepath.Join(f.root, "terraform/lab/scripts", name), note)
	}
	f.write(filepath.Join(f.root, "bin/regionctl"), note+`shift 2
case "$1 $2" in
"rules show") cat "$LAB/rules" ;;
"shedder show") echo '[{"document": "calm"}]' ;;
"rules apply") cat "$3" >"$LAB/rules" ;;
"topology show") cat "$LAB/topology" ;;
"topology apply") cat "$3" >"$LAB/topology" ;;
"dns explain") cat "$LAB/explained" ;;
esac
`)
	f.write(filepath.Join(f.dir, "rules"), "those of before")
	f.write(filepath.Join(f.dir, "fleet.yaml"), "")
	f.network = fakeRouter(t)
	f.write(filepath.Join(f.dir, "topology.yaml"), fmt.Sprintf(`regions:
- {name: eu-west, pops: [{name: a, addresses: [%[1]s.1.11], clients: [10.0.0.0/24]}]}
- {name: us-east, pops: [{name: b, addresses: [%[1]s.2.11], clients: [10.0.1.0/24]}]}
`, f.network))
	rules, err := os.ReadFile("../rules.json")
	require.NoError(t, err)
	f.write(filepath.Join(f.root, "loadtest/rules.json"), string(rules))
	return f
}

// fakeRouter answers every client with its own region, and returns its network.
func fakeRouter(t *testing.T) string {
	t.Helper()
	for range 100 {
		network := fmt.Sprintf("127.%d", 2+rand.IntN(253))
		claim, err := net.Listen("unix", "@weir-lab-"+network) // as labs of other tests do
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = claim.Close() })
		conn, err := net.ListenPacket("udp", network+".0.53:"+dnsPort)
		if err == nil {
			serveDNS(t, conn, func(subnet string) string {
				if subnet == "10.0.0.0" {
					return network + ".1.11"
				}
				return network + ".2.11"
			})
			return network
		}
	}
	t.Fatal("no network is free")
	return ""
}

func (f *fakeLab) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(f.t, os.WriteFile(name, []byte(text), 0o755))
}

// script replaces one of the lab's, adding a last line.
func (f *fakeLab) script(name, end string) {
	f.write(filepath.Join(f.root, "terraform/lab/scripts", name), "#!/bin/sh\necho \"$(basename $0) $*\" >>\"$LAB/../calls\"\n"+end+"\n")
}

// calls returns the recorded calls, except read-only ones.
func (f *fakeLab) calls() []string {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(f.dir), "calls"))
	var all []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); !strings.Contains(line, " show ") {
			if words[0] == "regionctl" {
				words = words[3:5]
			}
			all = append(all, strings.Join(words, " "))
		}
	}
	return all
}

func (f *fakeLab) rules() string { return f.read("rules") }

func (f *fakeLab) read(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	require.NoError(f.t, err)
	return string(text)
}

func (f *fakeLab) options() *options {
	return &options{root: f.root, lab: f.dir, out: filepath.Join(f.root, "out"), only: "steady"}
}

// A lab that does not start is an error, and is taken down.
func TestLabThatDoesNotComeUp(t *testing.T) {
	f := newFakeLab(t)
	require.NoError(t, os.Remove(filepath.Join(f.dir, "fleet.yaml")))
	f.script("up.sh", "echo no processor left; exit 3")
	f.write(filepath.Join(f.root, "out/report.html"), "All held")
	good, err := f.options().run(t.Context())
	require.ErrorContains(t, err, "no processor left")
	require.False(t, good)
	require.Equal(t, []string{"up.sh", "down.sh"}, f.calls())
	text, err := os.ReadFile(filepath.Join(f.root, "out/report.html"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "All held", "the report of an earlier run")
	require.Contains(t, string(text), "Incomplete: 0 of 1 scenarios good")
}

// An interrupt while it starts leaves nothing either.
func TestInterruptWhileTheLabComesUp(t *testing.T) {
	f := newFakeLab(t)
	require.NoError(t, os.Remove(filepath.Join(f.dir, "fleet.yaml")))
	f.script("up.sh", "exec sleep 60")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error)
	go func() {
		_, err := f.options().run(ctx)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(f.calls()) == 1 }, time.Minute, 5*time.Millisecond)
	interrupt()
	require.ErrorIs(t, <-ended, errInterrupted)
	require.Equal(t, []string{"up.sh", "down.sh"}, f.calls())
}

// A lab that existed before keeps its rules, whatever fails.
func TestLabThatCannotBePrepared(t *testing.T) {
	for name, spoil := range map[string]func(*fakeLab){
		"mending": func(f *fakeLab) { f.script("status.sh", "exit 1"); f.script("up.sh", "exit 3") },
		"reading": func(f *fakeLab) { f.write(filepath.Join(f.dir, "topology.yaml"), "regions: []") },
		"applying": func(f *fakeLab) {
			text, err := os.ReadFile(filepath.Join(f.root, "bin/regionctl"))
			require.NoError(t, err)
			f.write(filepath.Join(f.root, "bin/regionctl"), string(text)+"case \"$*\" in *loadtest/rules.json*) exit 4 ;; esac\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeLab(t)
			spoil(f)
			l, leave, err := openLab(t.Context(), f.root, f.dir, "")
			require.Error(t, err)
			require.Nil(t, l)
			require.Nil(t, leave)
			require.Equal(t, "those of before", f.rules())
			require.NotContains(t, f.calls(), "down.sh")
		})
	}
}

// After an interrupt in the middle of a fault, what a script broke is repaired, and the
// previous rules are back.
func TestInterruptInAFault(t *testing.T) {
	f := newFakeLab(t)
	f.write(filepath.Join(f.root, "bin/k6"), `#!/bin/sh
for act in rules-halved shedder-tight "kill/eu-west/*"; do curl -sS --noproxy "*" -X POST "$CONTROL/$act"; done
exec sleep 60
`)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error)
	go func() {
		good, err := f.options().run(ctx)
		require.False(t, good)
		ended <- err
	}()
	before := []string{"status.sh", "rules apply", "rules apply", "shedder set", "signal.sh KILL eu-west/*"}
	require.Eventually(t, func() bool { return len(f.calls()) == len(before) }, time.Minute, 5*time.Millisecond, "%v", f.calls)
	interrupt()
	require.ErrorIs(t, <-ended, errInterrupted)
	// First what has died, then the script's rules, and only then the previous ones.
	require.Equal(t, append(before, "up.sh", "rules apply", "rules apply"), f.calls())
	require.Equal(t, "those of before", f.rules())
	left, err := filepath.Glob(filepath.Join(f.dir, "loadtest-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	text, err := os.ReadFile(filepath.Join(f.root, "out/report.json"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"incomplete": "steady: interrupted"`)
}

// k6 succeeds although an act failed. The scenario does not, and is cleaned up after.
func TestActThatFails(t *testing.T) {
	f := newFakeLab(t)
	l, leave, err := openLab(t.Context(), f.root, f.dir, "")
	require.NoError(t, err)
	f.script("up.sh", "echo will not; [ -e \"$LAB/tried\" ] || { touch \"$LAB/tried\"; exit 1; }")
	f.write(filepath.Join(f.root, "bin/k6"), `#!/bin/sh
for act in phase/before "kill/eu-west/*" heal; do curl -sS --noproxy "*" -X POST "$CONTROL/$act"; done
echo '{"phases": ["before", "after"]}' >"$OUT"
for a in "$@"; do case $a in json=*) : >"${a#json=}" ;; esac; done
`)
	o := f.options()
	require.NoError(t, os.MkdirAll(o.out, 0o755))
	r, err := o.play(t.Context(), l, scenarios[0], "short")
	require.NoError(t, err)
	require.Contains(t, r.Problems[0], "heal failed: up.sh")
	require.Contains(t, r.Problems, "phase after: the script never reached it")
	calls := f.calls()
	require.Equal(t, []string{"up.sh", "up.sh"}, calls[len(calls)-2:], "the runner healed what the script did not")
	require.NoError(t, leave())
	require.Equal(t, "those of before", f.rules())
}

// Rules that could not be restored are still pending.
func TestSwapThatFails(t *testing.T) {
	f := newFakeLab(t)
	l := &lab{root: f.root, dir: f.dir}
	c := &control{l: l, ctx: t.Context()}
	_, err := c.act("rules-halved")
	require.NoError(t, err)
	var doc struct{ Rules []struct{ Limit int } }
	require.NoError(t, json.Unmarshal([]byte(f.rules()), &doc))
	require.Equal(t, 5, doc.Rules[0].Limit)
	require.NoFileExists(t, filepath.Join(f.dir, "loadtest-halved.json"))

	good, err := os.ReadFile(filepath.Join(f.root, "bin/regionctl"))
	require.NoError(t, err)
	f.write(filepath.Join(f.root, "bin/regionctl"), "#!/bin/sh\nexit 1\n")
	_, err = c.act("rules")
	require.Error(t, err)
	require.True(t, c.swapped)
	f.write(filepath.Join(f.root, "bin/regionctl"), string(good))
	require.NoError(t, c.calm())
	require.False(t, c.swapped)
	require.Contains(t, f.rules(), `"limit": 10`)
	_, err = c.act("kill/*")
	require.ErrorContains(t, err, "the scenario is over")
}

func TestOwnSlots(t *testing.T) {
	const nodes = `07c3 127.240.1.105:6379@16379 slave e7d1 0 1426238317239 4 connected
67ed 127.240.1.102:6379@16379 master - 0 1426238316232 2 connected 5461-10922
e7d1 127.240.1.101:6379@16379 myself,master - 0 0 1 connected 0-5458 5460 [5460->-67ed]
`
	require.Equal(t, [][2]int{{0, 5458}, {5460, 5460}}, ownSlots(nodes))
	require.Nil(t, ownSlots(strings.Replace(nodes, "myself,master", "myself,slave", 1)))
	require.Nil(t, ownSlots(strings.Replace(nodes, "connected 0-5458 5460 [5460->-67ed]", "connected", 1)), "a master of nothing")
}
