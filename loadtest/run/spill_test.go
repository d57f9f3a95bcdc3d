package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// home moves the client networks to a PoP and states what the others can serve; if the script
// does not undo that, the runner does.
func TestHome(t *testing.T) {
	f := newFakeLab(t)
	const before = `zone: edge.lab.test
probe: {port: 8080}
regions:
- name: eu-west
  pops:
  - {name: a, addresses: [127.1.1.11, 127.1.1.12], clients: [10.0.0.0/24]}
  - {name: c, addresses: [127.1.1.13]}
- name: us-east
  pops:
  - {name: b, addresses: [127.1.2.11], clients: [10.0.1.0/24]}
`
	f.write(filepath.Join(f.dir, "topology"), before)
	l := &lab{root: f.root, dir: f.dir}
	require.NoError(t, l.load())
	c := &control{l: l, ctx: t.Context()}
	_, err := c.act("home/b/35")
	require.NoError(t, err)
	require.YAMLEq(t, `zone: edge.lab.test
probe: {port: 8080}
regions:
- name: eu-west
  pops:
  - {name: a, addresses: [127.1.1.11, 127.1.1.12], clients: [10.0.0.0/24], capacity: 70}
  - {name: c, addresses: [127.1.1.13], capacity: 35}
- name: us-east
  pops:
  - {name: b, addresses: [127.1.2.11], clients: [10.0.1.0/24, 198.18.0.0/15]}
`, f.read("topology"))
	require.NoError(t, c.calm())
	require.Equal(t, before, f.read("topology"))
	require.Equal(t, []string{"topology show", "topology apply", "topology apply"}, f.calls())
	left, err := filepath.Glob(filepath.Join(f.dir, "loadtest-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	for _, rest := range []string{"nowhere/35", "b/x", "b/0", "b/NaN", "b"} {
		c = &control{l: l, ctx: t.Context()}
		_, err = c.act("home/" + rest)
		require.ErrorContains(t, err, "home: ", rest)
		_, err = c.act("home-back")
		require.NoError(t, err, "there is nothing to undo")
	}
	require.Equal(t, before, f.read("topology"))
}

func TestAgree(t *testing.T) {
	f := newFakeLab(t)
	l := &lab{root: f.root, dir: f.dir}
	require.NoError(t, l.load())
	explained := func(address string) {
		f.write(filepath.Join(f.dir, "explained"), fmt.Sprintf(`{"addresses": [%q]}`, address))
	}
	explained(f.network + ".2.11")
	require.NoError(t, l.agree(t.Context()))
	explained(f.network + ".1.11")
	require.ErrorContains(t, l.agreeOn(t.Context(), spillClient(300)), "agree: the router sends 198.19.44.0/24 to ["+f.network+".2.11], and dns explain to")
}
