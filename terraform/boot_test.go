package terraform_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
)

const (
	ip = "10.1.128.7"
	id = "i-0123456789abcdef0"
	// role is the ID of the edges' role.
	role = "AROAEDGE"
)

// tools replace an instance's own: they answer what the scripts ask AWS and systemd.
var tools = map[string]string{
	"curl": `case "$*" in
*local-ipv4*) echo ` + ip + ` ;;
*instance-id*) echo ` + id + ` ;;
*api/token*) echo token ;;
*) exit 22 ;;
esac`,
	"aws": `case "$* " in *"--region ${GONE:-none} "*) exit 255 ;; esac
case "$1 $2" in
"s3 cp")
  while [ $# -gt 2 ]; do shift; done
  case "$1" in
  s3://releases/geo/*) cp "$OBJECTS/geo/city.mmdb" "$2" ;;
  s3://releases/*) cp "$RELEASE" "$2" ;;
  -) mkdir -p "$(dirname "$OBJECTS/${2#s3://}")" && cat >"$OBJECTS/${2#s3://}" ;;
  "s3://nodes/nodes/` + role + `:$INSTANCE/"*) cat "$OBJECTS/${1#s3://}" ;; # aws:userid
  *) exit 1 ;;
  esac ;;
"s3api head-object") sha256sum "$OBJECTS/geo/city.mmdb" | cut -c1-32 ;;
"s3 rm") while [ $# -gt 1 ]; do shift; done; rm -f "$OBJECTS/${1#s3://}" ;; # as S3 deletes
"ec2 describe-instances") cat "$OBJECTS/instances" ;;
"secretsmanager get-secret-value")
  while [ "$1" != --secret-id ]; do shift; done
  [ ! -e "$SECRETS/denied" ] || exit 254
  cat "$SECRETS/$(basename "$(echo "$2" | tr : /)")" ;;
*) exit 2 ;;
esac`,
	"systemctl":        `echo "$@" >>"$WEIR_ROOT/systemctl"`,
	"systemd-sysusers": `:`,
	"chgrp":            `echo "$@" >>"$WEIR_ROOT/chgrp"`,
}

// instance is a folder that stands in for a machine.
type instance struct {
	t       *testing.T
	root    string
	env     []string
	secrets string
	objects string // in S3
	bin     string // the tools
}

