package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// upgradeTools answer what upgrade.sh asks. Terraform is the real one.
var upgradeTools = map[string]string{
	"terraform": `case $1 in
apply) case "$*" in *"/plan") echo apply ;; *) echo unplanned ;; esac >>log ;;
output) [ ! -e unreadable ] || exit 1 ;;
esac
exec "$REAL" "$@"`,
	"aws": `[ ! -e interrupted ] || kill 0
if [ -e unanswered ]; then rm unanswered; exit 255; fi
[ ! -e broken ] || { echo Failed && exit; }
echo "$*" | grep -o 'weir-[a-z-]*' >>log
if [ "$(tail -n 2 log | uniq | wc -l)" = 1 ]; then echo Successful; else echo InProgress; fi`,
	"regionctl": `echo "$*" >>log
once() { [ -e "$1" ] && rm "$1"; }
case $1 in
rules) [ ! -e diverged ] && ! once late ;;
status)
  serving=1 drained=0 passing=3
  if [ -e idle ] || once starting; then serving=0; fi
  if [ -e drained ]; then serving=0 drained=1; fi
  if [ -e dead ]; then serving=0 drained=1 passing=0; fi
  [ ! -e silent ] || exit 3
  echo '{"regions":[{"region":"eu-west","pops":[{"pop":"dub1","passing":0}]}],"totals":{"regions":1,"pops":1,"pops_serving":'$serving',"pops_drained":'$drained',"nodes":3,"nodes_passing":'$passing',"nodes_shedding":0}}' ;;
esac`,
}

// upgradeRoot has what a region's root has of a release.
const upgradeRoot = `
variable "release" { type = object({ key = string, sha256 = string }) }
variable "ami_id" { type = string }
variable "gone" { default = 1 }
resource "terraform_data" "edge" { input = "${var.release.key} ${var.ami_id}" }
resource "terraform_data" "other" { count = var.gone }
output "groups" { value = "eu-west-1 weir-eu-west-edge\neu-west-1 weir-eu-west-consul\n" }
output "applied" { value = terraform_data.edge.output }
`

// A region gets a release, or keeps its own if it does not come back. Other roots are not touched.
func TestUpgrade(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("aws")))
	root := map[string]*scratch{}
	for _, name := range []string{"eu-west", "us-east"} {
		s := &scratch{t: t, dir: filepath.Join(dir, name)}
		s.write("cli.tfrc", "")
		s.write("main.tf", upgradeRoot)
		s.init()
		root[name] = s
	}
	s := root["eu-west"]
	require.Equal(t, "weir/v0.1.0/linux-amd64.tar.gz ami-00000000000000000", s.outputs()["applied"])
	for name, script := range upgradeTools {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	upgrade := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "upgrade.sh"), append([]string{"eu-west"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PAUSE=0", "TERRAFORM=", "REAL="+binary(t),
			"TF_CLI_CONFIG_FILE="+filepath.Join(s.dir, "cli.tfrc"), "CHECKPOINT_DISABLE=1", "TMPDIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // "kill 0" interrupts all of it
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	applied := func() string {
		out, err := s.run("output", "-raw", "applied")
		require.NoError(t, err, "%s", out)
		return out
	}
	during := func(fault string, do func()) {
		s.write(fault, "")
		do()
		_ = os.Remove(filepath.Join(s.dir, fault))
	}
	out, err := upgrade("one", digest)
	require.NoError(t, err, "%s", out)
	require.Equal(t, `apply
weir-eu-west-edge
weir-eu-west-edge
weir-eu-west-consul
weir-eu-west-consul
rules status --region eu-west
status --region eu-west -o json
`, read(t, filepath.Join(s.dir, "log")))
	require.Equal(t, "one ami-00000000000000000", applied())
	out, err = upgrade("one", digest, "ami-1")
	require.NoError(t, err, "%s", out)
	require.Equal(t, "one ami-1", applied(), "another AMI goes the same way")

	back := func(fault string) {
		t.Helper()
		during(fault, func() {
			out, err := upgrade("two", digest)
			require.Error(t, err, "%s", out)
			require.Contains(t, out, "eu-west: back to the previous release", fault)
			require.Equal(t, "one ami-1", applied(), fault)
		})
	}
	for _, fault := range []string{"broken", "diverged", "unreadable", "idle", "dead", "silent"} {
		back(fault)
	}
	require.NotContains(t, read(t, filepath.Join(s.dir, "log")), "unplanned", "TF_CLI_ARGS_plan counts for every apply")
	for _, passing := range []string{"unanswered", "late", "starting", "drained"} {
		during(passing, func() {
			out, err = upgrade("one", digest)
			require.NoError(t, err, "%s: %s", passing, out)
		})
	}

	// After an interruption the previous release is still the one before it.
	during("interrupted", func() {
		out, err = upgrade("two", digest)
		require.Error(t, err, "%s", out)
	})
	require.Equal(t, "two ami-1", applied())
	back("broken")

	// What a release does not do is not done with one.
	s.write("zz.auto.tfvars", "gone = 0")
	out, err = upgrade("two", digest)
	require.Error(t, err, "%s", out)
	require.Contains(t, out, "more than the release would change:\n  # terraform_data.other[0] will be destroyed")
	require.Equal(t, "one ami-1", applied())
	s.write("zz.auto.tfvars", "")

	out, err = upgrade("two", digest)
	require.NoError(t, err, "%s", out)
	require.Equal(t, "two ami-1", applied())
	require.NoFileExists(t, filepath.Join(s.dir, "release.before"))
	require.NoFileExists(t, filepath.Join(root["us-east"].dir, "terraform.tfstate"))
	require.Equal(t, read(t, "aws/us-east/release.auto.tfvars"), read(t, filepath.Join(root["us-east"].dir, "release.auto.tfvars")))
}

const digest = "0123456789012345678901234567890123456789012345678901234567890123"
