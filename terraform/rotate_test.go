package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// aws is the part of boto3 that the rotation uses: a secret with its versions, and a
// replication group that accepts two tokens at a time.
const aws = `
class Missing(Exception):
    pass

class Secrets:
    class exceptions:
        ResourceNotFoundException = Missing
    def __init__(self):
        self.values = {"v1": "first"}
        self.stages = {"v1": ["AWSCURRENT"], "v2": ["AWSPENDING"]}
    def describe_secret(self, SecretId):
        return {"VersionIdsToStages": self.stages}
    def get_secret_value(self, SecretId, VersionId, VersionStage):
        if VersionId not in self.values or VersionStage not in self.stages[VersionId]:
            raise Missing()
        return {"SecretString": self.values[VersionId]}
    def get_random_password(self, PasswordLength, ExcludePunctuation):
        self.made = getattr(self, "made", 0) + 1
        return {"RandomPassword": str(self.made) * PasswordLength}
    def put_secret_value(self, SecretId, ClientRequestToken, SecretString, VersionStages):
        self.values[ClientRequestToken] = SecretString
    def update_secret_version_stage(self, SecretId, VersionStage, MoveToVersionId, RemoveFromVersionId=None):
        assert [v for v, names in self.stages.items() if VersionStage in names] == [RemoveFromVersionId][: RemoveFromVersionId is not None]
        if RemoveFromVersionId:
            self.stages[RemoveFromVersionId].remove(VersionStage)
        self.stages[MoveToVersionId].append(VersionStage)

class ElastiCache:
    tokens = ["first"]
    looks = 0
    def describe_replication_groups(self, ReplicationGroupId):
        assert ReplicationGroupId == "weir-eu-west"
        self.looks += 1
        pending = {"AuthTokenStatus": "ROTATING"} if self.looks % 3 == 2 else {}
        return {"ReplicationGroups": [{"Status": "modifying" if self.looks % 3 == 1 else "available", "PendingModifiedValues": pending}]}
    def modify_replication_group(self, ReplicationGroupId, AuthToken, AuthTokenUpdateStrategy, ApplyImmediately):
        assert AuthTokenUpdateStrategy == "ROTATE" and ApplyImmediately
        self.tokens = self.tokens[-1:] + [AuthToken]

clients = {"secretsmanager": Secrets(), "elasticache": ElastiCache()}
def client(name):
    return clients[name]
`

const rotation = `
import boto3, rotate
rotate.time.sleep = lambda seconds: None
secrets, group = boto3.client("secretsmanager"), boto3.client("elasticache")
def step(name, version="v2"):
    rotate.handler({"SecretId": "redis", "ClientRequestToken": version, "Step": name}, None)
step("createSecret")
token = secrets.values["v2"]
assert len(token) == 64
step("createSecret")
assert secrets.values["v2"] == token, "a step that is tried again makes no other token"
step("setSecret")
assert group.tokens == ["first", token], group.tokens
step("setSecret")
assert group.tokens == ["first", token], "edges still use the first one when AWS starts over"
step("testSecret")
assert secrets.stages["v1"] == ["AWSCURRENT"], "not before the last step"
step("finishSecret")
assert "AWSCURRENT" in secrets.stages["v2"] and "AWSCURRENT" not in secrets.stages["v1"]
step("setSecret")
assert group.tokens == ["first", token], "what is done is not done again"
secrets.stages["v2"].remove("AWSPENDING")
secrets.stages["v4"] = ["AWSPENDING"]
for name in ["createSecret", "setSecret", "testSecret", "setSecret", "finishSecret"]:
    step(name, "v4")
assert group.tokens == [token, secrets.values["v4"]], "the next rotation keeps the token of this one"
secrets.stages["v3"] = []
try:
    step("createSecret", "v3")
except ValueError:
    pass
else:
    raise AssertionError("a version that nobody asked for")
print("good")
`

// Run this where Python is installed; AWS runs the rotation elsewhere anyway.
func TestRotation(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("no python3 here")
		return
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"boto3.py": aws, "main.py": rotation, "rotate.py": read(t, "modules/region/files/rotate.py")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.Command(python, "main.py")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "REPLICATION_GROUP=weir-eu-west")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "good\n", string(out))
}

// A rotation that fails writes why, and raises an alarm.
func TestRotationIsWatched(t *testing.T) {
	m := load(t, filepath.Join("modules", "region"))
	text := func(name string) string {
		require.NotNil(t, m.resources[name], name)
		return m.text(m.resources[name].Body.Range())
	}
	require.Contains(t, text("aws_lambda_function.rotate"), `function_name = "${local.name}-rotate"`)
	require.Contains(t, text("aws_cloudwatch_log_group.rotate"), `name = "/aws/lambda/${local.name}-rotate"`)
	require.Contains(t, m.text(m.data["aws_iam_policy_document.rotate"].Body.Range()), `resources = ["${aws_cloudwatch_log_group.rotate.arn}:*"]`)
	require.Contains(t, text("aws_cloudwatch_metric_alarm.rotate"), "dimensions = { FunctionName = aws_lambda_function.rotate.function_name }")
}
