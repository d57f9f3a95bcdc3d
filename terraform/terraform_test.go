// Package terraform checks the Terraform modules and weir's other deployments as far as
// that is possible without a cloud: every reference, every template, and every file that
// an instance or a container gets.
package terraform_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"
	"github.com/zclconf/go-cty/cty"
)

// load has already checked that every reference exists.
func TestNothingIsUnused(t *testing.T) {
	for dir, m := range allModules(t) {
		for name := range m.variables {
			require.True(t, m.usedVariables[name], "%s: variable %s is not used", dir, name)
		}
		for name := range m.locals {
			require.True(t, m.usedLocals[name], "%s: local %s is not used", dir, name)
		}
		for name := range m.data {
			require.Contains(t, m.usedData, name, "%s: data source %s is not used", dir, name)
		}
	}
}

func TestVariablesAndOutputsAreDescribed(t *testing.T) {
	for dir, m := range allModules(t) {
		for name, b := range m.variables {
			require.Contains(t, b.Body.Attributes, "type", "%s: variable %s", dir, name)
			require.Contains(t, b.Body.Attributes, "description", "%s: variable %s", dir, name)
			require.Regexp(t, `^[A-Z].*\.$`, literal(t, b.Body.Attributes["description"]), "%s: variable %s: a sentence", dir, name)
			validations := 0
			for _, v := range b.Body.Blocks {
				if v.Type != "validation" {
					continue
				}
				validations++
				require.Contains(t, v.Body.Attributes, "condition", "%s", v.Range())
				require.Regexp(t, `\.$`, literal(t, v.Body.Attributes["error_message"]), "%s: a sentence", v.Range())
			}
			// An object's shape and a map of files are checked by their types.
			// A lab may get any value.
			inner := strings.HasPrefix(dir, "lab")
			if kind := m.text(b.Body.Attributes["type"].Expr.Range()); inner {
				continue
			} else if kind == "string" || kind == "number" || kind == "list(string)" {
				require.NotZero(t, validations, "%s: variable %s accepts any %s", dir, name, kind)
			}
		}
		for name, b := range m.outputs {
			require.Contains(t, b.Body.Attributes, "description", "%s: output %s", dir, name)
			require.Regexp(t, `\.$`, literal(t, b.Body.Attributes["description"]), "%s: output %s: a sentence", dir, name)
		}
	}
}

// A module gets what it requires and nothing unknown, and only outputs that it has are
// used.
func TestModuleCalls(t *testing.T) {
	all := allModules(t)
	known := map[string]bool{"source": true, "for_each": true, "count": true, "depends_on": true}
	for dir, m := range all {
		for name, call := range m.modules {
			callee := all[m.source(t, call)]
			require.NotNil(t, callee, "%s: module %s", dir, name)
			for arg := range call.Body.Attributes {
				require.True(t, known[arg] || callee.variables[arg] != nil, "%s: module %s has no variable %s", dir, name, arg)
			}
			for v, b := range callee.variables {
				if _, optional := b.Body.Attributes["default"]; !optional {
					require.Contains(t, call.Body.Attributes, v, "%s: module %s requires %s", dir, name, v)
				}
			}
		}
		uses := 0
		has := func(name string, step hcl.Traverser) {
			attr, ok := step.(hcl.TraverseAttr)
			require.True(t, ok, "%s", step.SourceRange())
			require.NotNil(t, all[m.source(t, m.modules[name])].outputs[attr.Name], "%s: module %s has no output %s", step.SourceRange(), name, attr.Name)
			uses++
		}
		m.expressions(func(node hclsyntax.Node) {
			switch e := node.(type) {
			case *hclsyntax.ScopeTraversalExpr:
				if e.Traversal.RootName() == "module" && len(e.Traversal) > 2 {
					output := e.Traversal[2]
					if _, counted := output.(hcl.TraverseIndex); counted { // module.x[0].output
						output = e.Traversal[3]
					}
					has(e.Traversal[1].(hcl.TraverseAttr).Name, output)
				}
			case *hclsyntax.RelativeTraversalExpr:
				index, ok := e.Source.(*hclsyntax.IndexExpr)
				if !ok {
					return
				}
				if name, ok := moduleName(index.Collection); ok {
					has(name, e.Traversal[0])
				}
			case *hclsyntax.ForExpr:
				name, ok := moduleName(e.CollExpr)
				if !ok {
					return
				}
				for _, traversal := range e.ValExpr.Variables() {
					if traversal.RootName() == e.ValVar {
						has(name, traversal[1])
					}
				}
			}
		})
		if dir == filepath.FromSlash("aws/global") {
			require.NotZero(t, uses, "no use of an output was found")
		}
	}
}

