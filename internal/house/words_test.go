package house

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Older text may have words that ARCHITECTURE's list of terms no longer has. When you touch it, replace
//
//	conduct, risk, standing           by behavior (the feature), tier (its result); Weir-Risk stays, origins read it
//	networks, listed, clients         by client lists (the document)
//	across                            by exchange (between regions), several slots (in Lua)
//	keeper                            by the document that it keeps, such as Policies
//	told, said, asked, noted          by reported, description, request, recorded
//	place                             by slot, position, connection or PoP
//	stranger                          by unauthenticated client
//	question (of a gateway)           by authorization request
//	have, young, deserts              by versions, recent, abandoned
//	take back, end                    by roll back

// A percent sign follows its number: in pages, in comments and in what programs print.
func TestPercentSignsFollowTheirNumber(t *testing.T) {
	avoid(t, `[0-9] %($|[^%\w])`, `[0-9] %($|[^%\w({+#\[-])|%[.+0-9]*[dfgv] %%($|[^%\w{}])`)
}

// A rate is per second.
func TestRatesArePer(t *testing.T) {
	aSecond := `([0-9]|%[.0-9]*[dfv]|requests|decisions|connections|queries|calls|bytes|[Oo]nce|twice|times) a (second|minute|hour)($|[^-\w])`
	avoid(t, aSecond, aSecond)
}

// A cell of a table has at most 40 words; more belong in a list or a paragraph.
func TestTableCellsAreShort(t *testing.T) {
	for name, text := range documents(t) {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, ""), "|") {
				require.LessOrEqual(t, len(strings.Fields(cell)), 40, "%s: %s", name, cell)
			}
		}
	}
}

// avoid fails where the pages have the first pattern, or comments and strings the second.
func avoid(t *testing.T, inPages, inCode string) {
	for name, text := range documents(t) {
		require.NotRegexp(t, inPages, text, name)
	}
	pattern := regexp.MustCompile(inCode)
	for _, f := range goFiles(t) {
		for _, group := range f.ast.Comments {
			require.NotRegexp(t, pattern, group.Text(), f.at(group))
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, is := n.(*ast.BasicLit); is && s.Kind.String() == "STRING" {
				require.NotRegexp(t, pattern, s.Value, f.at(s))
			}
			return true
		})
	}
}
