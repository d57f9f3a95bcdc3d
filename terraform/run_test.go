package terraform_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"
)

// binary finds the program that TERRAFORM names, terraform, or the OpenTofu that make tools builds if
// terraform is missing.
func binary(t *testing.T) string {
	t.Helper()
	if file := os.Getenv("TERRAFORM"); file != "" {
		return file
	}
	if file, err := exec.LookPath("terraform"); err == nil {
		return file
	}
	file, err := filepath.Abs(filepath.FromSlash("../.bin/tofu"))
	require.NoError(t, err)
	_, err = os.Stat(file)
	require.NoError(t, err, "neither terraform on PATH nor .bin/tofu: make tools")
	return file
}

// scratch is a configuration of its own that needs no provider.
type scratch struct {
	t   *testing.T
	dir string
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	s := &scratch{t: t, dir: t.TempDir()}
	// Ignore the configuration of this machine's user.
	s.write("cli.tfrc", "")
	return s
}

func (s *scratch) init() {
	s.t.Helper()
	out, err := s.run("init", "-backend=false", "-no-color")
	require.NoError(s.t, err, "%s", out)
}

func (s *scratch) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

func (s *scratch) run(args ...string) (string, error) {
	cmd := exec.Command(binary(s.t), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(s.dir, "cli.tfrc"), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// outputs evaluates the configuration.
func (s *scratch) outputs() map[string]any {
	s.t.Helper()
	out, err := s.run("apply", "-auto-approve", "-no-color", "-input=false")
	require.NoError(s.t, err, "%s", out)
	out, err = s.run("output", "-json")
	require.NoError(s.t, err, "%s", out)
	var raw map[string]struct{ Value any }
	require.NoError(s.t, json.Unmarshal([]byte(out), &raw), "%s", out)
	values := map[string]any{}
	for name, o := range raw {
		values[name] = o.Value
	}
	return values
}

// creates counts a plan's resources by their address without a key.
func (s *scratch) creates() map[string]int {
	s.t.Helper()
	out, err := s.run("plan", "-out=plan", "-no-color", "-input=false")
	require.NoError(s.t, err, "%s", out)
	out, err = s.run("show", "-json", "plan")
	require.NoError(s.t, err, "%s", out)
	var plan struct {
		Changes []struct {
			Type, Name string
			Change     struct{ Actions []string }
		} `json:"resource_changes"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(out), &plan))
	count := map[string]int{}
	for _, c := range plan.Changes {
		if c.Change.Actions[0] == "create" {
			count[c.Type+"."+c.Name]++
		}
	}
	return count
}

// fault returns planning's error on one line, without its frame.
func (s *scratch) fault() string {
	out, err := s.run("plan", "-no-color", "-input=false")
	require.Error(s.t, err, "%s", out)
	return strings.Join(strings.Fields(regexp.MustCompile(`[│╷╵]`).ReplaceAllString(out, "")), " ")
}

// stand replaces text that only a cloud could provide.
type stand struct{ for_, in string }

// pure returns the part of a module that needs no provider: its variables, its locals,
// and the wanted blocks, with stand-ins for what resources would return. path.module
// still means the module's own folder, as do the sources of modules.
func (m *module) pure(t *testing.T, wanted func(b *hclsyntax.Block) bool, stands ...stand) string {
	t.Helper()
	var text strings.Builder
	blocks := []*hclsyntax.Block{}
	for _, in := range []map[string]*hclsyntax.Block{m.variables, m.modules, m.outputs} {
		for _, b := range in {
			if b.Type == "variable" || wanted(b) {
				blocks = append(blocks, b)
			}
		}
	}
	for _, b := range blocks {
		text.Write(b.Range().SliceBytes(m.files[b.Range().Filename]))
		text.WriteString("\n")
	}
	text.WriteString("locals {\n")
	for name, a := range m.locals {
		text.WriteString("  " + name + " = " + string(a.Expr.Range().SliceBytes(m.files[a.Range().Filename])) + "\n")
	}
	text.WriteString("}\n")
	out := text.String()
	for _, st := range stands {
		out = regexp.MustCompile(st.for_).ReplaceAllString(out, st.in)
	}
	own, err := filepath.Abs(m.dir)
	require.NoError(t, err)
	return strings.ReplaceAll(out, "${path.module}", own)
}

// relative returns a module's source as a scratch configuration may name it.
func relative(t *testing.T, from, dir string) string {
	t.Helper()
	to, err := filepath.Abs(dir)
	require.NoError(t, err)
	from, err = filepath.EvalSymlinks(from)
	require.NoError(t, err)
	rel, err := filepath.Rel(from, to)
	require.NoError(t, err)
	return filepath.ToSlash(rel)
}

func TestFormatted(t *testing.T) {
	cmd := exec.Command(binary(t), "fmt", "-check", "-recursive", "-diff", ".")
	out, err := cmd.Output()
	require.NoError(t, err, "terraform fmt -recursive terraform:\n%s", out)
}

// What needs no provider has tests in Terraform's own language.
func TestTerraformTests(t *testing.T) {
	s := newScratch(t)
	require.NoError(t, os.CopyFS(filepath.Join(s.dir, "terraform/modules/cloud-init"), os.DirFS("modules/cloud-init")))
	require.NoError(t, os.CopyFS(filepath.Join(s.dir, "deploy/systemd"), os.DirFS("../deploy/systemd")))
	s.dir = filepath.Join(s.dir, "terraform/modules/cloud-init")
	s.write("cli.tfrc", "")
	s.init()
	out, err := s.run("test", "-no-color")
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "4 passed, 0 failed")
}
