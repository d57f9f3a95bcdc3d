// Package unfinished finds rollouts that have not come to their end, by their records, and tells
// whether their regionctl still runs.
package unfinished

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const rolloutHelp = `Shows the change that is in progress, or that ended before all regions had the version, such as
a canary or waves: which waves are done, who started it, and whether its regionctl still runs. One
that was killed, or that lost its network, no longer renews the record of its rollout:
after 10 seconds without a renewal, by the Consuls' clocks, it counts as gone. Before you
resume or go back, regionctl watches the record for up to 10 seconds, whatever clocks say.

  resume    regionctl rules apply --resume continues in the name of the caller: with the
            same document and the same flags, after another look at what is changed
  go back   regionctl undo rules gives the changed regions what they had, and ends the canary

Exits with 0, and with 3 if a region did not answer.`

func Command(p *command.Program, k *fleet.Kind) *cobra.Command {
	return command.New("rollout", "show a change that is not finished", k.Reworded(rolloutHelp), "  regionctl "+k.Name+" rollout\n  regionctl "+k.Name+" rollout -o json | jq .rollout.state",
		func(ctx context.Context, _ []string) error {
			r, err := Look(ctx, p, k)
			return command.Show(p, r, err, func(r *Report, b *bytes.Buffer, st term.Style) { r.Rollout.write(b, st, k, p.Now()) })
		})
}

// Look looks for a rollout that is not finished in all regions.
func Look(ctx context.Context, p *command.Program, k *fleet.Kind) (*Report, error) {
	targets, err := p.Targets(k, nil)
	if err != nil {
		return nil, err
	}
	u, err := Find(ctx, p, targets, nil)
	if err != nil && term.ExitStatus(err) != term.StatusPartial {
		return nil, err
	}
	return &Report{u}, err
}

// Report is what rollout prints with -o json.
type Report struct {
	// Rollout is missing if every rollout is finished.
	Rollout *Rollout `json:"rollout"`
}

// The states of a rollout that is not finished.
const (
	Runs      = "running"
	Halted    = "halted"
	Abandoned = "abandoned"
)

// The states of a region in it.
const (
	RegionDone    = "done"    // it has the version
	RegionWaits   = "waiting" // it has what it had when the rollout began
	regionMoved   = "changed" // somebody applied something else since
	RegionUnknown = "unknown"
)

// Rollout is a rollout that has not come to its end.
type Rollout struct {
	Version string    `json:"version"`
	By      string    `json:"by"`
	Message string    `json:"message,omitempty"`
	BeganAt time.Time `json:"began_at"`
	SeenAt  time.Time `json:"seen_at"`
	// State is running, halted, or abandoned: its regionctl does not renew the record.
	State string `json:"state"`
	// Why says why it was halted.
	Why string `json:"why,omitempty"`
	// Canary is the PoP that tries the version, until CanaryUntil.
	Canary      string    `json:"canary,omitempty"`
	CanaryUntil time.Time `json:"canary_until,omitzero"`
	// Waves are the groups of regions, in their order.
	Waves [][]rolloutRegion `json:"waves"`
	// Resume and Back are the commands that continue and that roll back; missing while it runs.
	Resume string `json:"resume,omitempty"`
	Back   string `json:"back,omitempty"`

	Record consul.Rollout    `json:"-"`
	marks  map[string]uint64 // by region: the index of the record, which changes at each renewal
}

type rolloutRegion struct {
	Region  string `json:"region"`
	State   string `json:"state"`             // done, waiting, changed or unknown
	Version string `json:"version,omitempty"` // that is active
	By      string `json:"by,omitempty"`      // who applied that
}

// longestUnfinished is how long a record counts that nobody renews: a fleet that is divided
// for longer was left so on purpose.
const longestUnfinished = 7 * 24 * time.Hour

// regionState is what one region says.
type regionState struct {
	record  *consul.Rollout
	mark    uint64        // changes when the record is renewed
	silence time.Duration // since the record was renewed last, by this region's Consul
	now     fleet.Current
	canary  *consul.Pointer // of the record's version
}

