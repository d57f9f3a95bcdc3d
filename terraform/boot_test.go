package terraform_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/testenv"
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
  s3://nodes/routers/*) cat "$OBJECTS/${1#s3://}" ;;
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

// fleet gives the instance what the global root generates.
func (m *instance) fleet() {
	ca, key := authority(m.t)
	for name, text := range map[string]string{"ca": ca, "ca-key": key, "gossip": `{"encrypt":"` + strings.Repeat("A", 43) + `="}`, "shedder": strings.Repeat("5", 64)} {
		m.secret(name, text+"\n")
	}
}

// adminPEM is a key and a certificate in one file.
func adminPEM(t *testing.T) string {
	t.Helper()
	files := testenv.Certificates(t)
	return read(t, files.KeyFile) + read(t, files.CertFile)
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
	{`aws_acm_certificate_validation\.zone\[0\]\.certificate_arn`, `"arn:aws:acm:issued"`},
	{`aws_secretsmanager_secret\.this\["([a-z-]+)"\]\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:$1"`},
	{`aws_secretsmanager_secret\.redis\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:redis"`},
	{`aws_secretsmanager_secret\.this\["\$\{name\}-token"\]\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:$${name}-token"`},
	{`in ephemeral\.random_password\.token :`, `in { for n in local.token_names : n => { result = n } } :`},
	{`aws_s3_bucket\.rules\.bucket_regional_domain_name`, `"rules.s3.eu-west-1.amazonaws.com"`},
	{`aws_s3_bucket\.rules\.bucket`, `"rules"`},
	{`aws_s3_bucket\.nodes\.bucket`, `"nodes"`},
	{`in aws_iam_role\.instance :`, `in {} :`},
	{`module\.dns\[0\]\.role`, `"dns"`},
	{`data\.aws_ec2_instance_type\.this\[name\]\.default_vcpus`, `2`},
	{`aws_iam_role\.instance\["edge"\]\.unique_id`, `"` + role + `"`},
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
	text := m.pure(t, func(b *hclsyntax.Block) bool { return b.Type == "module" && b.Labels[0] != "dns" }, regionStands...)
	s := newScratch(t)
	text = strings.ReplaceAll(text, `"../cloud-init"`, `"`+relative(t, s.dir, "modules/cloud-init")+`"`)
	s.write("main.tf", text+`
output "edge" { value = module.edge_user_data.text }
output "consul" { value = module.consul_user_data.text }
output "listener" { value = `+m.text(m.resources["aws_lb_listener.edge"].Body.Attributes["protocol"].Expr.Range())+` }
output "join" { value = local.retry_join[0] }
output "sizes" { value = [length(module.edge_user_data.user_data), length(module.consul_user_data.user_data)] }
output "secrets" {
  value     = merge(local.token_secrets, { consul-wan = jsonencode({ retry_join_wan = local.retry_join_wan }) })
  sensitive = true
}
`)
	s.write("terraform.tfvars", `
region     = "eu-west"
ami_id     = "ami-1"
pop        = "ams1"
release    = { bucket = "releases", key = "weir/weir.tar.gz", sha256 = "`+strings.Repeat("0", 64)+`" }
upstreams  = ["http://127.0.0.1:9000", "https://localhost"]
`)
	s.write("fleet.auto.tfvars", fleetOf(""))
	s.init()
	return s
}

// fleetOf is the value of fleet, with more settings.
func fleetOf(more string) string {
	return `fleet = {
  cidr    = "10.0.0.0/8"
  regions = { eu-west = { aws_region = "eu-west-1", vpc_cidr = "10.1.0.0/16" }, us-east = { aws_region = "us-east-1", vpc_cidr = "10.2.0.0/16" } }
  dns     = { mode = "regionctl", zone = "edge.example.com" }
  ` + more + `
}
`
}

