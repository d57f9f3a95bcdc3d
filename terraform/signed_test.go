package terraform_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	regionconsul "github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// signer is a key to sign with, and the file with its public key.
type signer struct {
	*sign.Key
	public string
}

// signers are two new keys, and the value of verify_keys that trusts both.
func signers(t *testing.T) (keys []signer, value string) {
	t.Helper()
	var texts []string
	for _, name := range []string{"ana", "ben"} {
		file := filepath.Join(t.TempDir(), name+".pem")
		_, err := sign.Generate(file, file+".pub")
		require.NoError(t, err)
		key, err := sign.ReadKey(file)
		require.NoError(t, err)
		keys = append(keys, signer{key, file + ".pub"})
		texts = append(texts, fmt.Sprintf("%q", read(t, file+".pub")))
	}
	return keys, "verify_keys = [" + strings.Join(texts, ", ") + "]"
}

// trusts checks whose signatures a file of an instance makes acceptable.
func (m *instance) trusts(name string, keys []signer) {
	m.t.Helper()
	read, err := sign.ReadPublic([]string{filepath.Join(m.root, name)})
	require.NoError(m.t, err)
	require.Len(m.t, read, len(keys))
	for _, key := range keys {
		require.Contains(m.t, read, key.ID())
	}
}

// Edges verify first and require later, and read the signatures of the copy only then: it
// may have none before.
func TestEdgeVerifies(t *testing.T) {
	keys, value := signers(t)
	s := regionScratch(t)
	check := func(values string, documents map[string]any, signatures any) *instance {
		s.write("fleet.auto.tfvars", fleetOf(values))
		m := machine(t, s.outputs(), "edge")
		config := m.config()
		require.Equal(t, "https://rules.s3.eu-west-1.amazonaws.com/rules.yaml", config["rules"]["bootstrap"])
		require.Equal(t, signatures, config["rules"]["bootstrap_signatures"])
		require.Equal(t, documents, config["documents"])
		out, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", m.here("/etc/weir/edge.yaml")).CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, config)
		return m
	}
	m := check("", nil, nil)
	require.NoFileExists(t, filepath.Join(m.root, "etc/weir/document-keys.pem"))

	documents := map[string]any{"verify_keys": []any{"/etc/weir/document-keys.pem"}, "require_signed": false}
	m = check(value, documents, nil)
	m.trusts("/etc/weir/document-keys.pem", keys)

	documents["require_signed"] = true
	m = check(value+"\nrequire_signed = true", documents, "https://rules.s3.eu-west-1.amazonaws.com/rules.yaml.sig")
	m.trusts("/etc/weir/document-keys.pem", keys)
}

// Routers get keys to report with, and a flag to require a signature, as edges do.
func TestRouterVerifiesSignatures(t *testing.T) {
	keys, value := signers(t)
	f := func(variables, ends string) {
		t.Helper()
		s := dnsScratch(t)
		s.write("zz.auto.tfvars", variables)
		i := router(t, s)
		require.True(t, strings.HasSuffix(i.read("/etc/weir/dns.env"), ends+`"`+"\n"))
		i.trusts("/etc/weir/document-keys.pem", keys)
	}
	f(value, " --verify-keys /etc/weir/document-keys.pem")
	f(value+"\nrequire_signed = true", " --verify-keys /etc/weir/document-keys.pem --require-signed")

	m := load(t, filepath.Join("modules", "region"))
	attributes := m.modules["dns"].Body.Attributes
	require.Equal(t, "var.fleet.verify_keys", m.text(attributes["verify_keys"].Expr.Range()))
	require.Equal(t, "var.fleet.require_signed", m.text(attributes["require_signed"].Expr.Range()))
}

// snapshots is a server that copies rules from a Consul of its own to a folder.
type snapshots struct {
	*instance
	docs *regionconsul.Documents
}

func newSnapshots(t *testing.T, out map[string]any) *snapshots {
	t.Helper()
	server := machine(t, out, "consul")
	consul := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true, Datacenter: "eu-west"})
	_, token := consul.NewToken(t, read(t, "modules/region/files/policies/edge.hcl"))
	fleet := strings.NewReplacer("127.0.0.1:8500", consul.Addr(), "/etc/weir", server.root+"/etc/weir").Replace(server.read("/etc/weir/fleet.yaml"))
	server.write("/etc/weir/fleet.yaml", fleet, 0o600)
	server.write("/etc/weir/tokens/edge", token+"\n", 0o600)
	server.write("/var/lib/weir/.keep", "", 0o600)
	server.write("/s3/.keep", "", 0o600)
	stub := t.TempDir()
	script := "#!/bin/sh\nfor last; do from=$to; to=$last; done\necho \"$to\" >>$WEIR_ROOT/copied\ncp \"$from\" $WEIR_ROOT/s3/\n"
	require.NoError(t, os.WriteFile(filepath.Join(stub, "aws"), []byte(script), 0o755))
	server.env = append(os.Environ(), "PATH="+stub+":"+filepath.Dir(testenv.Program(t, "regionctl"))+":"+os.Getenv("PATH"), "WEIR_ROOT="+server.root)
	server.env = append(server.env, strings.Fields(server.read("/etc/weir/snapshot.env"))...)

	admin := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(admin, []byte(consul.Token()), 0o600))
	c, err := regionconsul.Open(regionconsul.Config{Addr: consul.Addr(), TokenFile: admin})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &snapshots{server, c.Documents("rules")}
}

