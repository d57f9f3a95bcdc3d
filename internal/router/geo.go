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

// geoEvery is how often the GeoIP file is checked. A replaced database is closed that
// much later, when no lookup can still be reading it.
const geoEvery = time.Minute

// GeoFile is a GeoIP database that follows its file.
type GeoFile struct {
	name    string
	current atomic.Pointer[region.GeoIP]
	info    os.FileInfo   // of current
	retired *region.GeoIP // was current until the last check
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

// follow reopens the file when it has been replaced, until ctx ends.
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

// look keeps the present database if the new one cannot be read.
func (g *GeoFile) look(log *slog.Logger) {
	if g.retired != nil {
		_ = g.retired.Close() // only read
		g.retired = nil
	}
	info, err := os.Stat(g.name)
	if err != nil || os.SameFile(info, g.info) && info.ModTime().Equal(g.info.ModTime()) {
		return // a missing file is about to be replaced
	}
	g.info = info
	db, err := region.OpenGeoIP(g.name)
	if err != nil {
		log.Error("cannot read the new GeoIP database; keeping the previous one", "file", g.name, "error", err.Error())
		return
	}
	g.retired = g.current.Swap(db)
	log.Info("read the new GeoIP database", "file", g.name)
}

// Close must not be called while lookups are possible.
func (g *GeoFile) Close() {
	if g.retired != nil {
		_ = g.retired.Close() // only read
	}
	_ = g.current.Load().Close() // only read
}
