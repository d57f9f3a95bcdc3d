package peer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// fleet returns a directory of that many regions and nodes in each.
func fleet(regions, nodes int) *Directory {
	var order []string
	for r := range regions {
		order = append(order, fmt.Sprintf("region-%02d", r))
	}
	d := NewDirectory(Node{Region: order[0], ID: "node-00"}, nil)
	d.SetRegions(order)
	for _, name := range order {
		var list []Node
		for n := range nodes {
			list = append(list, Node{name, fmt.Sprintf("node-%02d", n), fmt.Sprintf("%s-%d:8444", name, n)})
		}
		d.SetNodes(name, list)
	}
	return d
}

func keys(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("weir:{203.0.%d.%d}:api", i/256, i%256))
	}
	return list
}

func owners(t testing.TB, d *Directory, region string, keys []string) (list []Node) {
	for _, key := range keys {
		n, ok := d.Owner(region, key)
		require.True(t, ok)
		list = append(list, n)
	}
	return list
}

// Each of 40 nodes owns its share of the keys. When one goes, only its keys change hands;
// when it returns, it has them again.
func TestOwnersAreEvenAndStable(t *testing.T) {
	d := fleet(50, 40)
	require.Len(t, d.Regions(), 50)
	all := keys(20_000)
	for _, region := range []string{"region-00", "region-49"} {
		require.Len(t, d.Nodes(region), 40)
		before := owners(t, d, region, all)
		shares := map[string]int{}
		for _, n := range before {
			shares[n.ID]++
		}
		require.Len(t, shares, 40)
		for id, n := range shares { // 500 each; the standard deviation is 22
			require.InDelta(t, 500, n, 110, id)
		}
		gone := d.Nodes(region)[7]
		d.setDown(gone, true)
		require.Equal(t, 1, d.Down())
		for i, n := range owners(t, d, region, all) {
			require.NotEqual(t, gone, n)
			if before[i] != gone {
				require.Equal(t, before[i], n)
			}
		}
		d.setDown(gone, false)
		require.Equal(t, before, owners(t, d, region, all))
	}
}

// Nodes that learn of others in another order agree on owners.
func TestNodesAgreeOnOwners(t *testing.T) {
	d, other := fleet(3, 40), fleet(3, 1)
	for _, name := range d.Regions() {
		list := slices.Clone(d.Nodes(name))
		slices.Reverse(list)
		other.SetNodes(name, list)
		require.Equal(t, owners(t, d, name, keys(500)), owners(t, other, name, keys(500)))
	}
	require.Equal(t, d.fingerprint(), other.fingerprint())
	other.SetRegions([]string{"region-00", "region-02", "region-01"})
	require.NotEqual(t, d.fingerprint(), other.fingerprint())
}

func TestDirectoryKeepsWhatItKnows(t *testing.T) {
	d := fleet(2, 3)
	d.SetNodes("region-01", nil)
	d.SetRegions(nil)
	require.Len(t, d.Nodes("region-01"), 3)
	require.Len(t, d.Regions(), 2)
	for _, n := range d.Nodes("region-01") {
		d.setDown(n, true)
	}
	require.Len(t, d.Nodes("region-01"), 3, "if none answers, all are tried")
	_, ok := d.Owner("region-09", "key")
	require.False(t, ok)
}

func TestBeforeAnythingIsKnown(t *testing.T) {
	d := NewDirectory(Node{Region: "eu-west", ID: "a"}, nil)
	require.Empty(t, d.Regions())
	require.Empty(t, d.fingerprint())
	d.SetRegions([]string{"us-east"}) // a topology without this region numbers nothing
	require.Empty(t, d.Regions())
	d.SetRegions([]string{"eu-west", "us-east"})
	n, ok := d.Owner("eu-west", "key")
	require.True(t, ok)
	require.True(t, d.IsSelf(n))
	_, ok = d.Owner("us-east", "key")
	require.False(t, ok)
}

func TestListedNodesPrecedeConsul(t *testing.T) {
	listed := []Region{{Name: "eu-west"}, {Name: "us-east", Nodes: []Node{{"us-east", "b", "proxy:1"}}}}
	d := NewDirectory(Node{Region: "eu-west", ID: "a"}, listed)
	d.SetNodes("us-east", []Node{{"us-east", "b", "direct:1"}})
	require.Equal(t, "proxy:1", d.Nodes("us-east")[0].Addr)
	require.True(t, d.lists("us-east"))
	require.False(t, d.lists("eu-west"))
}

func TestReachable(t *testing.T) {
	node := func(id, peer string, passing bool) consul.Node {
		return consul.Node{ID: id, Region: "eu-west", Peer: peer, Prefix: "weir", Passing: passing}
	}
	other, foreign := node("x", "x:1", true), node("y", "y:1", true)
	other.Region, foreign.Prefix = "us-east", "staging"
	a, b, c := node("a", "a:1", false), node("b", "b:1", true), node("c", "", true)
	require.Equal(t, []Node{{"eu-west", "b", "b:1"}}, Reachable([]consul.Node{a, b, c, other, foreign}, "eu-west", "weir"))
	require.Equal(t, []Node{{"eu-west", "a", "a:1"}}, Reachable([]consul.Node{a, c, other, foreign}, "eu-west", "weir"))
	require.Empty(t, Reachable([]consul.Node{c, other}, "eu-west", "weir"))
}

func TestOwnerTakesNoMemory(t *testing.T) {
	d := fleet(3, 40)
	require.Zero(t, testing.AllocsPerRun(100, func() { d.Owner("region-01", "weir:{203.0.113.7}:api") }))
}

func BenchmarkOwner(b *testing.B) {
	d := fleet(50, 40)
	for b.Loop() {
		d.Owner("region-49", "weir:{203.0.113.7}:api")
	}
}

func TestBackoffGrowsAndVaries(t *testing.T) {
	for failures := 1; failures < 50; failures++ {
		most := min(longestPause, firstPause<<min(failures-1, 7))
		seen := map[time.Duration]bool{}
		for range 20 {
			d := backoff(failures)
			require.GreaterOrEqual(t, d, most/2)
			require.LessOrEqual(t, d, most)
			seen[d] = true
		}
		require.Greater(t, len(seen), 10, "peers must not return together")
	}
}

// The state of a link over time: failures, pauses, and a node that counts as gone.
func TestLinkRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newEnd(t, "eu-west", "a", nil)
		to := Node{"us-east", "b", "127.0.0.1:1"}
		k := newLink(a.links, to)
		call := func(failed *CallError) (down, changed bool) {
			require.Nil(t, k.begin(time.Now()))
			k.end()
			return k.note(failed, time.Now())
		}
		unreachable := k.fail(ErrUnreachable, 0, "no answer")
		for i := range downAfter {
			down, changed := call(unreachable)
			require.Equal(t, i == downAfter-1, down)
			require.Equal(t, down, changed)
			failed := k.begin(time.Now())
			require.ErrorIs(t, failed, ErrUnreachable, "it rests")
			require.Positive(t, failed.RetryAfter)
			time.Sleep(failed.RetryAfter)
		}
		down, changed := call(nil)
		require.False(t, down)
		require.True(t, changed)
		require.Nil(t, k.begin(time.Now()))
		k.end()

		_, _ = call(k.fail(ErrBusy, time.Second, "full"))
		require.ErrorIs(t, k.begin(time.Now()), ErrBusy)
		time.Sleep(time.Second)
		_, changed = call(nil)
		require.False(t, changed)
		require.False(t, k.idle(time.Now()))
		time.Sleep(forgetAfter + time.Second)
		require.True(t, k.idle(time.Now()))
	})
}
