package terraform_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The schema of the AWS provider, as far as the modules use it, comes from the provider's
// typed copy for TypeScript. make terraform-schema writes it.
const (
	schemaFile    = "testdata/aws-provider.json"
	schemaPackage = "@cdktf/provider-aws@21.22.1"
)

// providerSchema is what schemaFile holds: the types by "aws_x", and data sources by
// "data.aws_x".
type providerSchema struct {
	Package  string            `json:"package"`
	Provider string            `json:"provider"`
	Types    map[string]*block `json:"types"`
}

// block is a resource, a data source, or a block in one.
type block struct {
	Attributes map[string]string `json:"attributes"` // one, list, or map
	Required   []string          `json:"required,omitempty"`
	Blocks     map[string]*block `json:"blocks,omitempty"`
	Computed   []string          `json:"computed,omitempty"` // further ones, that can only be read
}

// update writes schemaFile from the folder of an unpacked schemaPackage.
func updateSchema(t *testing.T, folder string) {
	var about struct {
		Version string
		Cdktf   struct{ Provider struct{ Version string } }
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, filepath.Join(folder, "package.json"))), &about))
	require.True(t, strings.HasSuffix(schemaPackage, "@"+about.Version), "%s, not %s", schemaPackage, about.Version)
	s := providerSchema{Package: schemaPackage, Provider: about.Cdktf.Provider.Version, Types: map[string]*block{}}
	for _, m := range allModules(t) {
		for name, b := range m.aws() {
			if s.Types[name] == nil {
				data := b.Type == "data"
				s.Types[name] = typed(t, filepath.Join(folder, "lib", dashed(b.Labels[0], data), "index.d.ts"))
			}
		}
	}
	text, err := json.MarshalIndent(s, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(schemaFile, append(text, '\n'), 0o600))
}

// dashed is the folder of a type: aws_lb_listener is in lb-listener.
func dashed(name string, data bool) string {
	name = strings.ReplaceAll(strings.TrimPrefix(name, "aws_"), "_", "-")
	if data {
		return "data-aws-" + name
	}
	return name
}

var (
	interfaceLine = regexp.MustCompile(`^export interface (\w+)( extends cdktf\.TerraformMetaArguments)? \{`)
	classLine     = regexp.MustCompile(`^export declare class \w+ extends cdktf\.Terraform(Resource|DataSource) \{`)
	documented    = regexp.MustCompile(`#(\w+) \w+#\w+\}`)
	propertyLine  = regexp.MustCompile(`^    readonly \w+(\??): (.*)$`)
	getterLine    = regexp.MustCompile(`^    get (\w+)\(\): `)
	upper         = regexp.MustCompile(`[A-Z]`)
)

// typed reads one type of the package.
func typed(t *testing.T, name string) *block {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	var (
		interfaces  = map[string]*block{}
		inner       = map[string]map[string]string{} // interface → block → its interface
		in, root    string
		name_       string
		isBlock     bool
		inClass     bool
		computed    []string
		scanner     = bufio.NewScanner(file)
		description = regexp.MustCompile(`^    \* \w+ block$`)
	)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if m := interfaceLine.FindStringSubmatch(line); m != nil {
			in = m[1]
			interfaces[in], inner[in] = &block{Attributes: map[string]string{}, Blocks: map[string]*block{}}, map[string]string{}
			if m[2] != "" {
				root = in
			}
			continue
		}
		if classLine.MatchString(line) {
			inClass = true
		}
		if m := getterLine.FindStringSubmatch(line); m != nil && inClass {
			computed = append(computed, upper.ReplaceAllStringFunc(m[1], func(s string) string { return "_" + strings.ToLower(s) }))
		}
		switch {
		case line == "}":
			in, inClass = "", false
		case in == "":
		case strings.TrimSpace(line) == "/**":
			name_, isBlock = "", false
		case description.MatchString(line):
			isBlock = true
		default:
			if m := documented.FindStringSubmatch(line); m != nil {
				name_ = m[1]
			}
			m := propertyLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			require.NotEmpty(t, name_, "%s: %s", name, line)
			if m[1] == "" {
				interfaces[in].Required = append(interfaces[in].Required, name_)
			}
			kind := strings.TrimSuffix(strings.TrimSuffix(m[2], ";"), " | cdktf.IResolvable")
			switch {
			case isBlock:
				inner[in][name_] = strings.TrimSuffix(kind, "[]")
			case kind == "{":
				interfaces[in].Attributes[name_] = "map"
			case strings.HasSuffix(kind, "[]"):
				interfaces[in].Attributes[name_] = "list"
			default:
				interfaces[in].Attributes[name_] = "one"
			}
		}
	}
	require.NoError(t, scanner.Err())
	require.NotEmpty(t, root, "%s", name)
	for owner, blocks := range inner {
		for name, kind := range blocks {
			require.NotNil(t, interfaces[kind], "%s", kind)
			interfaces[owner].Blocks[name] = interfaces[kind]
		}
	}
	b := interfaces[root]
	for _, name := range computed {
		if b.Attributes[name] == "" && b.Blocks[name] == nil && !strings.HasSuffix(name, "_input") {
			b.Computed = append(b.Computed, name)
		}
	}
	return b
}
