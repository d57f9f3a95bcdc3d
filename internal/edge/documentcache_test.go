package edge

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// cachedDocument is a good document.
const cachedDocument = "rules:\n  - {id: a, key: [client_ip], limit: 1, window: 1h}\n"

// writeCache writes what a node in eu-west would have kept.
func writeCache(t *testing.T, file, document string) {
	t.Helper()
	require.NoError(t, documents.WriteCache(file, documents.Owner{Region: "eu-west", Prefix: "weir"}, consul.NewPointer([]byte(document), "op@example", time.Now()), []byte(document)))
}

// unreachable configures a node whose Consul never answers.
func unreachable(t *testing.T, cache string) setup {
	t.Helper()
	return setup{config: func(c *config.Config) {
		c.Node.Region, c.Node.PoP = "eu-west", "ams1"
		c.Rules = config.Rules{Source: "consul", Cache: cache, Required: true}
		c.Consul.Addr, c.Consul.Register = "127.0.0.1:1", false
	}}
}

func TestDamagedCacheIsNeverInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.json")
	writeCache(t, file, cachedDocument)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	write := func(data []byte) { require.NoError(t, os.WriteFile(file, data, 0o600)) }
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		data := append([]byte(nil), whole...)
		at := random.IntN(len(data))
		data[at] ^= 1 << random.IntN(8)
		if random.IntN(2) == 0 {
			data = data[:at]
		}
		write(data)
		n := start(t, unreachable(t, file))
		require.Nil(t, n.rules.Running())
		status, state := n.readyz()
		require.Equal(t, 503, status)
		require.Equal(t, "no rules", state["status"])
		require.EqualValues(t, 1, n.metric("weir_rules_cache_errors_total"))
		logged := n.logs.lines(t, "cached rules not used")
		require.Len(t, logged, 1)
		require.Contains(t, logged[0]["error"], file+": is damaged: it is not what the node wrote")
		n.stop()
	}
	// Intact, but not good rules.
	writeCache(t, file, badRules)
	n := start(t, unreachable(t, file))
	require.Nil(t, n.rules.Running())
	require.Len(t, n.logs.lines(t, "cached rules not used"), 1)
	n.stop()

	write(whole)
	n = start(t, unreachable(t, file))
	require.Equal(t, "cache", n.rulesView().Source)
	require.Zero(t, n.metric("weir_rules_cache_errors_total"))
}

func TestCacheOnDisk(t *testing.T) {
	t.Parallel()
	p := publish(t, testenv.StartConsul(t, testenv.ConsulOptions{}))
	s := p.setup()
	first := p.apply(ruleA)
	n := start(t, s)
	file := n.config.Rules.Cache
	holds := func(version string) {
		t.Helper()
		eventually(t, "the file holds "+version, func() bool {
			kept, err := n.kept()
			return err == nil && kept.Pointer.Version == version
		})
	}
	holds(first)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(filepath.Dir(file))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm(), "the folder was missing")

	// A folder that was replaced by a file cannot be written to, not even by root.
	folder := filepath.Dir(file)
	require.NoError(t, os.Rename(folder, folder+".away"))
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	second := p.apply(ruleB)
	n.runs(second)
	v := n.shows("the fault", func(v adminapi.Rules) bool { return !v.Cache.OK })
	require.Contains(t, v.Cache.Error, folder)
	status, state := n.readyz()
	require.Equal(t, 200, status)
	require.Equal(t, v.Cache.Error, state["rules_cache"])
	eventually(t, "it keeps trying", func() bool { return n.metric("weir_rules_cache_errors_total") >= 3 })
	require.Len(t, n.logs.lines(t, "rules cannot be cached; a restart while consul is unreachable has none"), 1)

	// Before the folder is back: the node may write at once.
	left := filepath.Join(folder+".away", filepath.Base(file)+".next-1")
	require.NoError(t, os.WriteFile(left, []byte("left behind"), 0o644))
	require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-24*time.Hour)))
	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.Rename(folder+".away", folder))
	holds(second)
	eventually(t, "the fault is over", func() bool { return n.rulesView().Cache.OK })
	require.Len(t, n.logs.lines(t, "rules are cached again"), 1)
	_, err = os.Stat(file + ".next-1")
	require.ErrorIs(t, err, os.ErrNotExist)

	// A damaged file is overwritten.
	n.stop()
	require.NoError(t, os.WriteFile(file, []byte("junk"), 0o600))
	n = start(t, s)
	n.runs(second)
	holds(second)
}

// A fault found at startup ends when the disk is repaired, even if the file already
// holds what is to be written, or nothing is to be written.
func TestCacheFaultEnds(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	for name, document := range map[string]string{"nothing published": "", "the same rules": ruleA} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, consul)
			s := p.setup()
			if document != "" {
				version := p.apply(document)
				n := start(t, s)
				n.runs(version)
				eventually(t, "it is kept", func() bool { _, err := n.kept(); return err == nil })
				n.stop()
			}
			var folder string
			s.change = func(e *Edge) { // between the check at startup and Run
				folder = filepath.Dir(e.config.Rules.Cache)
				e.rules.CacheState.Note(errors.New("read-only"))
				require.NoError(t, os.Rename(folder, folder+".away"))
				require.NoError(t, os.WriteFile(folder, nil, 0o600))
			}
			n := start(t, s)
			eventually(t, "it is checked again", func() bool { return n.metric("weir_rules_cache_errors_total") >= 2 })
			v := n.rulesView()
			require.False(t, v.Cache.OK)
			require.Contains(t, v.Cache.Error, folder)
			require.NoError(t, os.Remove(folder))
			require.NoError(t, os.Rename(folder+".away", folder))
			n.shows("the fault is over", func(v adminapi.Rules) bool { return v.Cache.OK })
			_, state := n.readyz()
			require.NotContains(t, state, "rules_cache")
			left, err := filepath.Glob(filepath.Join(folder, "*.probe*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// A disk from another region does not bring that region's rules along.
func TestCacheOfAnotherIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.json")
	s := unreachable(t, file)
	configured := s.config
	for name, row := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"region":     {func(c *config.Config) { c.Node.Region = "mars" }, "is of region eu-west, this node is in mars"},
		"datacenter": {func(c *config.Config) { c.Consul.Datacenter = "dc2" }, `is of consul.datacenter "", this node follows "dc2"`},
		"prefix":     {func(c *config.Config) { c.Consul.Prefix = "other" }, "is of consul.prefix weir, this node follows other"},
	} {
		t.Run(name, func(t *testing.T) {
			writeCache(t, file, cachedDocument)
			s.config = func(c *config.Config) { configured(c); row.change(c) }
			n := start(t, s)
			require.Nil(t, n.rules.Running())
			logged := n.logs.lines(t, "cached rules not used")
			require.Len(t, logged, 1)
			require.Equal(t, file+": "+row.want+"; it is overwritten by the next good document", logged[0]["error"])
			_, err := n.config.CheckRules()
			require.EqualError(t, err, "rules.cache: "+file+": "+row.want+"; delete the file, the node writes it again")
		})
	}
	s.config = func(c *config.Config) { configured(c); c.Consul.Prefix = "weir" }
	require.NotNil(t, start(t, s).rules.Running(), "an explicit default prefix is the same")
}

func TestUnwritableCacheIsToldAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	n := start(t, unreachable(t, filepath.Join(file, "rules.json")))
	_, state := n.readyz()
	require.Contains(t, state["rules_cache"], "not a directory")
	require.Len(t, n.logs.lines(t, "rules cannot be cached; a restart while consul is unreachable has none"), 1)
}
