package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegenerateReplacesOnlyItsPart(t *testing.T) {
	const document = "a\n<!-- make bench: x -->\nold\n<!-- end: x -->\nb\n<!-- make bench: y -->\nkept\n<!-- end: y -->\n"
	got, err := Regenerate([]byte(document), "bench", "x", "| new |\n")
	require.NoError(t, err)
	require.Equal(t, "a\n<!-- make bench: x -->\n| new |\n<!-- end: x -->\nb\n<!-- make bench: y -->\nkept\n<!-- end: y -->\n", string(got))
	again, err := Regenerate(got, "bench", "x", "| new |\n")
	require.NoError(t, err)
	require.Equal(t, string(got), string(again))
	_, err = Regenerate([]byte(document), "bench", "z", "")
	require.ErrorContains(t, err, `no place for "z"; add the lines <!-- make bench: z --> and <!-- end: z -->`)
}

type picture string

func (p picture) SVG() []byte { return []byte(p) }

func TestSave(t *testing.T) {
	document := filepath.Join(t.TempDir(), "PAGE.md")
	require.NoError(t, os.WriteFile(document, []byte("<!-- make bench: x -->\n<!-- end: x -->\n"), 0o644))
	table := &Table{Name: "x", Title: "What", Head: []string{"a", "b"}, Charts: []Chart{{Alt: "bars", Picture: picture("1")}, {Suffix: "more", Picture: picture("2")}}}
	table.Add("1", "µ")
	require.NoError(t, Save(document, "bench", []*Table{table}))
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Contains(t, string(text), "| a | b |\n|---|---|\n| 1 | µ |\n\n![bars](plots/bench-x.svg)\n")
	for name, want := range map[string]string{"bench-x.svg": "1", "bench-x-more.svg": "2"} {
		drawn, err := os.ReadFile(filepath.Join(filepath.Dir(document), "plots", name))
		require.NoError(t, err)
		require.Equal(t, want, string(drawn))
	}
	require.Equal(t, "\nWhat\n\na  b  \n1  µ  \n", table.Text())
	require.Error(t, Save(document, "bench", []*Table{{Name: "missing"}}))
}
