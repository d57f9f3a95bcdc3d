package kinds

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Drains describes the drained PoPs of a region, which routers follow.
var Drains = &fleet.Kind{
	Name: region.DrainsKind, Longest: consul.MaxDocument,
	Parse: func(data []byte) (any, error) {
		d, err := region.ParseDrains(data)
		if err != nil {
			return nil, err
		}
		return &DrainBook{d}, nil
	},
	Back: func(is, before *fleet.Document, now time.Time) *fleet.Document {
		if is == nil { // it cannot be read; others may have ended since what this one had
			return before
		}
		next := is.Body.(*DrainBook).Back(before.Body.(*DrainBook).Drains, now)
		return &fleet.Document{Body: &DrainBook{next}, Kind: before.Kind, Name: "undo", Made: true, Bytes: next.Document()}
	},
	What: "drains", Are: "are", Put: "drain", Did: "changed", Look: "regionctl status", Watch: "regionctl status",
}

// DrainBook is the content of a document of drains.
type DrainBook struct{ *region.Drains }

func (d *DrainBook) Compare(running any) Changes {
	before, _ := running.(*DrainBook)
	if before == nil {
		before = &DrainBook{&region.Drains{}}
	}
	return compareFields(before.fields(), d.fields())
}

func (d *DrainBook) fields() (list []FieldValue) {
	for _, pop := range slices.Sorted(maps.Keys(d.Begun)) {
		is := d.Begun[pop]
		list = append(list, FieldValue{pop, fmt.Sprintf("drained by %s since %s: %s", is.Who, term.Stamp(is.Since), is.Why)})
	}
	return list
}
