package terraform_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// fleet is a copy of terraform/aws with mocked providers.
type fleet struct {
	t   *testing.T
	dir string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t, t.TempDir()}
	for _, from := range []string{"aws", "modules"} {
		require.NoError(t, os.CopyFS(filepath.Join(f.dir, "terraform", from), os.DirFS(from)))
	}
	require.NoError(t, os.CopyFS(filepath.Join(f.dir, "deploy/systemd"), os.DirFS("../deploy/systemd")))
	return f
}

// root is one of the fleet's.
func (f *fleet) root(name string) *scratch {
	return &scratch{t: f.t, dir: filepath.Join(f.dir, "terraform/aws", name)}
}

// roots are the folders of terraform/aws that hold one.
func roots(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("aws/*/main.tf")
	require.NoError(t, err)
	names := []string{}
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	require.Equal(t, []string{"ap-south", "eu-west", "global", "us-east"}, names)
	return names
}

var backend = regexp.MustCompile(`(?s)  backend "s3" \{.*?\n  \}\n`)

// local lets a root keep its state in a file.
func (s *scratch) local() {
	s.t.Helper()
	s.mock()
	s.write("main.tf", backend.ReplaceAllString(read(s.t, filepath.Join(s.dir, "main.tf")), ""))
}

// Every root is valid, has a state of its own that is locked, and names no other region.
func TestRoots(t *testing.T) {
	f := newFleet(t)
	keys := map[string]bool{}
	for _, name := range roots(t) {
		s := f.root(name)
		s.mock()
		out, err := s.run("validate", "-no-color")
		require.NoError(t, err, "%s: %s", name, out)

		text := read(t, filepath.Join("aws", name, "main.tf"))
		state := backend.FindString(text)
		require.Regexp(t, `(?s)encrypt += true.*use_lockfile = true`, state, name)
		key := regexp.MustCompile(`key +=( "weir/` + name + `")`).FindString(state)
		require.NotEmpty(t, key, "%s: its state would be another's", name)
		keys[key] = true
		for _, other := range roots(t) {
			require.True(t, other == name || name == "global" || !strings.Contains(text, `"`+other), "%s names %s", name, other)
		}
	}
	require.Len(t, keys, len(roots(t)))
}

// What the account's quotas do not allow is refused before anything is created: up to nine edges, four Consul
// servers and three routers of two CPUs each, nine addresses, two peerings, and routes to those, the world and S3.
func TestQuotas(t *testing.T) {
	s := newFleet(t).root("eu-west")
	s.local()
	t.Setenv("QUOTA", "31")
	require.Contains(t, s.fault(), "Too few CPUs: eu-west-1 needs 32 at its maximum of edges and its quota is 31.")
	t.Setenv("QUOTA", "8")
	require.Contains(t, s.fault(), "Too few elastic addresses: eu-west-1 needs 9 and its quota is 8.")
	t.Setenv("QUOTA", "3")
	require.Contains(t, s.fault(), "Too few routes: a table in eu-west-1 needs 4 and its quota is 3.")
	t.Setenv("QUOTA", "1")
	require.Contains(t, s.fault(), "Too few peerings: eu-west-1 needs 2 and its quota is 1.")
}

// What a region may have besides is planned as REVIEW.md counts it.
func TestRegionWithEverything(t *testing.T) {
	f := newFleet(t)
	s := f.root("eu-west")
	s.local()
	least := s.creates()
	(&scratch{t: t, dir: filepath.Join(f.dir, "terraform/aws")}).write("settings.yaml", read(t, "aws/settings.yaml")+"ssm: true\nlog_days: 14\n")
	main := read(t, filepath.Join(s.dir, "main.tf"))
	s.write("main.tf", strings.Replace(main, "  pop ", `  kms_key_arn = "arn:aws:kms:eu-west-1:1:key/1"
  redis       = { engine = "valkey", version = "8.0" }
  pop `, 1))
	more := map[string]int{}
	for name, n := range s.creates() {
		if n > least[name] {
			more[name] = n - least[name]
		}
	}
	require.Equal(t, map[string]int{
		"aws_iam_role_policy_attachment.ssm": 3, "aws_cloudwatch_log_group.this": 1, "aws_iam_role_policy.logs": 3,
		"aws_iam_role_policy.kms": 3 + 1, // of the region, and of its routers
	}, more)
	out, err := s.run("show", "-no-color", "plan")
	require.NoError(t, err, "%s", out)
	for _, want := range []string{`family +=.*"valkey8"`, `engine +=.*"valkey"`, `engine_version +=.*"8.0"`, `retention_in_days +=.*14`} {
		require.Regexp(t, want, out)
	}
	require.GreaterOrEqual(t, strings.Count(out, `"arn:aws:kms:eu-west-1:1:key/1"`), 3+1+10, "launch templates, Redis, secrets")
}