// moduleName is X of the expression module.X.
func moduleName(e hclsyntax.Expression) (string, bool) {
	scope, ok := e.(*hclsyntax.ScopeTraversalExpr)
	if !ok || scope.Traversal.RootName() != "module" || len(scope.Traversal) != 2 {
		return "", false
	}
	return scope.Traversal[1].(hcl.TraverseAttr).Name, true
}

// pinned are the versions for which the modules were written.
var pinned = map[string]string{
	"hashicorp/archive": "~> 2.7",
	"hashicorp/aws":     "~> 6.0",
	"hashicorp/random":  "~> 3.7",
	"hashicorp/tls":     "~> 4.1",
}

func TestProvidersArePinned(t *testing.T) {
	for dir, m := range allModules(t) {
		require.Contains(t, m.loose, "terraform", "%s: which versions?", dir)
		require.Contains(t, m.loose["terraform"].Body.Attributes, "required_version", "%s", dir)
		required := map[string]bool{"terraform": true} // terraform_data is built in
		for _, b := range m.loose["terraform"].Body.Blocks {
			if b.Type != "required_providers" {
				continue
			}
			for name, a := range b.Body.Attributes {
				value, diags := a.Expr.Value(nil)
				require.False(t, diags.HasErrors(), "%s", diags)
				source, version := value.GetAttr("source").AsString(), value.GetAttr("version").AsString()
				require.Equal(t, pinned[source], version, "%s: %s", dir, source)
				required[name] = true
			}
		}
		for _, blocks := range []map[string]*hclsyntax.Block{m.resources, m.data} {
			for name, b := range blocks {
				provider, _, _ := strings.Cut(b.Labels[0], "_")
				require.True(t, required[provider], "%s: %s needs the provider %s", dir, name, provider)
			}
		}
	}
}

// Global services have no region; everything else states its region, since one provider
// serves all of them.
func TestEveryResourceNamesItsRegion(t *testing.T) {
	global := regexp.MustCompile(`^aws_(iam|route53)_`)
	for dir, m := range allModules(t) {
		for _, blocks := range []map[string]*hclsyntax.Block{m.resources, m.data} {
			for name, b := range blocks {
				if !strings.HasPrefix(name, "aws_") {
					continue
				}
				_, has := b.Body.Attributes["region"]
				require.Equal(t, !global.MatchString(name), has, "%s: %s: region", dir, name)
			}
		}
	}
}

func TestEverythingIsTagged(t *testing.T) {
	// AWS keeps no tags for these.
	bare := regexp.MustCompile(`^aws_(route|route_table_association|iam_role_policy|iam_role_policy_attachment|autoscaling_policy|autoscaling_lifecycle_hook|acm_certificate_validation|s3_bucket_policy|s3_bucket_public_access_block|s3_bucket_versioning|s3_bucket_lifecycle_configuration|secretsmanager_secret_version|secretsmanager_secret_rotation|lambda_permission|route53_record)\.`)
	for dir, m := range allModules(t) {
		for name, b := range m.resources {
			if !strings.HasPrefix(name, "aws_") {
				continue
			}
			_, tagged := b.Body.Attributes["tags"]
			for _, inner := range b.Body.Blocks {
				tagged = tagged || inner.Type == "dynamic" && inner.Labels[0] == "tag"
			}
			require.Equal(t, !bare.MatchString(name), tagged, "%s: %s: tags", dir, name)
		}
	}
}

