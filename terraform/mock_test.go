package terraform_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	bits "encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/require"
)

// TestMain serves a mocked provider if terraform starts the tests as one.
func TestMain(m *testing.M) {
	name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "terraform-provider-")
	if !ok {
		os.Exit(m.Run())
	}
	p := newMocked(name)
	if err := tf6server.Serve("registry.terraform.io/hashicorp/"+name, func() tfprotov6.ProviderServer { return p }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mock makes terraform use mocked providers in a scratch configuration.
func (s *scratch) mock() {
	s.t.Helper()
	self, err := os.Executable()
	require.NoError(s.t, err)
	bin, text := s.t.TempDir(), "provider_installation {\n  dev_overrides {\n"
	for _, name := range []string{"archive", "aws", "random", "tls"} {
		require.NoError(s.t, os.Symlink(self, filepath.Join(bin, "terraform-provider-"+name)))
		text += fmt.Sprintf("    \"hashicorp/%s\" = %q\n", name, bin)
	}
	s.write("cli.tfrc", text+"  }\n}\n")
	out, err := s.run("get", "-no-color")
	require.NoError(s.t, err, "%s", out)
}

// mocked is a provider without a cloud. It knows the names of a provider's attributes, accepts every
// value, and makes up what the cloud would return.
type mocked struct {
	tfprotov6.ProviderServer // what terraform does not call here

	resources, data, ephemeral map[string]*tfprotov6.Schema
	made                       atomic.Int64
}

//go:embed testdata/aws-provider.json
var awsProvider []byte

// few are the types of smaller providers: what can be set, and what can only be read.
var few = map[string][2]string{
	"random_bytes":              {"length", "base64 hex"},
	"random_password":           {"length special", "result"},
	"ephemeral.random_password": {"length special", "result"},
	"tls_private_key":           {"algorithm ecdsa_curve", "private_key_pem private_key_pem_pkcs8 public_key_pem"},
	"tls_self_signed_cert":      {"private_key_pem is_ca_certificate set_subject_key_id validity_period_hours early_renewal_hours allowed_uses", "cert_pem"},
	"data.archive_file":         {"type source_file output_path", "output_base64sha256"},
}

func newMocked(name string) *mocked {
	var known providerSchema
	if err := json.Unmarshal(awsProvider, &known); err != nil {
		panic(err)
	}
	for kind, names := range few {
		b := &block{Attributes: map[string]string{}, Computed: strings.Fields(names[1])}
		for _, name := range strings.Fields(names[0]) {
			b.Attributes[name] = "one"
		}
		if kind == "tls_self_signed_cert" {
			b.Attributes["allowed_uses"] = "list"
			b.Blocks = map[string]*block{"subject": {Attributes: map[string]string{"common_name": "one", "organization": "one"}}}
		}
		known.Types[kind] = b
	}
	p := &mocked{resources: map[string]*tfprotov6.Schema{}, data: map[string]*tfprotov6.Schema{}, ephemeral: map[string]*tfprotov6.Schema{}}
	p.made.Store(int64(os.Getpid()) << 8) // other processes make up other names
	for kind, b := range known.Types {
		in := p.resources
		if rest, ok := strings.CutPrefix(kind, "data."); ok {
			in, kind = p.data, rest
		} else if rest, ok := strings.CutPrefix(kind, "ephemeral."); ok {
			in, kind = p.ephemeral, rest
		}
		if strings.HasPrefix(kind, name+"_") {
			in[kind] = &tfprotov6.Schema{Block: b.mocked(true)}
		}
	}
	return p
}

// mocked is the block's schema. What the copied one has as a single value is text, which terraform makes of
// numbers and truths.
func (b *block) mocked(root bool) *tfprotov6.SchemaBlock {
	types := map[string]tftypes.Type{"one": tftypes.String, "list": tftypes.List{ElementType: tftypes.String}, "map": tftypes.Map{ElementType: tftypes.String}}
	s := &tfprotov6.SchemaBlock{}
	for _, name := range slices.Sorted(maps.Keys(b.Attributes)) {
		required, once := slices.Contains(b.Required, name), strings.HasSuffix(name, "_wo")
		s.Attributes = append(s.Attributes, &tfprotov6.SchemaAttribute{
			Name: name, Type: types[b.Attributes[name]], Required: required, Optional: !required, Computed: root && !required && !once, WriteOnly: once,
		})
	}
	for _, name := range b.Computed {
		s.Attributes = append(s.Attributes, &tfprotov6.SchemaAttribute{Name: name, Type: tftypes.DynamicPseudoType, Computed: true})
	}
	for _, name := range slices.Sorted(maps.Keys(b.Blocks)) {
		s.BlockTypes = append(s.BlockTypes, &tfprotov6.SchemaNestedBlock{TypeName: name, Nesting: tfprotov6.SchemaNestedBlockNestingModeList, Block: b.Blocks[name].mocked(false)})
	}
	return s
}

// complete replaces what is not set by what value makes of it, and with known, also what is not known.
func complete(s *tfprotov6.Schema, given *tfprotov6.DynamicValue, known bool, value func(a *tfprotov6.SchemaAttribute) tftypes.Value) (*tfprotov6.DynamicValue, error) {
	of := s.ValueType()
	all, err := given.Unmarshal(of)
	if err != nil || all.IsNull() {
		return given, err
	}
	values := map[string]tftypes.Value{}
	if err := all.As(&values); err != nil {
		return nil, err
	}
	for _, a := range s.Block.Attributes {
		switch v := values[a.Name]; {
		case a.WriteOnly:
			values[a.Name] = tftypes.NewValue(a.Type, nil)
		case a.Computed && (v.IsNull() || known && !v.IsKnown()):
			values[a.Name] = value(a)
		}
	}
	result, err := tfprotov6.NewDynamicValue(of, tftypes.NewValue(of, values))
	return &result, err
}

func unknown(a *tfprotov6.SchemaAttribute) tftypes.Value {
	return tftypes.NewValue(a.Type, tftypes.UnknownValue)
}

func list(values ...tftypes.Value) tftypes.Value {
	types := make([]tftypes.Type, len(values))
	for i, v := range values {
		types[i] = v.Type()
	}
	return tftypes.NewValue(tftypes.Tuple{ElementTypes: types}, values)
}

func text(s string) tftypes.Value { return tftypes.NewValue(tftypes.String, s) }

// publicKey is the nth Ed25519 key, in base64.
func publicKey(n int64) string {
	sum := sha256.Sum256(bits.BigEndian.AppendUint64(nil, uint64(n)))
	return "MCowBQYDK2VwAyEA" + base64.StdEncoding.EncodeToString(sum[:])
}

// madeUp is what a cloud could return, for the nth resource.
func madeUp(kind string, n int64) func(a *tfprotov6.SchemaAttribute) tftypes.Value {
	return func(a *tfprotov6.SchemaAttribute) tftypes.Value {
		switch a.Type.(type) {
		case tftypes.List:
			return tftypes.NewValue(a.Type, []tftypes.Value{})
		case tftypes.Map:
			return tftypes.NewValue(a.Type, map[string]tftypes.Value{})
		}
		name := a.Name
		switch kind + "." + name {
		case "aws_availability_zones.names":
			return list(text("a"), text("b"), text("c"))
		case "aws_servicequotas_service_quota.value":
			quota, err := strconv.Atoi(cmp.Or(os.Getenv("QUOTA"), "32"))
			if err != nil {
				panic(err)
			}
			return tftypes.NewValue(tftypes.Number, quota)
		case "aws_ec2_instance_type.default_vcpus":
			return tftypes.NewValue(tftypes.Number, 2)
		case "aws_acm_certificate.domain_validation_options":
			of := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"resource_record_name": tftypes.String, "resource_record_type": tftypes.String, "resource_record_value": tftypes.String}}
			return list(tftypes.NewValue(of, map[string]tftypes.Value{
				"resource_record_name": text("_3f2a.edge.example.com."), "resource_record_type": text("CNAME"), "resource_record_value": text("_9b1c.acm-validations.aws."),
			}))
		case "aws_eip.public_ip":
			return text(fmt.Sprintf("44.%d.%d.%d", n>>16&255, n>>8&255, n&255))
		case "tls_private_key.public_key_pem":
			return text("-----BEGIN PUBLIC KEY-----\n" + publicKey(n) + "\n-----END PUBLIC KEY-----\n")
		}
		if name == "arn" || strings.HasSuffix(name, "_arn") {
			return text(fmt.Sprintf("arn:aws:%s:eu-west-1:1:%d", kind, n))
		}
		return text(fmt.Sprintf("%s-%s-%d", strings.TrimPrefix(kind, "aws_"), name, n))
	}
}