// apply applies a root. A region's tells the global one what it has to know.
func (f *fleet) apply(names ...string) {
	f.t.Helper()
	for _, name := range names {
		s := f.root(name)
		out, err := s.run("apply", "-auto-approve", "-no-color", "-input=false")
		require.NoError(f.t, err, "%s: %s", name, out)
		if name == "global" {
			continue
		}
		facts, err := s.run("output", "-json", "facts")
		require.NoError(f.t, err, "%s: %s", name, facts)
		f.root("global").write("regions/"+name+".json", facts)
	}
}

// state returns a root's resources, by address.
func (f *fleet) state(name string) map[string]map[string]any {
	f.t.Helper()
	out, err := f.root(name).run("show", "-json")
	require.NoError(f.t, err, "%s", out)
	type module struct {
		Resources []struct {
			Address string
			Values  map[string]any
		}
		Children []json.RawMessage `json:"child_modules"`
	}
	var state struct {
		Values struct {
			Root json.RawMessage `json:"root_module"`
		}
	}
	require.NoError(f.t, json.Unmarshal([]byte(out), &state), "%s", out)
	found := map[string]map[string]any{}
	for left := []json.RawMessage{state.Values.Root}; len(left) > 0; left = left[1:] {
		var m module
		require.NoError(f.t, json.Unmarshal(left[0], &m))
		for _, r := range m.Resources {
			found[r.Address] = r.Values
		}
		left = append(left, m.Children...)
	}
	return found
}

// planned are the resources that an apply of a root would change.
func (f *fleet) planned(name string) []string {
	f.t.Helper()
	out, err := f.root(name).run("plan", "-no-color", "-input=false")
	require.NoError(f.t, err, "%s: %s", name, out)
	changes := []string{}
	for _, m := range regexp.MustCompile(`(?m)^  # (\S+) (will|must) (.*)$`).FindAllStringSubmatch(out, -1) {
		if m[3] != "be read during apply" {
			changes = append(changes, m[1])
		}
	}
	slices.Sort(changes)
	return changes
}

// A region is added by the roots of its own and the global one. Nothing of another region changes but the
// list by which its next Consul servers find those of all regions.
func TestAddingARegion(t *testing.T) {
	f := newFleet(t)
	for _, name := range roots(t) {
		f.root(name).local()
	}
	settings := read(t, "aws/settings.yaml")
	two := regexp.MustCompile(`(?m)^  ap-south: .*\n`).ReplaceAllString(settings, "")
	require.NotEqual(t, settings, two)
	write := func(text string) {
		(&scratch{t: t, dir: filepath.Join(f.dir, "terraform/aws")}).write("settings.yaml", text)
	}
	write(two)
	f.apply("global", "eu-west", "us-east", "global")
	for _, name := range []string{"global", "eu-west", "us-east"} {
		require.Empty(t, f.planned(name), "%s: a second apply changes nothing", name)
	}
	before := map[string]map[string]map[string]any{"eu-west": f.state("eu-west"), "us-east": f.state("us-east")}

	write(settings)
	f.apply("global", "ap-south", "global")
	for name, resources := range before {
		require.Equal(t, []string{"module.region.aws_secretsmanager_secret_version.wan"}, f.planned(name))
		f.apply(name)
		after := f.state(name)
		templates := 0
		for address, values := range resources {
			if strings.Contains(address, "aws_launch_template") {
				templates++
				require.NotEmpty(t, values["user_data"])
				require.Equal(t, values, after[address], "%s: %s", name, address)
			}
		}
		require.Equal(t, 3, templates, "edges, Consul's servers, routers")
		require.Contains(t, after["module.region.aws_secretsmanager_secret_version.wan"]["secret_string"], "tag_value=weir-ap-south ")
	}
	require.Empty(t, f.planned("global"), "nor has the global root anything to do")

	// The routers that run hear of it.
	objects := f.state("global")
	for _, name := range []string{"ap-south", "eu-west", "us-east"} {
		for file, want := range map[string]string{"fleet.yaml": `name: "ap-south"`, "secrets.more": "/etc/weir/tokens/ap-south weir arn:", "name-servers.env": "--ns ns-ap-south.edge.example.com=44."} {
			object := objects[`module.global.aws_s3_object.routers["`+name+`/`+file+`"]`]
			require.Contains(t, object["content"], want, "%s: %s", name, file)
			require.Equal(t, "routers/"+file, object["key"])
		}
	}
	text, err := f.root("global").run("output", "-raw", "topology")
	require.NoError(t, err, "%s", text)
	topology, err := region.ParseTopology([]byte(text))
	require.NoError(t, err)
	require.Empty(t, topology.CheckSteering())
	require.Len(t, topology.Regions, 3)
	require.Len(t, topology.Routers, 3)
	copies := objects[`module.global.aws_secretsmanager_secret.fleet["ca"]`]["replica"].([]any)
	require.Len(t, copies, 2, "in every other AWS region")
}
