package terraform_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// REVIEW.md lists every resource and data source of the modules that terraform/aws
// uses, every action of a role, and nothing else.
func TestReview(t *testing.T) {
	text := read(t, "aws/REVIEW.md")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9_.]+\\.[a-z0-9_]+)`").FindAllStringSubmatch(text, -1) {
		if regexp.MustCompile(`^((data|ephemeral)\.)?(aws|random|tls|archive)_`).MatchString(m[1]) {
			listed[m[1]] = true
		}
	}
	require.NotEmpty(t, listed)
	exists := map[string]bool{}
	all := allModules(t)
	for _, dir := range []string{"modules/global", "modules/region", "modules/dns", "modules/cloud-init"} {
		m := all[dir]
		for name := range m.resources {
			exists[name] = true
		}
		for name, b := range m.data {
			exists["data."+name] = true
			for _, statement := range b.Body.Blocks {
				actions, ok := statement.Body.Attributes["actions"]
				if !ok || b.Labels[0] != "aws_iam_policy_document" {
					continue
				}
				for _, action := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(m.text(actions.Expr.Range()), -1) {
					if action[1] != "sts:AssumeRole" {
						require.Contains(t, text, "`"+action[1]+"`", "%s: %s: an action of a role", dir, name)
					}
				}
			}
		}
		for name := range m.ephemeral {
			exists["ephemeral."+name] = true
		}
		for name := range m.resources {
			if strings.HasPrefix(name, "aws_vpc_security_group_") {
				require.Regexp(t, "\\| `.*"+regexp.QuoteMeta(name)+"`.* \\| "+strings.TrimPrefix(dir, "modules/")+" \\|", text, "who reaches whom by %s of %s", name, dir)
			}
		}
	}
	require.Equal(t, exists, listed, "terraform/aws/REVIEW.md and the modules")
}