// What an edge would refuse, and so would not start with, is refused before.
func TestRegionRefuses(t *testing.T) {
	s := regionScratch(t)
	for values, want := range map[string]string{
		`zone_names = ["a", "b"]`:                 "as many different zones",
		`zone_names = ["a", "b", "b"]`:            "as many different zones",
		`redis = { engine = "valkey" }`:           "redis.version must be 7.x with redis, or 8.x with valkey",
		`redis = { version = "8.0" }`:             "redis.version must be 7.x with redis, or 8.x with valkey",
		`redis = { engine = "memcached" }`:        "redis.engine must be redis or valkey",
		`extra_config = "recent"`:                 "keys are sections",
		fleetOf(`require_signed = true`):          "require_signed needs verify_keys",
		fleetOf(`verify_keys = ["ana.pem.pub"]`):  "Ed25519 public keys in PEM",
		fleetOf(`operator_cidrs = ["0.0.0.0/0"]`): "must not be public",
		`region = "us-west"`:                      "must be one of fleet.regions",
		`capacity = 0`:                            "must be positive",
		`clients = ["10.1"]`:                      "must be networks",
		fleetOf(`verify_keys = ["-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n"]`): "never a private key",
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
	m.object("admin.pem", adminPEM(t))
	m.fleet()
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)

	require.Equal(t, "#!/bin/sh\necho edge\n", m.read("/usr/local/bin/edge"))
	require.Equal(t, "redis-1\n", m.read("/etc/weir/redis-password"))
	require.Equal(t, uuids["edge"]+"\n", m.read("/etc/weir/consul-token"))
	require.Contains(t, m.read("chgrp"), "weir "+m.root+"/etc/weir/admin-token.new")
	require.Equal(t, []string{"try-restart weir-consul.service", "try-restart weir-consul.service", "try-restart weir-edge.service", "daemon-reload", "enable --now weir-consul.service", "enable --now weir-edge.service", "enable --now weir-drain.service", "enable --now weir-secrets.timer"},
		strings.Split(strings.TrimSpace(m.read("systemctl")), "\n"))
	for _, name := range []string{"weir-consul.service", "weir-edge.service", "weir-drain.service", "weir-secrets.service", "weir-secrets.timer"} {
		require.FileExists(t, filepath.Join(m.root, "etc/systemd/system", name))
	}

	config := m.config()
	require.Equal(t, ip+":8080", config["listen"]["public"])
	require.Equal(t, id, config["node"]["id"])
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
	m, fault := check(`{recent: {keep: 1000}, policy: {subjects: 500000}, store: {redis: {linger: 2ms}}, shutdown: {timeout: 25s}, routes: [{match: {paths: ["/a/*"]}, group: default}]}`)
	require.Empty(t, fault)
	require.Equal(t, map[string]any{"keep": 1000}, m.config()["recent"])
	require.Equal(t, map[string]any{"source": "consul", "subjects": 500000}, m.config()["policy"])
	require.Equal(t, "2ms", m.config()["store"]["redis"].(map[string]any)["linger"])
	require.Equal(t, "cluster", m.config()["store"]["redis"].(map[string]any)["mode"])
	require.Equal(t, map[string]any{"delay": "20s", "timeout": "25s"}, m.config()["shutdown"])
	_, fault = check(`{recent: {kept: 1000}}`)
	require.Contains(t, fault, "recent.kept")

	// So do those that the example and its page show.
	shown := regexp.MustCompile(`(?s)\n +extra_config = <<-EOT\n(.*?)\n +EOT\n`)
	for _, name := range []string{"aws/eu-west/main.tf", "aws/README.md"} {
		m := shown.FindStringSubmatch(read(t, name))
		require.NotNil(t, m, name)
		_, fault = check(m[1])
		require.Empty(t, fault, name)
	}
}

// With a certificate in a secret TLS ends in the edges, so that they speak HTTP/2 and tell origins the scheme.
func TestEdgeEndsTLS(t *testing.T) {
	out := regionOutputs(t, `certificate_arn = "arn:aws:secretsmanager:eu-west-1:1:secret:public"`)
	m := boot(t, out["edge"].(string))
	certificate := adminPEM(t)
	for name, text := range map[string]string{"public": certificate, "redis": "x\n"} {
		m.secret(name, text)
	}
	for name, text := range map[string]string{"agent.json": "{}\n", "consul-token": "x\n", "admin.pem": certificate} {
		m.object(name, text)
	}
	m.ready(out)
	require.Equal(t, certificate, m.read("/etc/weir/public.pem"))
	require.Equal(t, map[string]any{"cert_file": "/etc/weir/public.pem", "key_file": "/etc/weir/public.pem"}, m.config()["listen"]["tls"])
	require.Equal(t, map[string]any{"tls": true}, m.config()["listen"]["http2"])
	checked, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", m.here("/etc/weir/edge.yaml")).CombinedOutput()
	require.NoError(t, err, "%s", checked)
	require.Equal(t, "TCP", out["listener"])
	require.Equal(t, "TLS", regionOutputs(t, `certificate_arn = "arn:aws:acm:eu-west-1:1:certificate/1"`)["listener"])

	// A renewed one is read without a restart.
	m.secret("public", adminPEM(t))
	text, err := m.run("/usr/local/lib/weir/secrets")
	require.NoError(t, err, "%s", text)
	require.Equal(t, "weir: /etc/weir/public.pem is new\n", text)
	require.Contains(t, m.read("systemctl"), "try-reload-or-restart weir-edge.service")
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
