package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// upgradeTools answer what upgrade.sh asks. Terraform is the real one.
var upgradeTools = map[string]string{
	"terraform": `case $1 in
apply) echo apply >>log ;;
output) [ ! -e unreadable ] || exit 1 ;;
esac
exec "$REAL" "$@"`,
	"aws": `[ ! -e interrupted ] || kill 0
if [ -e unanswered ]; then rm unanswered; exit 255; fi
case "$*" in
*us-east*) [ -e broken ] && echo Failed && exit ;;
esac
echo "$*" | grep -o 'weir-[a-z-]*' >>log
if [ "$(tail -n 2 log | uniq | wc -l)" = 1 ]; then echo Successful; else echo InProgress; fi`,
	"regionctl": `echo "$*" >>log; [ ! -e diverged ]`,
}

// upgradeFleet has what terraform/aws has of a release.
const upgradeFleet = `
variable "releases" {
  type    = map(object({ key = string, sha256 = string }))
  default = {}
}
variable "other" { default = 1 }
module "region" {
  source   = "./region"
  for_each = toset(["eu-west", "us-east"])
  release  = try(var.releases[each.key].key, "zero")
  other    = each.key == "eu-west" ? var.other : 0
}
output "groups" { value = "eu-west eu-west-1 weir-eu-west-edge\neu-west eu-west-1 weir-eu-west-consul\nus-east us-east-1 weir-us-east-edge\n" }
output "applied" { value = join(" ", [for name, r in module.region : "${name}=${r.release}"]) }
`

const upgradeRegion = `
variable "release" { type = string }
variable "other" { type = number }
resource "terraform_data" "edge" { input = var.release }
resource "terraform_data" "other" { input = var.other }
output "release" { value = terraform_data.edge.output }
`

// One region after another gets a release, and the first that does not come back keeps its own.
func TestUpgrade(t *testing.T) {
	s, bin := newScratch(t), t.TempDir()
	s.write("main.tf", upgradeFleet)
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "region"), 0o700))
	s.write("region/main.tf", upgradeRegion)
	s.init()
	require.Equal(t, "eu-west=zero us-east=zero", s.outputs()["applied"])
	for name, script := range upgradeTools {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	script, err := filepath.Abs("aws/upgrade.sh")
	require.NoError(t, err)
	upgrade := func(key string, regions ...string) (string, error) {
		cmd := exec.Command(script, append([]string{key, digest}, regions...)...)
		cmd.Dir = s.dir
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
	out, err := upgrade("one", "eu-west", "us-east")
	require.NoError(t, err, "%s", out)
	require.Equal(t, `apply
weir-eu-west-edge
weir-eu-west-edge
weir-eu-west-consul
weir-eu-west-consul
rules status --region eu-west
apply
weir-us-east-edge
weir-us-east-edge
rules status --region us-east
`, read(t, filepath.Join(s.dir, "log")))
	require.Equal(t, "eu-west=one us-east=one", applied())

	back := func(fault string) {
		t.Helper()
		during(fault, func() {
			out, err := upgrade("two", "us-east", "eu-west")
			require.Error(t, err, "%s", out)
			require.Contains(t, out, "us-east: back to the previous release", fault)
			require.Equal(t, "eu-west=one us-east=one", applied(), fault)
		})
	}
	for _, fault := range []string{"broken", "diverged", "unreadable"} {
		back(fault)
	}
	during("unanswered", func() {
		out, err = upgrade("one", "us-east")
		require.NoError(t, err, "AWS is asked again: %s", out)
	})

	// After an interruption the previous release is still the one before it.
	during("interrupted", func() {
		out, err = upgrade("two", "us-east")
		require.Error(t, err, "%s", out)
	})
	require.Equal(t, "eu-west=one us-east=two", applied())
	out, err = upgrade("two", "eu-west")
	require.Error(t, err, "%s", out)
	require.Contains(t, out, "the upgrade of us-east was interrupted")
	back("broken")

	// A pending change of another region stays pending.
	s.write("zz.auto.tfvars", "other = 2")
	out, err = upgrade("two", "us-east")
	require.Error(t, err, "%s", out)
	require.Contains(t, out, "more than this region would change:\n  # module.region[\"eu-west\"].terraform_data.other will be updated")
	require.Equal(t, "eu-west=one us-east=one", s.outputs()["applied"], "applied by hand")

	out, err = upgrade("two", "us-east")
	require.NoError(t, err, "%s", out)
	require.Equal(t, "eu-west=one us-east=two", applied())
	left, err := filepath.Glob(filepath.Join(s.dir, "releases.*"))
	require.NoError(t, err)
	require.Equal(t, "releases.auto.tfvars", filepath.Base(strings.Join(left, " ")))
}
