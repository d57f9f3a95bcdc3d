// Package manual runs the shell blocks of README.md and docs/OPERATIONS.md as written: it
// pastes each block whole into a shell, in a copy of the tree and a separate network, and
// requires a console block's lines in that order.
package manual

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestMain(m *testing.M) {
	if os.Getenv(shellMark) != "" {
		becomeShell()
	}
	status := m.Run()
	if tree.dir != "" {
		_ = os.RemoveAll(tree.dir)
	}
	os.Exit(status)
}

// block is a fenced block of a page.
type block struct {
	section string
	kind    string // console, or sh and an optional word
	text    string
}

// blocks returns a page's shell blocks in order.
func blocks(t *testing.T, page string) (found []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	var section string
	for _, m := range regexp.MustCompile("(?ms)^#{2,3} ([^\n]*)$|^```([a-z]+[^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		switch kind, _, _ := strings.Cut(m[2], " "); kind {
		case "":
			section = m[1]
		case "sh", "console":
			found = append(found, block{section, m[2], m[3]})
		}
	}
	return found
}

func TestREADME(t *testing.T) {
	play(t, blocks(t, "README.md"), "sh lab")
}

func TestOperations(t *testing.T) {
	play(t, blocks(t, "docs/OPERATIONS.md"))
}

// README's lab, in its own network.
func TestLab(t *testing.T) {
	for _, b := range blocks(t, "README.md") {
		if b.kind == "sh lab" {
			s := start(t)
			out := s.paste(b.text)
			for _, want := range []string{"3 regions, ", "answer: iad1", "iad1 is drained by ", "iad1 is not drained", ".lab is gone"} {
				require.Contains(t, out, want)
			}
			return
		}
	}
	t.Fatal("README has no block of kind sh lab")
}

// play pastes blocks into one shell, except those of the kinds to leave out.
func play(t *testing.T, all []block, except ...string) {
	s := start(t)
	terminal := "" // the section that opened one
	for _, b := range all {
		if b.kind == "sh" && terminal != "" && b.section != terminal {
			s.closeTerminal()
			terminal = ""
		}
		switch {
		case len(except) > 0 && b.kind == except[0]:
		case b.kind == "sh terminal":
			s.terminal(b.text)
			terminal = b.section
		case b.kind == "sh":
			s.paste(b.text)
		case b.kind == "console":
			s.converse(b.text)
		default:
			require.Failf(t, "unknown kind of block", "```%s", b.kind)
		}
	}
}

// converse pastes each command of a transcript and compares its output.
func (s *shell) converse(transcript string) {
	s.t.Helper()
	for _, turn := range strings.Split("\n"+transcript, "\n$ ")[1:] {
		command, shown, _ := strings.Cut(turn, "\n")
		printed := s.paste(command + "\n")
		rest := strings.Split(printed, "\n")
		for want := range strings.SplitSeq(strings.TrimRight(shown, "\n"), "\n") {
			pattern := pattern(want)
			for len(rest) > 0 && !pattern.MatchString(normal(rest[0])) {
				rest = rest[1:]
			}
			require.NotEmptyf(s.t, rest, "$ %s\nprints no such line at its place:\n%s\n\nit prints:\n%s", command, want, printed)
			rest = rest[1:]
		}
	}
}

// What differs between runs, and its placeholders.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`), "DURATION"},
	{regexp.MustCompile(`\b(t=|Retry-After: |X-RateLimit-Reset: )\d+`), "${1}SECONDS"},
	{regexp.MustCompile(`\s+`), " "},
}

func normal(line string) string {
	for _, v := range varying {
		line = v.what.ReplaceAllString(line, v.by)
	}
	return strings.TrimSpace(line)
}

// pattern matches normalized lines as a page shows them: … matches anything.
func pattern(shown string) *regexp.Regexp {
	if strings.TrimSpace(shown) == "…" || strings.TrimSpace(shown) == "" {
		return regexp.MustCompile(``)
	}
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(normal(shown)), "…", ".*") + "$")
}