func (p *mocked) GetProviderSchema(context.Context, *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	region := &tfprotov6.SchemaAttribute{Name: "region", Type: tftypes.String, Optional: true}
	return &tfprotov6.GetProviderSchemaResponse{
		Provider:        &tfprotov6.Schema{Block: &tfprotov6.SchemaBlock{Attributes: []*tfprotov6.SchemaAttribute{region}}},
		ResourceSchemas: p.resources, DataSourceSchemas: p.data, EphemeralResourceSchemas: p.ephemeral,
	}, nil
}

func (p *mocked) ValidateProviderConfig(_ context.Context, r *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (p *mocked) ConfigureProvider(context.Context, *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	return &tfprotov6.ConfigureProviderResponse{}, nil
}

func (p *mocked) StopProvider(context.Context, *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	return &tfprotov6.StopProviderResponse{}, nil
}

func (p *mocked) ValidateResourceConfig(context.Context, *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return &tfprotov6.ValidateResourceConfigResponse{}, nil
}

func (p *mocked) UpgradeResourceState(_ context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	of := p.resources[r.TypeName].ValueType()
	state, err := r.RawState.Unmarshal(of)
	if err != nil {
		return nil, err
	}
	value, err := tfprotov6.NewDynamicValue(of, state)
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &value}, err
}

