package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// geoEvery is how often the GeoIP file is checked.
	geoEvery = time.Minute
	// maxGeo is several times the size of the largest published databases.
	maxGeo = 1 << 30
	// vainLookups is after how many lookups in vain a database counts as one of another kind.
	vainLookups = 10_000
)

// GeoFile is a GeoIP database that follows its file. It keeps the content in memory, because
// a mapped file that somebody truncates ends the process.
type GeoFile struct {
	name    string
	current atomic.Pointer[region.GeoIP]
	info    os.FileInfo            // of the file at the last attempt to read it; nil: there was none
	failed  atomic.Pointer[string] // why that did not succeed; nil: it did
	located atomic.Bool            // current has located somebody
	missed  atomic.Int64           // how many it has not, until then
}

var _ region.Locator = (*GeoFile)(nil)

// OpenGeo reads a database in the MaxMind DB format.
func OpenGeo(name string) (*GeoFile, error) {
	g := &GeoFile{name: name}
	if err := g.read(); err != nil {
		return nil, err
	}
	return g, nil
}

// Locate implements region.Locator.
func (g *GeoFile) Locate(a netip.Addr) (region.Location, netip.Prefix, bool) {
	at, network, known := g.current.Load().Locate(a)
	if !g.located.Load() { // only the first ones pay for the counting
		if known {
			g.located.Store(true)
		} else {
			g.missed.Add(1)
		}
	}
	return at, network, known
}

// fault returns what is wrong with the file, or an empty string. g may be nil.
func (g *GeoFile) fault() string {
	switch {
	case g == nil:
	case g.failed.Load() != nil:
		return "the GeoIP file cannot be read, so the previous one stays in use, and a restart would fail: " + *g.failed.Load()
	case !g.located.Load() && g.missed.Load() >= vainLookups:
		return fmt.Sprintf("%s locates nobody (%d clients); it must have location.latitude and location.longitude, as GeoLite2-City.mmdb does", g.name, g.missed.Load())
	}
	return ""
}

// follow reads the file again when it has changed, until ctx ends.
func (g *GeoFile) follow(ctx context.Context, log *slog.Logger) {
	for consul.Pause(ctx, geoEvery) == nil {
		g.look(log)
	}
}

// look keeps the present database if the new one cannot be read.
func (g *GeoFile) look(log *slog.Logger) {
	info, err := os.Stat(g.name)
	if err == nil && same(info, g.info) {
		return
	}
	before := g.failed.Load()
	if err = g.read(); err == nil {
		g.failed.Store(nil)
		log.Info("read the new GeoIP database", "file", g.name)
		return
	}
	text := err.Error()
	g.failed.Store(&text)
	if before == nil || *before != text {
		log.Error("cannot read the new GeoIP database; keeping the previous one", "file", g.name, "error", text)
	}
}

// read makes the file's content the present database if it is complete.
func (g *GeoFile) read() error {
	info, err := os.Stat(g.name)
	if g.info = info; err != nil {
		return err
	}
	if info.Size() > maxGeo {
		return fmt.Errorf("%s is larger than %d MiB", g.name, maxGeo>>20)
	}
	data, err := disk.Read(g.name, maxGeo)
	if err != nil {
		return err
	}
	if now, err := os.Stat(g.name); err != nil || !same(info, now) {
		return errors.New(g.name + " changed while it was read; rename a complete file over it")
	}
	db, err := region.NewGeoIP(data)
	if err != nil {
		return fmt.Errorf("%s: %w", g.name, err)
	}
	g.current.Store(db)
	g.located.Store(false)
	g.missed.Store(0)
	return nil
}

// same reports whether a file has not changed between two looks.
func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
