package region

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// A follower with keys accepts no topology without a valid signature, neither from Consul nor
// from its predecessor.
func TestTopologyMustBeSigned(t *testing.T) {
	t.Parallel()
	c, err := consul.Open(consul.Config{Addr: testenv.StartConsul(t, testenv.ConsulOptions{}).Addr()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	file := filepath.Join(t.TempDir(), "key.pem")
	_, err = sign.Generate(file, file+".pub")
	require.NoError(t, err)
	key, err := sign.ReadKey(file)
	require.NoError(t, err)
	config := FollowConfig{Regions: []FollowedRegion{{Name: "eu", Consul: c}}, RequireSigned: true, VerifyEvery: 20 * time.Millisecond,
		Verify: func() (sign.Keys, error) { return sign.ReadPublic([]string{file + ".pub"}) }}
	topology := func(zone string) *Topology {
		return mustParse(t, `{zone: `+zone+`, regions: [{name: eu, pops: [{name: ams, addresses: [203.0.113.1]}]}]}`)
	}
	signAs := func(x *Topology, of sign.Subject, key *sign.Key) {
		t.Helper()
		text, err := json.Marshal(x)
		require.NoError(t, err)
		p := consul.NewPointer(text, "", time.Time{})
		of.SHA256 = p.SHA256
		require.NoError(t, c.Documents(TopologyKind).Sign(t.Context(), p.Version, key.Sign(of, nil)))
	}
	signIt := func(x *Topology, key *sign.Key) {
		t.Helper()
		signAs(x, sign.Subject{Kind: TopologyKind, Region: "eu"}, key)
	}
	f := NewFollower(config)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx, nil) })
	t.Cleanup(func() { cancel(); running.Wait() })
	zone := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { v := f.View(); return v.Topology != nil && v.Topology.Zone == want }, testenv.Patience, 5*time.Millisecond, want)
	}
	faulty := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			err := f.View().Regions["eu"].Err
			return err != nil && strings.Contains(err.Error(), want)
		}, testenv.Patience, 5*time.Millisecond, want)
	}
	first, second := topology("first.example"), topology("second.example")
	publish(t, c, first)
	faulty("weir/topology/current: is not signed; apply it with regionctl --sign KEYFILE")
	require.Nil(t, f.View().Topology)
	require.True(t, f.View().Regions["eu"].Unsigned)
	signIt(first, key)
	zone("first.example")
	require.False(t, f.View().Regions["eu"].Unsigned)
	publish(t, c, second)
	faulty("is not signed")
	text, err := json.Marshal(second)
	require.NoError(t, err)
	signAs(second, sign.Subject{Kind: "rules", Region: "eu"}, key)
	faulty("another document, kind or region")
	signAs(second, sign.Subject{Kind: TopologyKind, Region: "us"}, key)
	faulty("another document, kind or region")
	zone("first.example")

	// The next follower verifies what this one knew.
	require.Eventually(t, func() bool { k := f.SavedState(); return k != nil && k.Signed != nil && len(k.Regions) == 1 }, testenv.Patience, 5*time.Millisecond)
	saved, err := json.Marshal(f.SavedState())
	require.NoError(t, err)
	restore := func(change func(*SavedState)) (*Follower, error) {
		k := &SavedState{}
		require.NoError(t, json.Unmarshal(saved, k))
		change(k)
		next := NewFollower(config)
		return next, next.Restore(k, time.Now())
	}
	next, err := restore(func(k *SavedState) { k.Topology = text })
	require.NoError(t, err, "only what was signed counts")
	require.Contains(t, next.facts["eu"].topologyText, "first.example")
	_, err = restore(func(k *SavedState) { k.Signed = nil })
	require.ErrorContains(t, err, "topology: is not signed")
	_, err = restore(func(k *SavedState) { k.Signed.Text = text })
	require.ErrorContains(t, err, "topology: the signature by key")
	signIt(second, key)
	zone("second.example")

	// One that only verifies takes what is not signed, and says so; also what it starts from.
	config.RequireSigned = false
	next, err = restore(func(k *SavedState) { k.Signed, k.Topology = nil, text })
	require.NoError(t, err)
	require.Contains(t, next.facts["eu"].topologyText, "second.example")
	require.ErrorContains(t, next.facts["eu"].signatureErr, "topology: is not signed")
	next, err = restore(func(k *SavedState) {})
	require.NoError(t, err)
	require.NoError(t, next.facts["eu"].signatureErr)
	cancel()
	running.Wait()
	f = next
	third := topology("third.example")
	publish(t, c, third)
	later, stop := context.WithCancel(t.Context())
	running.Go(func() { f.Run(later, nil) })
	t.Cleanup(func() { stop(); running.Wait() })
	zone("third.example")
	faulty("weir/topology/current: is not signed; apply it with regionctl --sign KEYFILE")
	require.True(t, f.View().Regions["eu"].Unsigned)
	require.Nil(t, f.SavedState().Signed)
	signIt(third, key)
	require.Eventually(t, func() bool { return !f.View().Regions["eu"].Unsigned && f.SavedState().Signed != nil }, testenv.Patience, 5*time.Millisecond)
	require.NoError(t, f.View().Regions["eu"].Err)

	// A key is replaced while the topology stays: what the next one starts from has both signatures.
	other := filepath.Join(t.TempDir(), "key.pem")
	_, err = sign.Generate(other, other+".pub")
	require.NoError(t, err)
	newer, err := sign.ReadKey(other)
	require.NoError(t, err)
	signIt(third, newer)
	require.Eventually(t, func() bool { return len(f.SavedState().Signed.Signatures) == 2 }, testenv.Patience, 5*time.Millisecond)
	require.NoError(t, os.Rename(other+".pub", file+".pub"))
	config.RequireSigned = true
	require.NoError(t, NewFollower(config).Restore(f.SavedState(), time.Now()))
	text, err = json.Marshal(third)
	require.NoError(t, err)
	require.NoError(t, c.Put(t.Context(), "weir/topology/signatures/"+consul.NewPointer(text, "", time.Time{}).Version, []byte("[]")))
	faulty("is not signed")
	require.Equal(t, "third.example", f.View().Topology.Zone)
}
