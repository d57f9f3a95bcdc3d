package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Answer is what one region gave.
type Answer[T any] struct {
	Target *Target
	Value  T
	Err    error
}

// Ask queries all regions concurrently and returns their answers in the same order. Each
// has the time of its target.
func Ask[T any](ctx context.Context, targets []*Target, question func(context.Context, *Target) (T, error)) []Answer[T] {
	return AskUnbounded(ctx, targets, func(ctx context.Context, t *Target) (T, error) {
		ctx, cancel := t.Bounded(ctx)
		defer cancel()
		return question(ctx, t)
	})
}

func AskUnbounded[T any](ctx context.Context, targets []*Target, question func(context.Context, *Target) (T, error)) []Answer[T] {
	answers := make([]Answer[T], len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			value, err := question(ctx, t)
			answers[i] = Answer[T]{t, value, err}
		})
	}
	all.Wait()
	return answers
}

// Together asks several questions concurrently, so that they take one round trip. It
// returns the first error, in the order of the questions.
func Together(questions ...func() error) error {
	errs := make([]error, len(questions))
	var all sync.WaitGroup
	for i, ask := range questions {
		all.Go(func() { errs[i] = ask() })
	}
	all.Wait()
	return cmp.Or(errs...)
}

// Failures returns the regions that failed, and their errors joined. A region that was asked about
// several things is named once, with its first error.
func Failures[T any](answers []Answer[T]) (names []string, err error) {
	var errs []error
	for _, a := range answers {
		if a.Err != nil && !slices.Contains(names, a.Target.Name) {
			names = append(names, a.Target.Name)
			errs = append(errs, fmt.Errorf("%s: %w", a.Target.Name, a.Err))
		}
	}
	return names, errors.Join(errs...)
}

// AskNodes asks several nodes at once and returns their answers in the same order.
func AskNodes[T any](nodes []consul.Node, question func(consul.Node) (T, error)) (answers []T, errs []error) {
	answers, errs = make([]T, len(nodes)), make([]error, len(nodes))
	Each(nodes, func(i int, n consul.Node) { answers[i], errs[i] = question(n) })
	return answers, errs
}

func Filter[T any](list []T, keep func(T) bool) []T {
	var out []T
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// Map returns what of makes of each element; nil for an empty list.
func Map[T, R any](list []T, of func(T) R) []R {
	var out []R
	for _, v := range list {
		out = append(out, of(v))
	}
	return out
}

// Each calls f for every element, several at once.
func Each[T any](list []T, f func(int, T)) {
	slots := make(chan struct{}, AtOnce)
	var all sync.WaitGroup
	for i, v := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i, v)
		})
	}
	all.Wait()
}