// boot writes a cloud-config's files and runs its commands.
func boot(t *testing.T, text string) *instance {
	t.Helper()
	var config struct {
		Files []struct{ Path, Permissions, Content string } `yaml:"write_files"`
		Run   [][]string                                    `yaml:"runcmd"`
	}
	require.True(t, strings.HasPrefix(text, "#cloud-config\n"), "by which cloud-init recognizes it")
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&config))

	m := &instance{t: t, root: t.TempDir(), secrets: t.TempDir(), objects: t.TempDir()}
	for _, f := range config.Files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(f.Permissions, "755") {
			mode = 0o755
		}
		m.write(f.Path, f.Content, mode)
	}
	m.bin = t.TempDir()
	for name, script := range tools {
		require.NoError(t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	release := filepath.Join(t.TempDir(), "release.tar.gz")
	pack := t.TempDir()
	for _, name := range []string{"edge", "regionctl", "consul"} {
		require.NoError(t, os.WriteFile(filepath.Join(pack, name), []byte("#!/bin/sh\necho "+name+"\n"), 0o755))
	}
	out, err := exec.Command("tar", "-czf", release, "-C", pack, "edge", "regionctl", "consul").CombinedOutput()
	require.NoError(t, err, "%s", out)
	sum := sha256.Sum256([]byte(read(t, release)))
	m.write("/etc/weir/boot.env", strings.Replace(m.read("/etc/weir/boot.env"), strings.Repeat("0", 64), hex.EncodeToString(sum[:]), 1), 0o644)
	m.env = append(os.Environ(), "PATH="+m.bin+":"+os.Getenv("PATH"), "WEIR_ROOT="+m.root, "SECRETS="+m.secrets, "OBJECTS="+m.objects, "INSTANCE="+id, "RELEASE="+release, "WEIR_PAUSE=0.01")
	require.Equal(t, [][]string{{"systemctl", "start", "--no-block", "weir-boot.service"}}, config.Run)
	return m
}

func (m *instance) write(name, text string, mode os.FileMode) {
	m.t.Helper()
	file := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(m.t, os.WriteFile(file, []byte(text), mode))
}

func (m *instance) read(name string) string {
	m.t.Helper()
	return read(m.t, filepath.Join(m.root, name))
}

func (m *instance) run(script string) (string, error) {
	cmd := exec.Command(filepath.Join(m.root, script))
	cmd.Env = m.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// secret is one that a role may read, by the last part of its ARN.
func (m *instance) secret(name, text string) {
	require.NoError(m.t, os.WriteFile(filepath.Join(m.secrets, name), []byte(text), 0o600))
}

// object is one that only an instance may read.
func (m *instance) object(name, text string) {
	m.t.Helper()
	file := filepath.Join(m.objects, "nodes", "nodes", role+":"+id, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(m.t, os.WriteFile(file, []byte(text), 0o600))
}

// here moves the paths in a file below the root, and updates its checksum.
func (m *instance) here(name string) string {
	m.t.Helper()
	text := strings.NewReplacer("/etc/", m.root+"/etc/", "/var/lib/", m.root+"/var/lib/").Replace(m.read(name))
	m.write(name+".here", text, 0o600)
	return filepath.Join(m.root, name+".here")
}

// regionStands replace what the resources of modules/region would return.
var regionStands = []stand{
	{`data\.aws_availability_zones\.available\.names`, `["a", "b", "c"]`},
	{`aws_elasticache_replication_group\.this\.configuration_endpoint_address`, `"localhost"`},
	{`aws_secretsmanager_secret\.this\["([a-z-]+)"\]\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:$1"`},
	{`aws_secretsmanager_secret\.redis\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:redis"`},
	{`aws_secretsmanager_secret\.this\["\$\{name\}-token"\]\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:$${name}-token"`},
	{`in ephemeral\.random_password\.token :`, `in { for n in local.token_names : n => { result = n } } :`},
	{`aws_s3_bucket\.rules\.bucket_regional_domain_name`, `"rules.s3.eu-west-1.amazonaws.com"`},
	{`aws_s3_bucket\.rules\.bucket`, `"rules"`},
	{`aws_s3_bucket\.nodes\.bucket`, `"nodes"`},
	{`aws_iam_role\.instance\["edge"\]\.unique_id`, `"` + role + `"`},
	{`tls_private_key\.consul\.private_key_pem`, `"KEY"`},
	{`tls_locally_signed_cert\.consul\.cert_pem`, `"CERT"`},
}

// regionOutputs evaluates modules/region, with further values.
func regionOutputs(t *testing.T, values ...string) map[string]any {
	t.Helper()
	s := regionScratch(t)
	s.write("zz.auto.tfvars", strings.Join(values, "\n"))
	return s.outputs()
}

func regionScratch(t *testing.T) *scratch {
	t.Helper()
	m := load(t, filepath.Join("modules", "region"))
	files := testenv.Certificates(t)
	text := m.pure(t, func(b *hclsyntax.Block) bool { return b.Type == "module" }, append(regionStands,
		stand{`tls_private_key\.edge\.private_key_pem`, fmt.Sprintf("%q", read(t, files.KeyFile))},
		stand{`tls_locally_signed_cert\.edge\.cert_pem`, fmt.Sprintf("%q", read(t, files.CertFile))})...)
	s := newScratch(t)
	text = strings.ReplaceAll(text, `"../cloud-init"`, `"`+relative(t, s.dir, "modules/cloud-init")+`"`)
	s.write("main.tf", text+`
output "edge" { value = module.edge_user_data.text }
output "consul" { value = module.consul_user_data.text }
output "join" { value = local.retry_join[0] }
output "sizes" { value = [length(module.edge_user_data.user_data), length(module.consul_user_data.user_data)] }
output "secrets" {
  value     = merge(local.token_secrets, local.key_secrets)
  sensitive = true
}
`)
	s.write("terraform.tfvars", `
region     = "eu-west"
aws_region = "eu-west-1"
ami_id     = "ami-1"
pop        = "ams1"
vpc_cidr   = "10.1.0.0/16"
peers      = { us-east = "us-east-1" }
release    = { bucket = "releases", key = "weir/weir.tar.gz", region = "eu-west-1", sha256 = "`+strings.Repeat("0", 64)+`" }
upstreams  = ["http://127.0.0.1:9000", "https://localhost"]
edges      = { admin_tls = true }
server     = { max_connections_per_client = 500 }
policy     = { subjects = 500000 }
upstream   = { upgrade = ["websocket", "chat"], health_check = { path = "/healthz", interval = "2s" } }
gossip_key = "`+strings.Repeat("A", 43)+`="
shedder_secret = "`+strings.Repeat("5", 64)+`"
ca         = { certificate = "BEGIN CERTIFICATE", private_key = "PRIVATE KEY" }
`)
	s.init()
	return s
}

// What an edge would refuse, and so would not start with, is refused before.
func TestRegionRefuses(t *testing.T) {
	s := regionScratch(t)
	for values, want := range map[string]string{
		`server = { max_connections = 0 }`:                           "server.max_connections must be 1 to 500000",
		`server = { max_connections_per_client = -1 }`:               "must not be negative",
		`policy = { subjects = 999 }`:                                "policy.subjects must be 1000 to 16777152",
		`upstream = { upgrade = ["tls"] }`:                           "or TLS, whose",
		`upstream = { upgrade = ["TLS/1.2"] }`:                       "names of protocols",
		`upstream = { tunnel_timeout = "5" }`:                        "numbers with units",
		`upstream = { health_check = { interval = "5s" } }`:          `attribute "path" is required`,
		`upstream = { health_check = { path = "/", timeout = "1" }}`: "numbers with units",
		`upstream = { health_check = { path = "healthz" } }`:         "must begin with /",
		`zone_names = ["a", "b"]`:                                    "as many different zones",
		`zone_names = ["a", "b", "b"]`:                               "as many different zones",
		`redis = { engine = "valkey" }`:                              "redis.version must be 7.x with redis, or 8.x with valkey",
		`redis = { version = "8.0" }`:                                "redis.version must be 7.x with redis, or 8.x with valkey",
		`redis = { engine = "memcached" }`:                           "redis.engine must be redis or valkey",
		`extra_config = "recent"`:                                    "keys are sections",
		`require_signed = true`:                                      "require_signed needs verify_keys",
		`verify_keys = ["ana.pem.pub"]`:                              "Ed25519 public keys in PEM",
		`verify_keys = ["-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n"]`: "never a private key",
	} {
		s.write("zz.auto.tfvars", values)
		require.Contains(t, s.fault(), want, "%s", values)
	}
}

func TestEdgeInstance(t *testing.T) {
	out := regionOutputs(t)
	for _, size := range out["sizes"].([]any) {
		require.Less(t, size.(float64), 16384.0*4/3, "user data ends at 16 KiB")
	}
	m := boot(t, out["edge"].(string))
	for name, text := range out["secrets"].(map[string]any) {
		m.secret(name, text.(string)+"\n")
	}
	m.secret("redis", "redis-1\n")
	m.object("agent.json", `{"acl":{"tokens":{"agent":"`+uuids["agent"]+`"}}}`+"\n")
	m.object("consul-token", uuids["edge"]+"\n")
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)

	require.Equal(t, "#!/bin/sh\necho edge\n", m.read("/usr/local/bin/edge"))
	require.Equal(t, "redis-1\n", m.read("/etc/weir/redis-password"))
	require.Equal(t, uuids["edge"]+"\n", m.read("/etc/weir/consul-token"))
	require.Contains(t, m.read("chgrp"), "weir "+m.root+"/etc/weir/admin-token.new")
	require.Equal(t, []string{"try-restart weir-consul.service", "daemon-reload", "enable --now weir-consul.service", "enable --now weir-edge.service", "enable --now weir-drain.service", "enable --now weir-secrets.timer"},
		strings.Split(strings.TrimSpace(m.read("systemctl")), "\n"))
	for _, name := range []string{"weir-consul.service", "weir-edge.service", "weir-drain.service", "weir-secrets.service", "weir-secrets.timer"} {
		require.FileExists(t, filepath.Join(m.root, "etc/systemd/system", name))
	}

	config := m.config()
	require.Equal(t, ip+":8080", config["listen"]["public"])
	require.Equal(t, id, config["node"]["id"])
	require.Equal(t, map[string]any{"max_connections_per_client": 500}, config["server"])
	require.Equal(t, map[string]any{"health_check": map[string]any{"interval": "2s", "path": "/healthz"}, "upgrade": []any{"websocket", "chat"}}, config["upstream"])
	require.Equal(t, map[string]any{"source": "consul", "subjects": 500000}, config["policy"])
	checked, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", m.here("/etc/weir/edge.yaml")).CombinedOutput()
	require.NoError(t, err, "%s\n%s", checked, config)
	require.NotContains(t, string(checked), "in the clear")

	// A rotated secret arrives with the timer; an unreadable one leaves its file
	// unchanged.
	m.secret("redis", "redis-2\n")
	text, err = m.run("/usr/local/lib/weir/secrets")
	require.NoError(t, err, "%s", text)
	require.Equal(t, "weir: /etc/weir/redis-password is new\n", text)
	require.Equal(t, "redis-2\n", m.read("/etc/weir/redis-password"))
	info, err := os.Stat(filepath.Join(m.root, "etc/weir/redis-password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	m.secret("denied", "")
	text, err = m.run("/usr/local/lib/weir/secrets")
	require.Error(t, err)
	require.Contains(t, text, "/etc/weir/redis-password stays as it is")
	require.Equal(t, "redis-2\n", m.read("/etc/weir/redis-password"))
	left, err := filepath.Glob(filepath.Join(m.root, "etc/*/*.new"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// config is an edge's configuration, without its lists.
func (m *instance) config() map[string]map[string]any {
	m.t.Helper()
	var sections map[string]any
	require.NoError(m.t, yaml.Unmarshal([]byte(m.read("/etc/weir/edge.yaml")), &sections))
	config := map[string]map[string]any{}
	for name, section := range sections {
		if settings, ok := section.(map[string]any); ok {
			config[name] = settings
		}
	}
	return config
}

// Every setting of an edge can be given. The sections that the module writes keep the rest.
func TestEdgeGetsFurtherSettings(t *testing.T) {
	check := func(extra string) (*instance, string) {
		m := machine(t, regionOutputs(t, "extra_config = <<EOT\n"+extra+"\nEOT\n"), "edge")
		out, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", m.here("/etc/weir/edge.yaml")).CombinedOutput()
		if err == nil {
			return m, ""
		}
		return m, string(out)
	}
	m, fault := check(`{recent: {keep: 1000}, shutdown: {timeout: 25s}, routes: [{match: {paths: ["/a/*"]}, group: default}]}`)
	require.Empty(t, fault)
	require.Equal(t, map[string]any{"keep": 1000}, m.config()["recent"])
	require.Equal(t, map[string]any{"delay": "20s", "timeout": "25s"}, m.config()["shutdown"])
	_, fault = check(`{recent: {kept: 1000}}`)
	require.Contains(t, fault, "recent.kept")
}

// A release with another checksum is not installed.
func TestBootRefusesAnotherRelease(t *testing.T) {
	m := boot(t, regionOutputs(t)["edge"].(string))
	m.write("/etc/weir/boot.env", strings.Replace(m.read("/etc/weir/boot.env"), "RELEASE_SHA256='", "RELEASE_SHA256='00", 1), 0o644)
	text, err := m.run("/usr/local/lib/weir/boot")
	require.Error(t, err, "%s", text)
	require.NoFileExists(t, filepath.Join(m.root, "usr/local/bin/edge"))
	require.NoFileExists(t, filepath.Join(m.root, "systemctl"))
}

// dnsScratch evaluates modules/dns.
func dnsScratch(t *testing.T) *scratch {
	t.Helper()
	m := load(t, filepath.Join("modules", "dns"))
	s := newScratch(t)
	text := m.pure(t, func(b *hclsyntax.Block) bool { return b.Type == "module" },
		stand{`aws_secretsmanager_secret\.key\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:dns-key"`})
	s.write("main.tf", strings.ReplaceAll(text, `"../cloud-init"`, `"`+relative(t, s.dir, "modules/cloud-init")+`"`)+`
output "dns" { value = module.user_data.text }
`)
	s.write("terraform.tfvars", `
region         = "eu-west"
aws_region     = "eu-west-1"
zone           = "edge.example.com"
name_servers   = { "ns-eu-west.edge.example.com" = ["192.0.2.1", "192.0.2.2"], "ns-us-east.edge.example.com" = ["192.0.2.9"] }
network        = { vpc_id = "vpc-1", public_subnet_ids = {}, private_subnet_ids = {} }
allocation_ids = {}
fleet_cidrs    = ["10.1.0.0/16", "10.2.0.0/16"]
edge_port      = 8080
ami_id         = "ami-1"
ca_certificate = "BEGIN CERTIFICATE"
release        = { bucket = "releases", key = "weir/weir.tar.gz", region = "eu-west-1", sha256 = "`+strings.Repeat("0", 64)+`" }
consuls = {
  eu-west = { addr = "https://a.example.com:8501", datacenter = "eu-west", server_name = "server.eu-west.consul", token_arn = "arn:aws:secretsmanager:eu-west-1:1:secret:here" }
  us-east = { addr = "https://b.example.com:8501", datacenter = "us-east", server_name = "server.us-east.consul", token_arn = "arn:aws:secretsmanager:us-east-1:1:secret:there" }
}
`)
	s.init()
	return s
}

// router is a booted instance of modules/dns.
func router(t *testing.T, s *scratch) *instance {
	t.Helper()
	i := boot(t, s.outputs()["dns"].(string))
	i.secret("here", "token-1\n")
	i.secret("there", "token-2\n")
	i.secret("dns-key", "KEY\n")
	out, err := i.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", out)
	return i
}

func TestDNSInstance(t *testing.T) {
	i := router(t, dnsScratch(t))
	require.Equal(t, "token-2\n", i.read("/etc/weir/tokens/us-east"))
	require.Equal(t, "KEY\n", i.read("/etc/weir/dns.key"))
	require.Equal(t, `WEIR_DNS_FLAGS="--listen `+ip+`:53 --metrics `+ip+`:9153 --zone edge.example.com --ttl 20s --key /etc/weir/dns.key`+
		` --ns ns-eu-west.edge.example.com=192.0.2.1,192.0.2.2 --ns ns-us-east.edge.example.com=192.0.2.9"`+"\n", i.read("/etc/weir/dns.env"))

	fleet, err := region.LoadFleet(i.here("/etc/weir/fleet.yaml"))
	require.NoError(t, err)
	require.Len(t, fleet.Regions, 2)
	require.Equal(t, "server.us-east.consul", fleet.Regions[1].Consul.TLS.ServerName)
}
