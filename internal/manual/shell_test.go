package manual

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const (
	// shellMark makes the test binary a shell.
	shellMark = "WEIR_MANUAL"
	// patience bounds a block; only a failing test waits that long.
	patience = 15 * time.Minute
)

// shell is a bash in a copy of the tree, with its own loopback, so that the pages'
// ports are free.
type shell struct {
	t     *testing.T
	dir   string
	in    io.Writer
	lines chan string
	pages int // pasted so far
}

func start(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, dir: treeCopy(t), lines: make(chan string, 1024)}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), shellMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setsid: true}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	s.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(t, cmd.Start(), "the pages run in a network of their own: as root, or where the kernel lets users make one")
	_ = w.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	own := network("self")
	t.Cleanup(func() {
		if in := network(strconv.Itoa(cmd.Process.Pid)); in != "" && in != own {
			killAll(in)
		}
		_ = cmd.Wait()
		go func() {
			for range s.lines { //nolint:revive // what nothing reads any more
			}
		}()
		<-read
		close(s.lines)
		_ = out.Close()
	})
	s.write("set -E; trap 'echo \"manual: failed: $BASH_COMMAND\"' ERR\n")
	return s
}

// becomeShell gives the process a loopback and turns it into bash.
func becomeShell() {
	fail := func(what string, err error) {
		fmt.Fprintln(os.Stderr, "manual:", what, err)
		os.Exit(1)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		fail("socket", err)
	}
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP}
	copy(request.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		fail("bring lo up", errno)
	}
	bash, err := exec.LookPath("bash")
	if err == nil {
		err = syscall.Exec(bash, []string{"bash", "--norc"}, os.Environ())
	}
	fail("bash", err)
}

// tree is the copy that all shells of this run use, so that it is built once.
var tree struct {
	sync.Mutex
	dir string
}

// treeCopy copies what a clone contains. Consul, which takes minutes to build, is
// shared.
func treeCopy(t *testing.T) string {
	t.Helper()
	tree.Lock()
	defer tree.Unlock()
	if tree.dir != "" {
		return tree.dir
	}
	dir, err := os.MkdirTemp("", "weir-manual-")
	require.NoError(t, err)
	tree.dir = dir
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil || rel == "." {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") || rel == "bin" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		to := filepath.Join(dir, rel)
		if d.IsDir() {
			return os.Mkdir(to, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, info.Mode().Perm())
	}))
	tools, err := filepath.Abs(filepath.Join(root, ".bin"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(tools, filepath.Join(dir, ".bin")))
	return dir
}

func (s *shell) write(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.in, text)
	require.NoError(s.t, err)
}

// paste sends text at once, as a paste into a terminal does, and returns what is printed
// until all of it has run. A command that reads its input swallows the rest.
func (s *shell) paste(text string) string {
	s.t.Helper()
	s.pages++
	end := fmt.Sprintf("manual: end of block %d", s.pages)
	s.write(text + "\necho; echo '" + end + "'\n")
	var printed []string
	timeout := time.After(patience)
	for {
		select {
		case line := <-s.lines:
			line = strings.TrimRight(line, "\r")
			require.Falsef(s.t, strings.HasPrefix(line, "manual: failed: "), "%s\nin\n%s\nafter\n%s\n%s", line, text, strings.Join(printed, "\n"), s.logs())
			if line == end {
				return strings.Join(printed, "\n")
			}
			printed = append(printed, line)
		case <-timeout:
			require.FailNowf(s.t, "a block did not end", "%s\nprinted\n%s\n%s", text, strings.Join(printed, "\n"), s.logs())
		}
	}
}

// terminal runs text as in another terminal until the section ends, and waits for the
// node that it starts.
func (s *shell) terminal(text string) {
	s.t.Helper()
	s.paste("setsid bash -c " + quote(text) + " >terminal.log 2>&1 </dev/null & terminal=$!\n" +
		"until curl -s -o /dev/null http://127.0.0.1:8081/readyz; do kill -0 $terminal; sleep 0.05; done")
}

// closeTerminal ends what terminal started.
func (s *shell) closeTerminal() {
	s.t.Helper()
	s.paste("kill -- -$terminal; wait $terminal || true")
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// logs returns the ends of the logs that the pages write.
func (s *shell) logs() string {
	var all strings.Builder
	_ = filepath.WalkDir(s.dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".log" {
			text, _ := os.ReadFile(name)
			fmt.Fprintf(&all, "--- %s\n%s\n", name, text[max(0, len(text)-2000):])
		}
		return nil
	})
	return all.String()
}

// network returns the network namespace of a process.
func network(pid string) string {
	name, _ := os.Readlink("/proc/" + pid + "/ns/net")
	return name
}

// killAll ends every process of a network, including those that outlive their shell.
func killAll(of string) {
	for left := true; left; {
		left = false
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range processes {
			if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && network(filepath.Base(p)) == of {
				left = syscall.Kill(pid, syscall.SIGKILL) == nil || left
			}
		}
	}
}
