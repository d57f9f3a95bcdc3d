package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
)

// requireUnit compares a process with the unit that starts its program elsewhere, whose
// root is the folder of the process here: the kernel's view of its command, its limits and
// its folder.
func (l *lab) requireUnit(name, unit, pid string) {
	l.t.Helper()
	text, err := os.ReadFile(unit)
	require.NoError(l.t, err)
	says, environment := map[string]string{}, ""
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		says[m[1]] = m[2]
		if m[1] == "EnvironmentFile" && !strings.HasPrefix(m[2], "-") {
			environment += l.read(name + m[2])
		}
	}
	proc := func(file string) string {
		b, err := os.ReadFile(filepath.Join("/proc", pid, file))
		require.NoError(l.t, err)
		return string(b)
	}
	root := filepath.Join(l.dir, name)

	var want []string
	for _, word := range strings.Fields(says["ExecStart"]) {
		switch {
		case strings.HasPrefix(word, "/etc/"), strings.HasPrefix(word, "/var/lib/"):
			want = append(want, root+word)
		case strings.HasPrefix(word, "$"): // of the unit's environment file; one that begins with - may be absent, and its words with it
			if m := regexp.MustCompile(`(?m)^` + word[1:] + `="(.*)"$`).FindStringSubmatch(environment); m != nil {
				want = append(want, strings.Fields(m[1])...)
			}
		case len(want) == 0:
			want = append(want, filepath.Base(word))
		default:
			want = append(want, word)
		}
	}
	got := strings.Split(strings.TrimSuffix(proc("cmdline"), "\x00"), "\x00")
	got[0] = filepath.Base(got[0])
	require.Equal(l.t, want, got, "%s of %s", unit, name)

	if mask := says["UMask"]; mask != "" {
		require.Contains(l.t, proc("status"), "Umask:\t"+mask+"\n", name)
	}
	limit := regexp.MustCompile(`(?m)^Max open files +(\d+)`).FindStringSubmatch(proc("limits"))[1]
	var own syscall.Rlimit
	require.NoError(l.t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own))
	require.Contains(l.t, []string{says["LimitNOFILE"], strconv.FormatUint(own.Max, 10)}, limit, "%s: the unit's, or as many as this user may", name)
	if dir := says["WorkingDirectory"]; dir != "" {
		cwd, err := os.Readlink(filepath.Join("/proc", pid, "cwd"))
		require.NoError(l.t, err)
		require.Equal(l.t, root+dir, cwd)
	}
	if state := says["StateDirectory"]; state != "" {
		info, err := os.Stat(filepath.Join(root, "var", "lib", state))
		require.NoError(l.t, err)
		require.Equal(l.t, says["StateDirectoryMode"], fmt.Sprintf("%04o", info.Mode().Perm()))
	}
}
