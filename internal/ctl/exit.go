package ctl

import (
	"context"
	"errors"
	"fmt"
)

// What the program exits with.
const (
	statusFailed      = 1
	statusUsage       = 2
	statusPartial     = 3
	statusConflict    = 4
	statusInterrupted = 130 // 128 + SIGINT, as shells have it
)

// failure is an error with its exit status. Without err there is nothing to add to
// what was printed.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func failed(format string, args ...any) error {
	return &failure{statusFailed, fmt.Errorf(format, args...)}
}

func misused(format string, args ...any) error {
	return &failure{statusUsage, fmt.Errorf(format, args...)}
}

func partial(format string, args ...any) error {
	return &failure{statusPartial, fmt.Errorf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &failure{statusConflict, fmt.Errorf(format, args...)}
}

func interrupted(format string, args ...any) error {
	return &failure{statusInterrupted, fmt.Errorf(format, args...)}
}

// ExitStatus is what a program whose Run returned err exits with.
func ExitStatus(err error) int {
	var f *failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		return f.status
	}
	return statusFailed
}

// settle gives an error its final form. What failed because the program was told to
// stop was interrupted, unless it is worse than that.
func settle(ctx context.Context, err error) error {
	var f *failure
	known := errors.As(err, &f)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && (!known || f.status == statusFailed):
		return interrupted("interrupted")
	case known:
		return err
	}
	return &failure{statusFailed, err}
}