// Only listeners of public load balancers are open to the world.
func TestNothingElseIsOpenToTheWorld(t *testing.T) {
	open := map[string]string{
		filepath.FromSlash("modules/region") + ": aws_vpc_security_group_ingress_rule.lb_listener": "local.listener_port",
		filepath.FromSlash("modules/dns") + ": aws_vpc_security_group_ingress_rule.lb_listener":    "local.dns_port",
	}
	for dir, m := range allModules(t) {
		for name, b := range m.resources {
			for _, inner := range b.Body.Blocks {
				require.NotEqual(t, "ingress", inner.Type, "%s: %s: rules are resources of their own", dir, name)
			}
			require.NotContains(t, []string{"aws_security_group_rule", "aws_network_acl"}, b.Labels[0], "%s: %s", dir, name)
			if public, ok := b.Body.Attributes["associate_public_ip_address"]; ok {
				require.Fail(t, "instances have no public addresses", "%s", public.Range())
			}
			if b.Labels[0] != "aws_vpc_security_group_ingress_rule" {
				continue
			}
			where := dir + ": " + name
			text := m.text(b.Body.Range())
			require.NotContains(t, text, "::/0", "%s", where)
			if !strings.Contains(text, "0.0.0.0/0") {
				require.NotContains(t, open, where, "not open any more; take it off the list")
				continue
			}
			require.Contains(t, open, where, "open to the world")
			for _, port := range []string{"from_port", "to_port"} {
				require.Equal(t, open[where], m.text(b.Body.Attributes[port].Expr.Range()), "%s: %s", where, port)
			}
			require.NotEqual(t, `"-1"`, m.text(b.Body.Attributes["ip_protocol"].Expr.Range()), "%s", where)
		}
	}
}

// Neither plans, the state, nor the arguments of a program hold a token.
func TestTokensAreNowhere(t *testing.T) {
	m := allModules(t)[filepath.FromSlash("modules/region")]
	require.Contains(t, m.ephemeral, "random_password.token")
	for name, b := range m.resources {
		require.NotEqual(t, "random_uuid", b.Labels[0], "%s is shown in plans", name)
	}
	token := m.resources["aws_secretsmanager_secret_version.token"].Body.Attributes
	require.Contains(t, token, "secret_string_wo")
	require.NotContains(t, token, "secret_string")
	require.NotContains(t, read(t, "modules/region/files/consul-acl.sh"), "-secret")
}

// Routers reach the edges of every region and are checked by what they know, not by an
// open port.
func TestRoutersSeeLostRegions(t *testing.T) {
	all := allModules(t)
	text := func(dir, kind, name string) string {
		m := all[filepath.FromSlash(dir)]
		b := m.resources[kind+"."+name]
		require.NotNil(t, b, "%s: %s.%s", dir, kind, name)
		return m.text(b.Body.Range())
	}
	fleet := text("modules/dns", "aws_vpc_security_group_egress_rule", "node_fleet")
	require.Contains(t, fleet, "for_each = { consul = 8501, edges = var.edge_port }")
	require.Contains(t, fleet, "cidr_ipv4 = var.fleet_cidr")
	probes := text("modules/region", "aws_vpc_security_group_ingress_rule", "edge_probes")
	require.Contains(t, probes, `for_each = toset(var.fleet.dns.mode == "regionctl" ? [var.fleet.cidr] : [])`)
	require.Contains(t, probes, "to_port = local.edge_port")
	region := all[filepath.FromSlash("modules/region")]
	require.Equal(t, "var.fleet.cidr", region.text(region.modules["dns"].Body.Attributes["fleet_cidr"].Expr.Range()))
	require.Equal(t, "local.listener_port", region.text(region.modules["dns"].Body.Attributes["probe_port"].Expr.Range()))
	require.Contains(t, text("modules/dns", "aws_lb_target_group", "dns"), `path = "/readyz"`)
	require.Contains(t, text("modules/dns", "aws_vpc_security_group_egress_rule", "node_world"), `for_each = toset(["443", tostring(var.probe_port)])`)
}

