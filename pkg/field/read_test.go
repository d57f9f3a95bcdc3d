package field

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSyntaxErrors(t *testing.T) {
	f := func(data string, line int, want string) {
		t.Helper()
		_, err := Read([]byte(data), &Form{})
		require.EqualError(t, err, "document: is not valid YAML "+want)
		require.Equal(t, line, All(err)[0].Line)
	}
	const rule = "rules:\n  - id: a\n    key: [client_ip]\n"
	const column = "; begin all fields of a map in the same column, and close every quote and bracket above"
	f(rule+"   limit: 1\n    window: 1s\n", 4, "by line 4: did not find expected '-' indicator; begin all items of a list in the same column")
	f(rule+"     limit: 1\n    window: 1s\n", 4, "by line 4: did not find expected key"+column)
	f(rule+" - id: b\n    window: 1s\n", 4, "by line 4: did not find expected key"+column)
	f("rules:\n  - {id: a, key: [}\n  - {id: b}\n", 3, "by line 3: did not find expected node content; give the value that is missing, or close the bracket above")
	f("rules:\n  - {id: a\n    limit: 3}\n", 3, "by line 3: did not find expected ',' or '}'; close the { above, and separate its fields by commas")
	f("key: [a b: c\n", 1, "by line 1: did not find expected ',' or ']'; close the [ above, and separate its items by commas")
	f(rule+"    limit 1\n    window: 1s\n", 4, "in line 4: could not find expected ':'; write name: value, with a space after the colon")
	f(rule+"    limit: 1: 2\n", 4, "in line 4: mapping values are not allowed in this context; quote a value that contains a colon, or correct the indentation")
	f(rule+"    window: \"1s\n", 4, "in line 4: found unexpected end of stream; close the quote")
	f("a: - b\n", 1, "by line 1: block sequence entries are not allowed in this context; begin a list in the line after its name")
	f("path: \"C:\\d\"\n", 1, `by line 1: found unknown escape character; write \\ for a backslash, or use single quotes`)
	f("rules: \"", 1, "by line 1: found unexpected end of stream; close the quote")
	f("a: b\n\tc: d\n", 2, "in line 2: found a tab character that violates indentation; indent with spaces instead of tabs")
	f("rules: []\n# \ufeff\n- a", 3, "by line 3: did not find expected key"+column)
	f("rules: []\n}", 2, "by line 2: did not find expected key"+column)
	_, err := Read([]byte("rules:\n  - match: {hosts: [*.example.com]}\n"), &Form{})
	require.ErrorContains(t, err, `document: uses "*" by line 2: anchors, aliases and merges are not accepted`)
}