func (p *mocked) ReadResource(_ context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Private: r.Private}, nil
}

func (p *mocked) PlanResourceChange(_ context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	state, err := complete(p.resources[r.TypeName], r.ProposedNewState, false, unknown)
	return &tfprotov6.PlanResourceChangeResponse{PlannedState: state, PlannedPrivate: r.PriorPrivate}, err
}

func (p *mocked) ApplyResourceChange(_ context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	state, err := complete(p.resources[r.TypeName], r.PlannedState, true, madeUp(r.TypeName, p.made.Add(1)))
	return &tfprotov6.ApplyResourceChangeResponse{NewState: state}, err
}

func (p *mocked) ValidateDataResourceConfig(context.Context, *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return &tfprotov6.ValidateDataResourceConfigResponse{}, nil
}

func (p *mocked) ReadDataSource(_ context.Context, r *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	state, err := complete(p.data[r.TypeName], r.Config, true, madeUp(r.TypeName, 0))
	return &tfprotov6.ReadDataSourceResponse{State: state}, err
}

func (p *mocked) ValidateEphemeralResourceConfig(context.Context, *tfprotov6.ValidateEphemeralResourceConfigRequest) (*tfprotov6.ValidateEphemeralResourceConfigResponse, error) {
	return &tfprotov6.ValidateEphemeralResourceConfigResponse{}, nil
}

func (p *mocked) OpenEphemeralResource(_ context.Context, r *tfprotov6.OpenEphemeralResourceRequest) (*tfprotov6.OpenEphemeralResourceResponse, error) {
	result, err := complete(p.ephemeral[r.TypeName], r.Config, true, madeUp(r.TypeName, p.made.Add(1)))
	return &tfprotov6.OpenEphemeralResourceResponse{Result: result}, err
}

func (p *mocked) CloseEphemeralResource(context.Context, *tfprotov6.CloseEphemeralResourceRequest) (*tfprotov6.CloseEphemeralResourceResponse, error) {
	return &tfprotov6.CloseEphemeralResourceResponse{}, nil
}
