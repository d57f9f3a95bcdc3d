package term

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// The exit statuses. reasons names each for programs.
const (
	StatusFailed      = 1
	StatusUsage       = 2
	StatusPartial     = 3
	StatusConflict    = 4
	StatusInterrupted = 130 // 128 + SIGINT, as in shells
)

var reasons = map[int]string{
	StatusFailed: "failed", StatusUsage: "usage", StatusPartial: "partial", StatusConflict: "conflict", StatusInterrupted: "interrupted",
}

// Failure is an error with its exit status. Without err there is nothing to add to
// what was printed.
type Failure struct {
	Status int
	Err    error
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit status %d", f.Status)
	}
	return f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// Reason names the kind of failure for programs.
func (f *Failure) Reason() string {
	var away *unreachable
	if errors.As(f.Err, &away) {
		return "unreachable"
	}
	return reasons[f.Status]
}

func Failed(format string, args ...any) error {
	return &Failure{StatusFailed, fmt.Errorf(format, args...)}
}

// Unreachable is Failed for a change that could continue without the regions that do not answer.
func Unreachable(format string, args ...any) error {
	return &Failure{StatusFailed, &unreachable{fmt.Errorf(format, args...)}}
}

type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

func Misused(format string, args ...any) error {
	return &Failure{StatusUsage, fmt.Errorf(format, args...)}
}

func Partial(format string, args ...any) error {
	return &Failure{StatusPartial, fmt.Errorf(format, args...)}
}

func Conflict(format string, args ...any) error {
	return &Failure{StatusConflict, fmt.Errorf(format, args...)}
}

func Interrupted(format string, args ...any) error {
	return &Failure{StatusInterrupted, fmt.Errorf(format, args...)}
}

// ExitStatus returns the exit status of a program whose Run returned err.
func ExitStatus(err error) int {
	var f *Failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		return f.Status
	}
	return StatusFailed
}

// Settle gives an error its final form. A failure because the program was told to stop
// becomes an interrupt, unless it is worse than that.
func Settle(ctx context.Context, err error) error {
	var f *Failure
	known := errors.As(err, &f)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && (!known || f.Status == StatusFailed):
		return Interrupted("interrupted")
	case known:
		return err
	}
	return &Failure{StatusFailed, err}
}

// problem is a failure as programs read it.
type problem struct {
	Error struct {
		Status  int    `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"error"`
}

// Fail prints an error that Settle has returned. With -o json it is the last line of standard
// error, so that standard output holds results only, and the text before it stays readable.
func (t *Terminal) Fail(program string, err error) {
	var f *Failure
	silent := errors.As(err, &f) && f.Err == nil // every error is one, once settled
	if !t.WantsJSON() {
		if !silent {
			t.Say("%s: %v", program, err)
		}
		return
	}
	var p problem
	p.Error.Status, p.Error.Message = ExitStatus(err), err.Error()
	p.Error.Reason = f.Reason()
	if silent {
		p.Error.Message = "standard output says what"
	}
	var line bytes.Buffer
	if EncodeJSON(&line, p, "") == nil { // strings and a number always encode
		_, _ = t.ErrOut.Write(line.Bytes()) // nowhere else to say it
	}
}