// publish makes a document active, signed by some keys.
func (s *snapshots) publish(document string, by ...signer) {
	s.t.Helper()
	p := regionconsul.NewPointer([]byte(document), "ana", time.Now())
	_, err := s.docs.Put(s.t.Context(), []byte(document))
	require.NoError(s.t, err)
	for _, key := range by {
		require.NoError(s.t, s.docs.Sign(s.t.Context(), p.Version, key.Sign(subject(document), nil)))
	}
	_, index, err := s.docs.Current(s.t.Context())
	require.NoError(s.t, err)
	ok, err := s.docs.Activate(s.t.Context(), regionconsul.Change{Pointer: p}, index)
	require.NoError(s.t, err)
	require.True(s.t, ok)
}

func subject(document string) sign.Subject {
	return sign.Subject{Kind: "rules", Region: "eu-west", SHA256: regionconsul.NewPointer([]byte(document), "", time.Time{}).SHA256}
}

// copied runs the script and returns what it has copied since the last time.
func (s *snapshots) copied() []string {
	s.t.Helper()
	s.write("/copied", "", 0o600)
	text, err := s.run("/usr/local/lib/weir/snapshot")
	require.NoError(s.t, err, "%s", text)
	return strings.Fields(s.read("/copied"))
}

// The servers copy the published rules to where edges without Consul look for them.
func TestSnapshot(t *testing.T) {
	s := newSnapshots(t, regionOutputs(t))
	text, err := s.run("/usr/local/lib/weir/snapshot")
	require.Error(t, err, "nothing is published: %s", text)
	require.NoFileExists(t, filepath.Join(s.root, "copied"))

	document := "rules:\n  - {id: a, key: [client_ip], limit: 1, window: 1h} # as written\n"
	s.publish(document)
	require.Equal(t, []string{"s3://rules/rules.yaml"}, s.copied())
	require.Empty(t, s.copied(), "it has not changed")
	require.Equal(t, document, s.read("s3/rules.yaml"))

	// Somebody deletes the copy; the next hour brings it back.
	require.NoError(t, os.Remove(filepath.Join(s.root, "s3/rules.yaml")))
	hourAgo := time.Now().Add(-61 * time.Minute)
	require.NoError(t, os.Chtimes(filepath.Join(s.root, "var/lib/weir/snapshot"), hourAgo, hourAgo))
	require.Equal(t, []string{"s3://rules/rules.yaml"}, s.copied())
	require.Equal(t, document, s.read("s3/rules.yaml"))
}

// With verify_keys the copy has signatures; with require_signed it keeps the last signed
// rules.
func TestSnapshotOfSignedRules(t *testing.T) {
	keys, value := signers(t)
	s := newSnapshots(t, regionOutputs(t, fleetOf(value)))
	const first = "rules:\n  - {id: a, key: [client_ip], limit: 1, window: 1h}\n"
	s.publish(first)
	require.Equal(t, []string{"s3://rules/rules.yaml"}, s.copied(), "edges do not require signatures yet")

	both := []string{"s3://rules/rules.yaml.sig", "s3://rules/rules.yaml"}
	verified := func(document string) {
		t.Helper()
		require.Equal(t, document, s.read("s3/rules.yaml"))
		list, err := sign.Parse([]byte(s.read("s3/rules.yaml.sig")))
		require.NoError(t, err)
		trusted, err := sign.ReadPublic([]string{keys[1].public})
		require.NoError(t, err)
		require.NoError(t, trusted.Verify(subject(document), list, nil))
	}
	s.publish(first, keys[0])
	require.Equal(t, both, s.copied())
	require.Empty(t, s.copied())
	s.publish(first, keys[1])
	require.Equal(t, both, s.copied(), "another signature of the same rules")
	verified(first)

	s.env = append(s.env, "SNAPSHOT_SIGNATURES=require")
	s.publish(strings.Replace(first, "limit: 1", "limit: 1000", 1))
	text, err := s.run("/usr/local/lib/weir/snapshot")
	require.Error(t, err, "%s", text)
	require.Contains(t, text, "is not signed")
	require.Contains(t, text, "the copy stays as it is")
	verified(first)
	second := strings.Replace(first, "limit: 1", "limit: 2", 1)
	s.publish(second, keys[1])
	require.Equal(t, both, s.copied())
	verified(second)
}
