package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A datacenter that lost all servers gets its data and its tokens back from S3.
func TestBackupIsRestored(t *testing.T) {
	m := machine(t, regionOutputs(t), "consul")
	consul := func() *testenv.Consul {
		return testenv.StartConsul(t, testenv.ConsulOptions{ACL: true, Datacenter: "eu-west"})
	}
	lost := consul()
	lost.Set(t, "weir/rules/current", []byte("rules"))
	m.write("/etc/consul.d/management.json", lost.Token(), 0o600)
	n := makesTokens(m, lost.Addr(), lost.Token())
	m.env = append(m.env, "BACKUP_BUCKET=nodes", "BACKUP_REGION=eu-west-1")
	require.Equal(t, "BACKUP_BUCKET=nodes\nBACKUP_REGION=eu-west-1\n", m.read("/etc/weir/backup.env"))
	text, err := m.run("/usr/local/lib/weir/backup")
	require.NoError(t, err, "%s", text)
	lost.Kill()

	saved, err := filepath.Glob(filepath.Join(m.objects, "nodes/consul/*.snap"))
	require.NoError(t, err)
	require.Len(t, saved, 1)
	at, err := time.Parse("2006-01-02T15Z.snap", filepath.Base(saved[0]))
	require.NoError(t, err)
	require.InDelta(t, 0, time.Since(at).Hours(), 2, "its name is its hour")
	fresh := consul()
	restore := exec.Command("../.bin/consul", "snapshot", "restore", saved[0])
	restore.Env = append(os.Environ(), "CONSUL_HTTP_ADDR="+fresh.Addr(), "CONSUL_HTTP_TOKEN="+fresh.Token())
	out, err := restore.CombinedOutput()
	require.NoError(t, err, "%s", out)
	n.addr = fresh.Addr()
	pair, _, err := n.as(lost.Token()).KV().Get("weir/rules/current", nil)
	require.NoError(t, err)
	require.Equal(t, "rules", string(pair.Value))
}

// A server that is taken over can neither delete the copies nor overwrite them.
func TestBackupsStay(t *testing.T) {
	m := load(t, filepath.Join("modules", "region"))
	versioning := m.resources["aws_s3_bucket_versioning.nodes"]
	require.NotNil(t, versioning)
	require.Contains(t, m.text(versioning.Body.Range()), `bucket = aws_s3_bucket.nodes.id versioning_configuration { status = "Enabled" }`)
	for _, statement := range m.data["aws_iam_policy_document.nodes"].Body.Blocks {
		if literal(t, statement.Body.Attributes["sid"]) == "Backup" {
			require.Equal(t, `["s3:PutObject"]`, m.text(statement.Body.Attributes["actions"].Expr.Range()))
		}
	}
}