// Find finds the rollout that is not finished, nil if there is none, among the records of
// all regions or of those in holders. Of several, which may be of different regions, it returns
// one that runs, or else one that has changed regions, or else the latest. An error besides says
// which regions did not answer.
func Find(ctx context.Context, p *command.Program, targets []*fleet.Target, holders rollout.Records) (*Rollout, error) {
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (n regionState, err error) {
		var wrong error // a record that cannot be read is none
		err = fleet.Together(func() (err error) {
			var index uint64
			if n.record, index, wrong = t.Docs.Rollout(ctx); index == 0 {
				err = wrong
			}
			if n.mark = index; n.record != nil {
				n.silence = t.Consul.Now().Sub(n.record.SeenAt)
			}
			return err
		}, func() (err error) {
			n.now, err = fleet.LookAtPointer(ctx, t)
			return err
		})
		if err == nil && wrong != nil {
			t.Warn("%s: %v", t.Name, wrong)
		}
		if err == nil && n.record != nil && n.record.Canary != "" {
			pointer, index, err := t.Docs.Canary(ctx, n.record.Canary)
			if err != nil && index == 0 {
				return n, err
			}
			if pointer != nil && pointer.Version == n.record.Version && !pointer.Expired(t.Consul.Now()) {
				n.canary = pointer
			}
		}
		return n, err
	})
	failures := command.Unanswered(answers)
	records := rollout.Records{}
	for _, a := range answers {
		if _, holds := holders[a.Target.Name]; a.Err == nil && (holders == nil || holds) {
			records[a.Target.Name] = rollout.Record{Rollout: a.Value.record, Index: a.Value.mark}
		}
	}
	var list []*Rollout
	for _, record := range records.Rollouts() {
		if u := viewOf(record, answers, p.Now()); !u.over(p.Now()) {
			list = append(list, u)
		}
	}
	if len(list) == 0 {
		return nil, failures
	}
	u := slices.MinFunc(list, func(a, b *Rollout) int { return cmp.Compare(a.rank(), b.rank()) }) // the first of the least
	if u.State != Runs {
		k := targets[0].Kind
		u.Resume, u.Back = "regionctl "+k.Name+" apply --resume", "regionctl undo "+k.Name
		if changed := u.Changed(); u.Record.Undoes && len(changed) > 0 {
			u.Resume, u.Back = u.Back, u.Back+" --to "+u.Record.Before[changed[0]].Version
		}
	}
	return u, failures
}

// rank orders rollouts by which one to show, resume or roll back first.
func (u *Rollout) rank() int {
	switch {
	case u.State == Runs:
		return 0
	case len(u.Changed()) > 0:
		return 1
	}
	return 2
}

// Left returns what unfinished does. An error says that a regionctl runs the rollout. Times in a
// record may be wrong, so left watches the record: one that is renewed belongs to a regionctl that
// runs, whatever its clock says.
func Left(ctx context.Context, p *command.Program, targets []*fleet.Target, holders rollout.Records) (u *Rollout, failures, err error) {
	u, failures = Find(ctx, p, targets, holders)
	if u == nil || u.State == Halted {
		return u, failures, nil
	}
	first, began := u, time.Now()
	silence := min(max(p.Now().Sub(u.SeenAt), 0), consul.StaleAfter)
	wait := max(consul.StaleAfter-silence, consul.RenewEvery+time.Second)
	p.Say("watches for %s whether the regionctl of %s still runs", wait.Round(time.Second), term.Printable(u.By))
	for {
		if err := consul.Pause(ctx, time.Second/2); err != nil {
			return nil, nil, err
		}
		u, failures = Find(ctx, p, targets, holders)
		if u == nil || u.State == Halted || u.State == Abandoned && !u.Record.SameRollout(&first.Record) {
			return Left(ctx, p, targets, holders) // the one that was watched has ended
		}
		if u.renewed(first) {
			return nil, nil, term.Conflict("nothing was changed: %s is rolling out %s, and renews the record; halt it there with Ctrl-C, or wait", term.Printable(u.By), u.Version)
		}
		if time.Since(began) >= wait {
			u.State = Abandoned
			return u, failures, nil
		}
	}
}

// renewed reports whether the record changed since the earlier look.
func (u *Rollout) renewed(earlier *Rollout) bool {
	if !u.Record.SameRollout(&earlier.Record) {
		return true
	}
	for region, mark := range u.marks {
		if before, known := earlier.marks[region]; known && before != mark {
			return true
		}
	}
	return false
}

