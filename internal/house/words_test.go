package house

import (
	"go/ast"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// A percent sign follows its number: in pages, in comments and in what programs print.
func TestPercentSignsFollowTheirNumber(t *testing.T) {
	spaced := regexp.MustCompile(`[0-9] %($|[^%\w({+#\[-])|%[.+0-9]*[dfgv] %%($|[^%\w{}])`)
	for name, text := range documents(t) {
		require.NotRegexp(t, `[0-9] %($|[^%\w])`, text, name)
	}
	for _, f := range goFiles(t) {
		for _, group := range f.ast.Comments {
			require.NotRegexp(t, spaced, group.Text(), f.at(group))
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, is := n.(*ast.BasicLit); is && s.Kind.String() == "STRING" {
				require.NotRegexp(t, spaced, s.Value, f.at(s))
			}
			return true
		})
	}
}
