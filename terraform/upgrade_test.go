package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// upgradeTools answer what upgrade.sh asks. What terraform applied last is in applied.
var upgradeTools = map[string]string{
	"terraform": `case $1 in
apply) cat releases.auto.tfvars >applied; echo "apply" >>log ;;
output) printf 'eu-west eu-west-1 weir-eu-west-edge\neu-west eu-west-1 weir-eu-west-consul\nus-east us-east-1 weir-us-east-edge\n' ;;
esac`,
	"aws": `case "$*" in
*us-east*) [ -e broken ] && echo Failed && exit ;;
esac
echo "$*" | grep -o 'weir-[a-z-]*' >>log
if [ "$(tail -n 2 log | uniq | wc -l)" = 1 ]; then echo Successful; else echo InProgress; fi`,
	"regionctl": `echo "$*" >>log; [ ! -e diverged ]`,
}

// One region after another gets a release, and the first that does not come back keeps its own.
func TestUpgrade(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	for name, script := range upgradeTools {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	script, err := filepath.Abs("aws/upgrade.sh")
	require.NoError(t, err)
	upgrade := func(key string, regions ...string) (string, error) {
		cmd := exec.Command(script, append([]string{key, digest}, regions...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PAUSE=0", "TERRAFORM=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	at := func(region, key string) string {
		return `  "` + region + `" = { key = "` + key + `", sha256 = "` + digest + "\" }\n"
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
`, read(t, filepath.Join(dir, "log")))
	require.Equal(t, "releases = {\n"+at("eu-west", "one")+at("us-east", "one")+"}\n", read(t, filepath.Join(dir, "applied")))

	for _, fault := range []string{"broken", "diverged"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fault), nil, 0o600))
		out, err = upgrade("two", "us-east", "eu-west")
		require.Error(t, err, "%s", out)
		require.Contains(t, out, "us-east: back to the previous release", fault)
		require.Equal(t, "releases = {\n"+at("eu-west", "one")+at("us-east", "one")+"}\n", read(t, filepath.Join(dir, "applied")), fault)
		require.NoError(t, os.Remove(filepath.Join(dir, fault)))
	}
	out, err = upgrade("two", "us-east")
	require.NoError(t, err, "%s", out)
	require.Equal(t, "releases = {\n"+at("eu-west", "one")+at("us-east", "two")+"}\n", read(t, filepath.Join(dir, "applied")))
}
