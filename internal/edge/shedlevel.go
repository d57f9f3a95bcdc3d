package edge

import (
	"context"
	"math"
	"strconv"
	"time"
)

// tellLevelEvery is the least time between two registrations of a changed shed level: each
// is a write to the catalog that wakes every DNS router.
const tellLevelEvery = 2 * time.Second

// followLevel keeps the registration's shed_level up to date until ctx ends.
func (e *Edge) followLevel(ctx context.Context) {
	ticker := time.NewTicker(tellLevelEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		tenths := int64(0)
		if e.keeper.active.Load().Document.Enabled {
			for _, g := range e.groups {
				s := g.shedder.Status()
				tenths = max(tenths, shedTenths(s.Level, len(s.Classes)))
			}
		}
		if e.shedLevel.Swap(tenths) == tenths {
			continue
		}
		e.changed()
	}
}

// shedTenths returns a shedder's level in tenths of everything that it can shed.
// A single class is never shed by level.
func shedTenths(level float64, classes int) int64 {
	if classes < 2 || !(level > 0) {
		return 0
	}
	return int64(math.Round(10 * min(level/float64(classes-1), 1)))
}

// levelMeta returns the level as DNS routers read it, "" while nothing is shed.
func (r *registrar) levelMeta() string {
	tenths := r.shedLevel.Load()
	if tenths == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(tenths)/10, 'f', 1, 64)
}
