// Package command is what all commands of regionctl share: the run of the program with its
// fleet, and how commands, their flags, arguments and completions are made.
package command

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Program is one run of regionctl.
type Program struct {
	*term.Terminal
	// Registering is how long to wait for the first edge of a region, LookTime how long one
	// look at all figures may take, LockWait how long to wait for concurrent changes, and
	// CompletionTime how long a user waits after pressing Tab.
	Registering, LookTime, LockWait, CompletionTime time.Duration
	// Dial, if not nil, replaces the network.
	Dial consul.Dialer

	// User, if not "", is the user of the console who sent a request.
	User string
	// MayHalt, if not nil, refuses to halt a rollout that runs in these regions.
	MayHalt func(regions []string) error
	// SignFile is the console's key; --sign names another.
	SignFile      string
	FleetFile     string
	Prometheus    string // of --prometheus: its address
	Timeout       time.Duration
	InsecureAdmin bool
	opened        []*fleet.Target // until the run ends
	away          map[string]error
}

// The times of a run, unless a test or a flag says otherwise.
const (
	// DefaultTimeout is how long a Consul or an edge may take to answer, and the most.
	DefaultTimeout = 5 * time.Second
	// registering is how long to wait for the first node of a region.
	registering = 15 * time.Second
	// lockWait is how long a change waits for concurrent ones. The lock of a process that died
	// is free after consul.StaleAfter.
	lockWait = time.Minute
	// completionTime is how long a user waits after pressing Tab.
	completionTime = time.Second
)

func NewProgram(t *term.Terminal) *Program {
	return &Program{Terminal: t, Registering: registering, LookTime: DefaultTimeout, LockWait: lockWait, CompletionTime: completionTime}
}

// Log returns the log of a command that runs until it is stopped.
func (p *Program) Log() *slog.Logger {
	if p.Live && !p.WantsJSON() {
		return logs.Text(p.ErrOut)
	}
	return logs.JSON(p.ErrOut, slog.LevelInfo)
}

func (p *Program) CheckFlags() error {
	if p.Format != "table" && p.Format != "json" {
		return term.Misused("--output %q: unknown; use table or json", p.Format)
	}
	if p.Timeout <= 0 || p.Timeout > DefaultTimeout {
		return term.Misused("--timeout %s: must be above 0 and at most %s", p.Timeout, DefaultTimeout)
	}
	return nil
}

// Show prints what a command found out, if anything, and returns what is wrong with it.
func Show[T any](p *Program, found T, wrong error, write func(T, *bytes.Buffer, term.Style)) error {
	if reflect.ValueOf(found).IsNil() {
		return wrong
	}
	return cmp.Or(p.Show(found, func(b *bytes.Buffer, s term.Style) { write(found, b, s) }), wrong)
}

// None says that nothing was found. With an error, only some places were looked at.
func None(text string, wrong error) string {
	if wrong != nil {
		text += ", as far as is known"
	}
	return text + "\n"
}

// ShowDifference shows what a change does, and which regions it skips. With -o json the
// difference is not part of the result.
func (p *Program) ShowDifference(away []string, write func(*bytes.Buffer, term.Style)) error {
	var b bytes.Buffer
	w, s := p.Out, p.OutStyle()
	if p.WantsJSON() {
		w, s = p.ErrOut, p.ErrStyle()
	}
	write(&b, s)
	if len(away) > 0 {
		fmt.Fprintf(&b, "%s: %s\n", s.Bold(strings.Join(away, ", ")), s.Yellow("cannot be reached, skipped"))
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// Refuse lists the faults of a file.
func Refuse(name string, err error) error {
	return term.Misused("%s has %s:\n%s", name, term.Plural(field.All(err).Count(), "problem"), term.Faults(name, err))
}
