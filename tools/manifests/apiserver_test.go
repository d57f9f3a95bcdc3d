package manifests

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/internal/testenv"
)

// A real API server accepts every object of every set of values by server-side apply, each as a change of the set before, and
// without a warning: neither the restricted Pod Security Standard nor an old version causes one. make soak starts it.
func TestAPIServer(t *testing.T) {
	if os.Getenv("WEIR_SOAK") == "" {
		return
	}
	s := startAPIServer(t)
	s.apply("", object(t, `{apiVersion: v1, kind: Namespace, metadata: {name: weir, labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}}}`))
	s.installMonitoring()
	sets, err := filepath.Glob("testdata/values/*.yaml")
	require.NoError(t, err)
	for _, set := range append(sets, sets[0]) {
		s.upgrade(read(t, set))
	}

	// Upgrades keep the replicas that the autoscaler has chosen.
	v := values(t, "managed.yaml")
	s.upgrade(v)
	scale := object(t, `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: weir-edge}, spec: {replicas: 5}}`)
	const nodes = "/apis/apps/v1/namespaces/weir/deployments/weir-edge"
	status, _, answer := s.do("PATCH", nodes+"/scale?fieldManager=autoscaler&force=true", scale)
	require.Equal(t, http.StatusOK, status, answer)
	v["podLabels"] = map[string]any{"team": "edge"}
	deployment := s.upgrade(v)
	_, _, answer = s.do("GET", nodes, nil)
	require.Contains(t, answer, `"replicas":5`)

	// It refuses what it should.
	selector := deployment["spec"].(map[string]any)["selector"].(map[string]any)
	selector["matchLables"] = map[string]any{}
	status, _, answer = s.patch("", deployment)
	require.Equal(t, http.StatusInternalServerError, status, answer)
	require.Contains(t, answer, ".spec.selector.matchLables: field not declared in schema")
	delete(selector, "matchLables")
	selector["matchLabels"].(map[string]any)["app.kubernetes.io/instance"] = "another"
	status, _, answer = s.patch("", deployment)
	require.Equal(t, http.StatusUnprocessableEntity, status, answer)
}

func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &o), text)
	return o
}

type apiServer struct {
	t      *testing.T
	url    string
	client *http.Client
}

func startAPIServer(t *testing.T) *apiServer {
	dir, ports := t.TempDir(), testenv.FreePorts(t, 3)
	at := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	bin, err := filepath.Abs("../../.bin")
	require.NoError(t, err)
	for _, program := range []string{"etcd", "kube-apiserver"} {
		require.FileExists(t, bin+"/"+program, "make soak-chart builds it")
	}
	testenv.Serve(t, ports[:1], bin+"/etcd", "--data-dir", dir+"/etcd", "--listen-client-urls", at(ports[0]), "--advertise-client-urls", at(ports[0]),
		"--listen-peer-urls", at(ports[1]), "--initial-advertise-peer-urls", at(ports[1]), "--initial-cluster", "default="+at(ports[1]))
	require.NoError(t, os.WriteFile(dir+"/tokens", []byte("secret,admin,1,system:masters\n"), 0o600))
	keys := testenv.Certificates(t)
	testenv.Serve(t, ports[2:], bin+"/kube-apiserver", "--etcd-servers", at(ports[0]), "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]),
		"--advertise-address", "192.0.2.1", "--cert-dir", dir+"/certs", "--token-auth-file", dir+"/tokens", "--authorization-mode", "AlwaysAllow",
		"--disable-admission-plugins", "ServiceAccount", "--service-cluster-ip-range", "10.0.0.0/24", "--service-account-issuer", "https://weir.example.com",
		"--service-account-key-file", keys.CertFile, "--service-account-signing-key-file", keys.KeyFile)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(text(t, dir+"/certs/apiserver.crt"))))
	s := &apiServer{t, fmt.Sprintf("https://127.0.0.1:%d", ports[2]), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	s.until("/readyz")
	return s
}

// until waits until a path answers.
func (s *apiServer) until(path string) {
	require.Eventually(s.t, func() bool { status, _, _ := s.do("GET", path, nil); return status == http.StatusOK }, testenv.Patience, 100*time.Millisecond, path)
}

// installMonitoring installs the types of the Prometheus operator, which makes them in this way too.
func (s *apiServer) installMonitoring() {
	const types = "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	dir := s.t.TempDir()
	out, err := exec.Command(testenv.Tool(s.t, "sigs.k8s.io/controller-tools/cmd/controller-gen"), "crd", "paths="+types, "output:dir="+dir).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	for _, plural := range []string{"podmonitors", "prometheusrules"} {
		s.apply("", object(s.t, text(s.t, dir+"/monitoring.coreos.com_"+plural+".yaml")))
		s.until("/apis/monitoring.coreos.com/v1/" + plural)
	}
}

// upgrade applies what a set of values makes, and returns the nodes' Deployment.
func (s *apiServer) upgrade(v map[string]any) (nodes map[string]any) {
	files, err := manifests(v)
	require.NoError(s.t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			o := object(s.t, document)
			switch {
			case o == nil:
			case strings.Contains(name, "/tests/"):
				s.apply("&dryRun=All", o) // Helm deletes the pod before the next
			default:
				s.apply("", o)
			}
			if o["kind"] == "Deployment" && strings.HasSuffix(name, "/edge.yaml") {
				nodes = o
			}
		}
	}
	return nodes
}

// apply sends an object, as helm upgrade --server-side and GitOps controllers do.
func (s *apiServer) apply(query string, o map[string]any) {
	s.t.Helper()
	status, warnings, answer := s.patch(query, o)
	require.Contains(s.t, []int{http.StatusOK, http.StatusCreated}, status, "%v: %s", o["kind"], answer)
	require.Empty(s.t, warnings, "%v", o["kind"])
}

func (s *apiServer) patch(query string, o map[string]any) (status int, warnings []string, answer string) {
	group, kind := "/apis/"+o["apiVersion"].(string), strings.ToLower(o["kind"].(string))
	if group == "/apis/v1" {
		group = "/api/v1"
	}
	if kind != "namespace" && kind != "customresourcedefinition" {
		group += "/namespaces/weir"
	}
	plural := strings.TrimSuffix(kind, "y") + map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(kind, "y")]
	name := o["metadata"].(map[string]any)["name"].(string)
	return s.do("PATCH", fmt.Sprintf("%s/%s/%s?fieldManager=helm&fieldValidation=Strict%s", group, plural, name, query), o)
}

func (s *apiServer) do(method, path string, body any) (status int, warnings []string, answer string) {
	data, err := json.Marshal(body)
	require.NoError(s.t, err)
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(data))
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer secret")
	request.Header.Set("Content-Type", "application/apply-patch+yaml")
	response, err := s.client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, response.Header.Values("Warning"), string(text)
}
