package shedding

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

const (
	// farBelow is the least ratio of the lowest cap to the high knee that gets a warning. With
	// the defaults the ratio is just below 1.
	farBelow = 4
	// patient is the shortest patience in which a queue does harm.
	patient = 5 * time.Second
)

// Warnings lists settings that are valid but probably unintended.
func (d *Document) Warnings() []string {
	list := append(d.unanswered(), d.loose("")...)
	for _, group := range slices.Sorted(maps.Keys(d.Upstreams)) {
		if o := d.Upstreams[group]; o.Signals != nil || o.MaxInFlight != nil {
			list = append(list, d.loose(group)...)
		}
	}
	if len(d.Classes) == 1 {
		list = append(list, "classes: the level never sheds the first class, so with a single one only its max_in_flight protects the origin; add a class for what may be shed")
	}
	return list
}

// unanswered lists the paths of classes whose every request gets 400.
func (d *Document) unanswered() []string {
	m, err := d.Matcher()
	if err != nil {
		return nil
	}
	classes := make([]int, len(m.leads))
	for i, l := range m.leads {
		classes[i] = l.class
	}
	return m.conditions.Warnings(classes, m.otherwise, func(i int) string { return m.leads[i].at })
}

// loose warns of caps that permit a queue while the level is 0. Slight overload takes one
// patience to shed; until then only caps bound the queue.
func (d *Document) loose(group string) []string {
	s, err := d.Settings(group)
	knees, counts := s.Signals[shedder.SignalInFlight]
	if err != nil || !counts || s.AutoFrom > 0 || s.Patience < patient || s.Law == shedder.LawCap {
		return nil
	}
	last := s.Classes[len(s.Classes)-1]
	if float64(last.MaxInFlight) <= farBelow*knees.High {
		return nil
	}
	path := "signals.inflight.high"
	if group != "" {
		path = "upstreams." + group + "." + path
	}
	return []string{fmt.Sprintf("%s: %g is far below the cap of the class %s: up to %d requests can wait for as long as patience (%v) while nothing is shed; set max_in_flight just above the knee, for classes above a little more",
		path, knees.High, last.Name, last.MaxInFlight, s.Patience)}
}
