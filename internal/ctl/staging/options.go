package staging

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/sign"
)

// Options are what the flags of a change say.
type Options struct {
	flags   *pflag.FlagSet // that set the fields
	Regions []string
	By      string
	Message string
	Yes     bool
	Partial bool
	Wait    time.Duration
	// Lasts is how long the document stays active; 0: until the next change.
	Lasts time.Duration
	// Signer signs the document; nil: it already has its signatures, or needs none.
	Signer   *sign.Key
	signFile string
	// BreakLock does not wait for other changes.
	BreakLock bool
	// Force changes what edges object to.
	Force bool
	// Keep is how many versions to keep afterwards; 0: all.
	Keep int
	// IfVersion is the version that regions must run, or its first digits; "": any.
	IfVersion string
	Staging   Flags
}

func (o *Options) ApplyFlags(f *pflag.FlagSet, k *fleet.Kind) {
	o.Flags(f)
	o.DocumentFlags(f)
	o.forceFlag(f)
	if k.AtEdges() {
		o.waitFlag(f)
		f.StringVar(&o.Staging.Pop, "canary", "", "try it on this `POP` first")
		f.DurationVar(&o.Staging.bake, "bake", defaultBake, "how long the canary is watched before the rest follows")
		o.Staging.WaveFlags(f)
	}
}

// DocumentFlags adds those of a change to a new document.
func (o *Options) DocumentFlags(f *pflag.FlagSet) {
	command.MessageFlag(f, &o.Message)
	f.StringVar(&o.IfVersion, "if-version", "", "change nothing unless each region runs this `VERSION`, which the document was made from; "+versions.NoVersion+": nothing is published")
}

// Flags adds the flags that apply, set and undo share.
func (o *Options) Flags(f *pflag.FlagSet) {
	o.flags = f
	command.BindRegions(f, &o.Regions)
	command.YesFlag(f, &o.Yes)
	f.BoolVar(&o.Partial, "partial", false, "continue without regions that cannot be reached")
	f.BoolVar(&o.BreakLock, "break-lock", false, "do not wait for another change: take its lock, even if it is still running; it stops before its next write")
	f.IntVar(&o.Keep, "keep-versions", versions.KeepVersions, "prune all but the newest `N` versions afterwards, at least 10; 0 does not (default: keep_versions of the fleet file, or 200)")
	f.Lookup("keep-versions").DefValue = "0" // it says so itself
	f.StringVar(&o.signFile, "sign", "", "sign the document with the private key in `KEYFILE`; see regionctl keys --help")
	command.ByFlag(f, &o.By)
}

func (o *Options) Completions(cmd *cobra.Command, p *command.Program) {
	_ = cmd.RegisterFlagCompletionFunc("region", p.CompleteRegions) // fails only if the flag is unknown
	command.CompleteFiles(cmd, "sign", "pem", "key")
}

// EdgeFlags adds the flags of changes that edges follow: --wait and --force.
func (o *Options) EdgeFlags(f *pflag.FlagSet) {
	o.waitFlag(f)
	o.forceFlag(f)
}

func (o *Options) waitFlag(f *pflag.FlagSet) {
	f.DurationVar(&o.Wait, "wait", 30*time.Second, "how long to wait for the edges; 0 does not wait")
}

func (o *Options) forceFlag(f *pflag.FlagSet) {
	f.BoolVar(&o.Force, "force", false, "change it even if nodes object, because they cannot read it or require another signature; the history says so")
}

func (o *Options) CheckFlags(p *command.Program) (err error) {
	if o.Wait < 0 {
		return term.Misused("--wait %s: must be 0 or above", o.Wait)
	}
	if o.Keep != versions.KeepVersions && o.Keep != 0 && o.Keep < region.LeastVersions {
		return term.Misused("--keep-versions %d: must be 0, which does not prune, or at least %d", o.Keep, region.LeastVersions)
	}
	if v := o.IfVersion; v != "" && v != versions.NoVersion && (len(v) < 4 || len(v) > 12 || strings.Trim(v, "0123456789abcdef") != "") {
		return term.Misused("--if-version %q: must be %s or the 4 to 12 first digits of a version, as status shows it", v, versions.NoVersion)
	}
	if err := command.CheckText("--message", o.Message, command.LongestMessage); err != nil {
		return err
	}
	if o.Signer, err = command.Signer(cmp.Or(o.signFile, p.SignFile)); err != nil {
		return err
	}
	if o.By, err = p.Whoami(o.By); err != nil {
		return err
	}
	return o.Staging.Parse(o.flags)
}

// resumable are the flags of apply that a resumed rollout needs again.
var resumable = append([]string{"canary", "bake", "waves", "soak", "region", "partial", "wait", "keep-versions", "if-version"}, BoundFlags[:]...)

// Given returns those that were passed.
func (o *Options) Given() (list []string) {
	for _, name := range resumable {
		if flag := o.flags.Lookup(name); flag != nil && flag.Changed {
			list = append(list, "--"+name+"="+strings.Trim(flag.Value.String(), "[]"))
		}
	}
	return list
}

// Give sets one that Given returned, unless it was passed.
func (o *Options) Give(flag string) error {
	name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
	if !slices.Contains(resumable, name) {
		return term.Failed("the rollout was started with --%s, which this release cannot resume; use the release that started it", term.Printable(name))
	}
	if o.flags.Changed(name) {
		return nil
	}
	if err := o.flags.Set(name, value); err != nil {
		return term.Failed("the record of the rollout: --%s: %w", name, err)
	}
	return nil
}
