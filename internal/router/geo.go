package router

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// geoEvery is how often a GeoIP file is looked at. A database that was replaced is
// closed that much later, when nobody can still be reading it.
const geoEvery = time.Minute

// GeoFile is a GeoIP database that follows its file.
type GeoFile struct {
	name    string
	current atomic.Pointer[region.GeoIP]
	info    os.FileInfo   // of current
	retired *region.GeoIP // was current until the last look
}

var _ region.Locator = (*GeoFile)(nil)

// OpenGeo opens a database in the MaxMind DB format.
func OpenGeo(name string) (*GeoFile, error) {
	g := &GeoFile{name: name}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	db, err := region.OpenGeoIP(name)
	if err != nil {
		return nil, err
	}
	g.info = info
	g.current.Store(db)
	return g, nil
}

// Locate implements region.Locator.
func (g *GeoFile) Locate(a netip.Addr) (region.Location, netip.Prefix, bool) {
	return g.current.Load().Locate(a)
}

// follow reads the file again when another is in its place, until ctx ends.
func (g *GeoFile) follow(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(geoEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.look(log)
		}
	}
}

// look keeps the database that there is if the new one cannot be read.
func (g *GeoFile) look(log *slog.Logger) {
	if g.retired != nil {
		_ = g.retired.Close() // only read
		g.retired = nil
	}
	info, err := os.Stat(g.name)
	if err != nil || os.SameFile(info, g.info) && info.ModTime().Equal(g.info.ModTime()) {
		return // one that is away for a moment is about to be replaced
	}
	g.info = info
	db, err := region.OpenGeoIP(g.name)
	if err != nil {
		log.Error("the new GeoIP database cannot be read, the one before stays", "file", g.name, "error", err.Error())
		return
	}
	g.retired = g.current.Swap(db)
	log.Info("read the new GeoIP database", "file", g.name)
}

// Close must not be called before everybody has stopped asking.
func (g *GeoFile) Close() {
	if g.retired != nil {
		_ = g.retired.Close() // only read
	}
	_ = g.current.Load().Close() // only read
}