// Instances start once they can set themselves up, repeat that until it succeeds, and end
// an older one only when they work.
func TestHalfAnApplyHeals(t *testing.T) {
	all := allModules(t)
	region, dns := all[filepath.FromSlash("modules/region")], all[filepath.FromSlash("modules/dns")]
	requires := func(what, text string, names ...string) {
		t.Helper()
		_, needs, found := strings.Cut(text, "depends_on = ")
		require.True(t, found, what)
		for _, name := range names {
			require.Contains(t, needs, name, what)
		}
	}
	network := []string{"aws_route.nat", "aws_route_table_association.private", "aws_vpc_endpoint.s3"}
	for _, group := range []string{"edge", "consul"} {
		requires(group, region.text(region.resources["aws_autoscaling_group."+group].Body.Range()), append(network, "aws_secretsmanager_secret_version.token", "aws_iam_role_policy.instance")...)
	}
	requires("routers", region.text(region.modules["dns"].Body.Range()), append(network, "aws_route.internet", "aws_secretsmanager_secret_version.token")...)

	for name, text := range map[string]string{
		"edge":   region.text(region.resources["aws_autoscaling_group.edge"].Body.Range()),
		"router": dns.text(dns.resources["aws_autoscaling_group.node"].Body.Range()),
	} {
		require.Contains(t, text, `health_check_type = "ELB"`, name)
	}
	hook := region.text(region.resources["aws_autoscaling_lifecycle_hook.consul"].Body.Range())
	require.Contains(t, hook, `default_result = "ABANDON"`)
	require.Contains(t, hook, `lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"`)

	unit := read(t, "modules/cloud-init/files/weir-boot.service")
	for _, line := range []string{"StartLimitIntervalSec=0", "Restart=on-failure", "ExecStart=/usr/local/lib/weir/boot"} {
		require.Contains(t, unit, "\n"+line+"\n")
	}
}

// An instance's permissions are listed: no action is a pattern, and only what cannot be
// restricted applies to every resource.
func TestRolesAreNarrow(t *testing.T) {
	wide := map[string]bool{"Join": true, "Random": true}
	for dir, m := range allModules(t) {
		for name, b := range m.data {
			if b.Labels[0] != "aws_iam_policy_document" {
				continue
			}
			for _, statement := range b.Body.Blocks {
				require.NotContains(t, m.text(statement.Body.Attributes["actions"].Expr.Range()), "*", "%s: %s", dir, name)
				resources, ok := statement.Body.Attributes["resources"]
				if !ok || m.text(resources.Expr.Range()) != `["*"]` {
					continue
				}
				require.True(t, wide[literal(t, statement.Body.Attributes["sid"])], "%s: applies to everything", statement.Range())
			}
		}
		for name, b := range m.resources {
			if b.Labels[0] == "aws_launch_template" {
				require.Contains(t, m.text(b.Body.Range()), `http_tokens = "required"`, "%s: %s", dir, name)
				require.Contains(t, m.text(b.Body.Range()), "encrypted = true kms_key_id = var.kms_key_arn", "%s: %s", dir, name)
			}
		}
	}
}

// Every named file exists, and every template gets exactly what it uses.
func TestTemplates(t *testing.T) {
	for dir, m := range allModules(t) {
		context := &hcl.EvalContext{Variables: map[string]cty.Value{
			"path": cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal(dir), "root": cty.StringVal(dir)}),
		}}
		m.expressions(func(node hclsyntax.Node) {
			call, ok := node.(*hclsyntax.FunctionCallExpr)
			if !ok || call.Name != "templatefile" && call.Name != "file" {
				return
			}
			name, diags := call.Args[0].Value(context)
			if diags.HasErrors() {
				return // of a set of files: fileset returns only existing ones
			}
			text := read(t, name.AsString())
			if call.Name == "file" {
				return
			}
			template, diags := hclsyntax.ParseTemplate([]byte(text), name.AsString(), hcl.InitialPos)
			require.False(t, diags.HasErrors(), "%s", diags)
			uses := map[string]bool{}
			for _, traversal := range template.Variables() {
				uses[traversal.RootName()] = true
			}
			given := map[string]bool{}
			object, ok := call.Args[1].(*hclsyntax.ObjectConsExpr)
			require.True(t, ok, "%s: write out the template's values", call.Range())
			for _, item := range object.Items {
				given[hcl.ExprAsKeyword(item.KeyExpr)] = true
			}
			require.Equal(t, slices.Sorted(maps.Keys(uses)), slices.Sorted(maps.Keys(given)), "%s: what %s uses, and what it gets", call.Range(), name.AsString())
		})
	}
}

// Inputs and outputs are described where they are declared; the pages lead there.
func TestReadmes(t *testing.T) {
	for dir := range allModules(t) {
		if dir == "lab" || strings.HasPrefix(dir, "modules") {
			for _, file := range []string{"](variables.tf)", "](outputs.tf)"} {
				require.True(t, strings.Contains(read(t, filepath.Join(dir, "README.md")), file), "%s/README.md has no link %s", dir, file)
			}
		}
	}
}