func viewOf(record *consul.Rollout, answers []fleet.Answer[regionState], now time.Time) *Rollout {
	u := &Rollout{Version: record.Version, By: record.By, Message: record.Message, BeganAt: record.BeganAt,
		State: Runs, Why: record.Halted, Canary: record.Canary, Record: *record, marks: map[string]uint64{}}
	silence := time.Duration(math.MaxInt64) // in every region
	for _, a := range answers {
		if has := a.Value; a.Err == nil && has.record != nil && has.record.SameRollout(record) {
			u.marks[a.Target.Name] = has.mark
			silence = min(silence, max(has.silence, 0))
		}
	}
	u.SeenAt = now.Add(-silence)
	switch {
	case record.Halted != "":
		u.State = Halted
	case silence > consul.StaleAfter:
		u.State = Abandoned
	}
	for _, wave := range record.Waves {
		var list []rolloutRegion
		for _, name := range wave {
			r := rolloutRegion{Region: name, State: RegionUnknown}
			if i := slices.IndexFunc(answers, func(a fleet.Answer[regionState]) bool { return a.Target.Name == name && a.Err == nil }); i >= 0 {
				has := answers[i].Value
				r.Version = has.now.Version()
				if has.now.Pointer != nil {
					r.By = has.now.Pointer.AppliedBy
				}
				switch before := record.Before[name]; {
				case r.Version == record.Version:
					r.State = RegionDone
				case r.Version == before.Version:
					r.State = RegionWaits
				default:
					r.State = regionMoved
				}
				if has.canary != nil && has.record.SameRollout(record) {
					u.CanaryUntil = *has.canary.ExpiresAt
				}
			}
			list = append(list, r)
		}
		u.Waves = append(u.Waves, list)
	}
	return u
}

// Regions are those of all waves in one of these states.
func (u *Rollout) Regions(states ...string) (list []string) {
	for _, r := range slices.Concat(u.Waves...) {
		if slices.Contains(states, r.State) {
			list = append(list, r.Region)
		}
	}
	return list
}

// Changed are the regions that have another version than before, from this rollout.
func (u *Rollout) Changed() (list []string) {
	for _, r := range slices.Concat(u.Waves...) {
		if r.State == RegionDone && r.Version != u.Record.Before[r.Region].Version {
			list = append(list, r.Region)
		}
	}
	return list
}

// Active reports whether nodes run the rollout's version, in regions or as a canary.
func (u *Rollout) Active() bool { return len(u.Changed()) > 0 || !u.CanaryUntil.IsZero() }

// over reports whether nothing is left to resume or to roll back, whatever the record says:
// a regionctl may be killed between its last act and its word about it.
func (u *Rollout) over(now time.Time) bool {
	done, unknown := u.Regions(RegionDone), u.Regions(RegionUnknown)
	switch all := len(slices.Concat(u.Waves...)); {
	case len(done) == all, now.Sub(u.SeenAt) > longestUnfinished:
		return true
	case u.State == Runs, len(unknown) > 0, len(u.Changed()) > 0:
		return false
	case u.Canary == "":
		return true
	}
	// A canary that is gone with its regionctl has changed nothing; the document is what a
	// person may want to try again.
	return len(u.Regions(regionMoved)) > 0 || now.Sub(u.SeenAt) > 24*time.Hour
}

func (u *Rollout) write(b *bytes.Buffer, st term.Style, k *fleet.Kind, now time.Time) {
	if u == nil {
		fmt.Fprintf(b, "every rollout of the %s is finished\n", k.What)
		return
	}
	fmt.Fprintf(b, "%s of %s by %s, began %s", st.Bold("rollout"), u.Version, term.Printable(u.By), term.When(now, u.BeganAt))
	if u.Message != "" {
		b.WriteString(": " + term.Printable(u.Message))
	}
	b.WriteString("\n")
	if u.Canary != "" {
		until := "has expired, was ended, or never began"
		switch {
		case !u.CanaryUntil.IsZero():
			until = "until " + term.Stamp(u.CanaryUntil)
		case u.State == Runs:
			until = "has not begun, or was ended"
		}
		fmt.Fprintf(b, "  canary on %s: %s\n", term.Printable(u.Canary), until)
	}
	for i, wave := range u.Waves {
		for _, r := range wave {
			text := map[string]string{RegionDone: "has it", RegionWaits: "has what it had, " + term.OrDash(r.Version), regionMoved: term.Printable(r.By) + " applied " + term.OrDash(r.Version) + " since", RegionUnknown: "unknown"}[r.State]
			stage := ""
			if len(u.Waves) > 1 {
				stage = fmt.Sprintf("wave %d of %d: ", i+1, len(u.Waves))
			}
			fmt.Fprintf(b, "  %s%s %s\n", stage, r.Region, text)
		}
	}
	switch u.State {
	case Runs:
		fmt.Fprintf(b, "its regionctl runs; it renewed the record %s ago\n", term.Ago(now, u.SeenAt))
		return
	case Halted:
		fmt.Fprintf(b, "%s: %s\n", st.Yellow("halted"), term.Printable(u.Why))
	default:
		fmt.Fprintf(b, "%s: its regionctl was killed or cut off; it renewed the record last %s\n", st.Yellow("abandoned"), term.When(now, u.SeenAt))
	}
	fmt.Fprintf(b, "resume:  %s\ngo back: %s\n", u.Resume, u.Back)
}