func TestHostileDocuments(t *testing.T) {
	f := func(data, want string) {
		t.Helper()
		_, err := Read([]byte(data), &Form{MaxBytes: 4 << 20, Empty: "write {}"})
		require.ErrorContains(t, err, "document: "+want)
	}
	f("", "is empty; write {}")
	f("# nothing\n---\n", "is empty; write {}")
	f("~", "is empty; write {}")
	f("\xff", "is not valid UTF-8")
	f("a: \"\x00\"", "contains the control character U+0000 in line 1")
	f("a: b\n# \x1b[2J", "contains the control character U+001B in line 2")
	f(strings.Repeat(" ", 4<<20+1), "is larger than 4194304 bytes (got 4194305); shorten it")
	f("["+strings.Repeat("a,", 600_000)+"]", "contains more than 500000 names and values (got 600001); shorten it")
	f(strings.Repeat("[", 900)+strings.Repeat("]", 900), "is nested more than 16 deep")
	f(strings.Repeat(`{"a":`, 900)+"1"+strings.Repeat("}", 900), "is nested more than 16 deep")
	f(strings.Repeat("- ", 100_000), "is nested more than 16 deep")
	f("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", `uses "&" in line 1`)
	f("a: *b", `uses "*" by line 1`)
	f("<<: {a: b}", `uses "<<" in line 1`)
	f("a: b\n--- # more\nc: d", "contains a second YAML document in line 3; remove what follows --- or ...")
	for _, odd := range []string{"[\n- a, b: c", "], a, b: c", "}}, {a, b}", ", a", ": a", "- ]\n- , b: c"} {
		_, err := Read([]byte(odd), &Form{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "runtime error")
	}
}

func TestAliases(t *testing.T) {
	f := func(data, want string) {
		t.Helper()
		got, err := Read([]byte(data), &Form{Aliases: true})
		require.NoError(t, err)
		plain, err := Read([]byte(want), &Form{})
		require.NoError(t, err)
		require.Equal(t, unlined(*plain), unlined(*got))
	}
	f("a: &x [1, {b: 2}]\nc: *x", "{a: [1, {b: 2}], c: [1, {b: 2}]}")
	f("a: &x {b: 1, c: 2}\nd:\n  c: 3\n  <<: *x\n", "{a: {b: 1, c: 2}, d: {c: 3, b: 1}}")
	f("a: &x {b: 1, c: 2}\ne: &y {b: 4, f: 5}\nd: {<<: [*x, *y], g: 6}", "{a: {b: 1, c: 2}, e: {b: 4, f: 5}, d: {g: 6, b: 1, c: 2, f: 5}}")
	f("a: &x {b: 1}\nc: &y {<<: *x, d: 2}\ne: {<<: *y}", "{a: {b: 1}, c: {d: 2, b: 1}, e: {d: 2, b: 1}}")

	refused := func(data, want string) {
		t.Helper()
		_, err := Read([]byte(data), &Form{Aliases: true})
		require.ErrorContains(t, err, "document: "+want)
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'l'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [%[2]s*%[3]c]\n", c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), c-1)
	}
	refused(bomb, "contains more than 500000 values once aliases are replaced")
	refused("a: &a [*a, *a]", "is nested more than 16 deep")
	refused("a: &a {<<: *a}", "is nested more than 16 deep")
	refused("a: *b", `uses "*" by line 1, which names no anchor above; write &NAME before its value`)
	refused("a: 5\n<<: 5", "merges 5 in line 2; write <<: *NAME")
	refused("a: {<<: [[{b: 1}]]}", "merges a list in line 1")
	refused("a: <<", `uses "<<" in line 1`)
}

// unlined returns a tree without its lines.
func unlined(n Node) Node {
	n.line = 0
	for i := range n.Items {
		n.Items[i] = unlined(n.Items[i])
	}
	return n
}

// TestPlainYAML tests what YAML readers disagree about.
func TestPlainYAML(t *testing.T) {
	f := func(value, want string) {
		t.Helper()
		got, err := Read([]byte(value), &Form{})
		require.NoError(t, err, value)
		require.Equal(t, want, got.Kind.String()+" "+got.Text, value)
	}
	for _, word := range []string{"yes", "no", "on", "off", "y", "n", "2001-12-14", "2001-12-14T21:59:43Z", "12:30:45", "1m", "0o9", "=", "1.2.3.4"} {
		f(word, "a string "+word)
	}
	for _, number := range []string{"0100", "0900", "0x1f", "0o17", "0b11", "1_000", "+5", "-5", "1e3", ".5", "5.", ".inf", "-.INF", ".nan", "99999999999999999999"} {
		f(number, "a number "+number)
	}
	for _, word := range []string{"5", "true", "null", "~", "<<"} {
		f("'"+word+"'", "a string "+word)
		f("\""+word+"\"", "a string "+word)
	}
	f("true", "a boolean true")
	f("FALSE", "a boolean FALSE")
	f("--- [~]", "a list ")
	f("\ufeffa: b", "a map ")
	f("--- a\n---\n", "a string a")
	f("{\"a\":\t\"\\/\"}", "a map ")
	for _, refused := range []string{"<<", "{<<: a}", "[&a b]", "!!int 5", "!x {}", "{[a]: b}", "{{a: b}: c}", "? a", "{a: b, !!str c: d}", "a\n--- b", "%YAML 1.1\n---\na"} {
		_, err := Read([]byte(refused), &Form{})
		require.Error(t, err, refused)
	}
}

func TestLocateSortsByLine(t *testing.T) {
	root, err := Read([]byte("a: 1\nb: [2]\nc: 3"), &Form{})
	require.NoError(t, err)
	list := root.Locate(Errors{{Path: ""}, {Path: "c"}, {Path: "b[0]"}, {Path: "b"}, {Path: "a"}, {Path: "absent"}})
	var got []string
	for _, e := range list {
		got = append(got, e.Path)
	}
	require.Equal(t, []string{"a", "b[0]", "b", "c", "", "absent"}, got)
}

func TestLines(t *testing.T) {
	for _, data := range []string{
		"a:\n  b.c: 1\n  list:\n    - x\n    - y: |\n        long\n      z: 3\n",
		"{\"a\":\n {\"b.c\": 1,\n \"list\":\n [\"x\",\n {\"y\": \"long\",\n\n \"z\": 3}]}}",
	} {
		root, err := Read([]byte(data), &Form{})
		require.NoError(t, err)
		f := func(path string, want int) {
			t.Helper()
			list := root.Locate(Errors{{Path: path}})
			require.Equal(t, want, list[0].Line, path)
		}
		f("a", 1)
		f(`a."b.c"`, 2)
		f("a.list", 3)
		f("a.list[0]", 4)
		f("a.list[1].y", 5)
		f("a.list[1].z", 7)
		f("a.list[1].absent", 5)
		f("a.list[2]", 3)
		f("absent.b", 0)
		f("", 0)
	}
}
