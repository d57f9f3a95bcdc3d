package versions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// NoVersion is the --if-version value for a region in which nothing is published.
const NoVersion = "none"

// FindVersion returns the one version that begins with these digits, among those that a
// pointer names or a region has stored.
func FindVersion(ctx context.Context, k *fleet.Kind, answers []fleet.Answer[History], digits string) (*consul.Pointer, error) {
	if len(digits) < 4 || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("version %q: must be 4 to 12 digits of a version, as regionctl %s history lists them", digits, k.Name)
	}
	var targets []*fleet.Target
	known := map[string]consul.Pointer{} // without a SHA-256, it is stored
	holders := map[string]*fleet.Target{}
	for i, a := range answers {
		if a.Err == nil {
			targets = append(targets, a.Target)
		}
		for _, p := range answers[i].Value.known() {
			if strings.HasPrefix(p.Version, digits) {
				known[p.Version] = p
			}
		}
	}
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		return t.Docs.Versions(ctx, digits)
	}) {
		if a.Err != nil {
			return nil, fmt.Errorf("version %q: %s: %w", digits, a.Target.Name, a.Err)
		}
		for _, version := range a.Value {
			holders[version] = a.Target
			if _, is := known[version]; !is {
				known[version] = consul.Pointer{}
			}
		}
	}
	found := slices.Sorted(maps.Keys(known))
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("version %q: no region has it; regionctl %s history lists past versions, of which the newest are kept (prune --help)", digits, k.Name)
	case len(found) > 1:
		return nil, fmt.Errorf("version %q: several versions begin with it, %s and %s; give more digits", digits, found[0], found[1])
	}
	pointer := known[found[0]]
	if pointer.SHA256 != "" {
		return &pointer, nil
	}
	stored, err := holders[found[0]].Stored(ctx, found[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", holders[found[0]].Name, err)
	}
	return stored, nil
}

// FetchVersion loads a version from the first region that has it.
func FetchVersion(ctx context.Context, answers []fleet.Answer[History], pointer consul.Pointer) (*fleet.Document, error) {
	data, from, err := loadVersion(ctx, answers, pointer)
	if err != nil {
		return nil, err
	}
	d, err := fleet.ParseDocument(from.Kind, "", data)
	if err != nil {
		return nil, fmt.Errorf("version %s: this regionctl would refuse it:\n%w", pointer.Version, err)
	}
	return d, nil
}

func loadVersion(ctx context.Context, answers []fleet.Answer[History], pointer consul.Pointer) ([]byte, *fleet.Target, error) {
	var errs []error
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		brief, cancel := a.Target.Bounded(ctx)
		data, err := a.Target.Docs.Load(brief, pointer)
		cancel()
		if err == nil {
			return data, a.Target, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a.Target.Name, err))
	}
	return nil, nil, errors.Join(errs...)
}
