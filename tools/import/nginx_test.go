package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const limitedNginx = `
events {}
http {
  log_format weir escape=json '{"msec":"$msec","client":"$remote_addr","host":"$host","request":"$request","http_x_api_key":"$http_x_api_key"}';
  access_log LOG weir;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  map $request_method $writer { default ""; DELETE $binary_remote_addr; }
  limit_req_zone $binary_remote_addr zone=clients:1m rate=1r/m;
  limit_req_zone $http_x_api_key zone=keys:1m rate=1r/m;
  limit_req_zone $writer zone=writers:1m rate=1r/m;
  limit_req_status 429;
  server {
    listen 127.0.0.1:PORT;
    location / { limit_req zone=clients burst=20 nodelay; proxy_pass ORIGIN; }
    location = /free { proxy_pass ORIGIN; }
    location /api/ { limit_req zone=keys burst=6 nodelay; limit_req zone=writers burst=3 nodelay; proxy_pass ORIGIN;
      location /api/open/ { limit_req zone=writers burst=3 nodelay; proxy_pass ORIGIN; }
    }
  }
}
`

// nginx, and an edge with the rules that weir-import translates from nginx's configuration, refuse
// the same requests; nginx's log proves it.
func TestImportedNginxDecidesAlike(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(origin.Close)
	dir, port := t.TempDir(), testenv.FreePorts(t, 1)[0]
	file, log := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "access.log")
	conf := strings.NewReplacer("PORT", fmt.Sprint(port), "ORIGIN", origin.URL, "LOG", log).Replace(limitedNginx)
	require.NoError(t, os.WriteFile(file, []byte(conf), 0o600))
	testenv.Serve(t, []int{port}, "nginx", "-p", dir, "-c", file, "-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;")
	imported := func(args ...string) (rules, report string, err error) {
		var out, errOut bytes.Buffer
		err = run(t.Context(), append([]string{"nginx", file}, args...), nil, &out, &errOut)
		return out.String(), errOut.String(), err
	}
	rules, report, err := imported()
	require.NoError(t, err, report)
	require.Contains(t, report, "zone clients: nginx rounds 1r/m down to 0.016 in a second")
	rulesFile := filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.WriteFile(rulesFile, []byte(rules), 0o600))
	node := testenv.StartEdge(t, fmt.Sprintf("rules: {file: %q}\nupstreams: [{url: %q}]\nstore: {kind: memory}\n", rulesFile, origin.URL))
	node.WaitReady()

	client := &http.Client{Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(address, method, path, key string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, address+path, nil)
		require.NoError(t, err)
		if key != "" {
			req.Header.Set("X-Api-Key", key)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	r := rand.New(rand.NewPCG(1, 2))
	statuses := map[int]int{}
	for i := range 300 {
		method, path, key := []string{"GET", "GET", "DELETE"}[r.IntN(3)], []string{"/", "/free", "/freed", "/api/a", "/api/b", "/api/open/a", "/apis"}[r.IntN(7)], []string{"", "one", "two", "three"}[r.IntN(4)]
		nginx, edge := ask(fmt.Sprintf("http://127.0.0.1:%d", port), method, path, key), ask("http://"+node.Public, method, path, key)
		require.Equal(t, nginx, edge, "request %d: %s %s %s\n%s", i, method, path, key, rules)
		statuses[nginx]++
	}
	require.Greater(t, statuses[200], 50)
	require.Greater(t, statuses[429], 50)
	_, report, err = imported("--prove", log)
	require.NoError(t, err, report)
	require.Contains(t, report, "300 requests, decided alike: 300;")

	// The comparison detects rules that differ from nginx's.
	changed := strings.Replace(conf, "zone=clients:1m rate=1r/m", "zone=clients:1m rate=100r/s", 1)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(changed, "location = /free {", "location ~ e$ {", 1)), 0o600))
	_, report, err = imported("--prove", log)
	require.Error(t, err)
	require.Contains(t, report, "requests are decided differently")
}
