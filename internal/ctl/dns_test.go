package ctl

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/dns"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
)

func kv(key, value string) *api.KVPair { return &api.KVPair{Key: key, Value: []byte(value)} }

func TestDNSFlags(t *testing.T) {
	f := func(args, want string) {
		t.Helper()
		var errOut buffer
		err := run(t.Context(), command.NewProgram(term.New(strings.NewReader(""), &buffer{}, &errOut)), append(strings.Fields("dns --fleet nowhere.yaml"), strings.Fields(args)...))
		require.Equal(t, term.StatusUsage, term.ExitStatus(err), args)
		require.Contains(t, errOut.String(), want, args)
	}
	f("--listen foo", "must be address:port, as 127.0.0.1:5300")
	f("--listen ns1.example.com:53", "must be address:port")
	f("--metrics 9153", `--metrics "9153"`)
	f("--ttl 3ms", "--ttl: must be whole seconds")
	f("--rate-limit -1", "--rate-limit: must be between")
	f("--passing-share 2", "must be between 0 and 1")
	f("--ns ns1=x", `"x" must be an IP address`)
	f("--ns =192.0.2.1", "must be NAME=ADDRESS,ADDRESS")
	f("--zone a..b", "must be a domain name")
	f("--zone x.y --ns ns.q.z=192.0.2.1", "is not in the zone x.y")
	f("--hostmaster nobody", "--hostmaster: must be a mail address")
	f("--require-signed", "--require-signed needs --verify-keys FILES")
	f("explain --region us-east", "--region needs --client")
	f("explain --client x", "must be an address such as")
	f("", "nowhere.yaml")
}

// Without an address of a family, another PoP answers for it.
func TestExplainByFamily(t *testing.T) {
	topology, err := region.ParseTopology([]byte(topologyOf(1)))
	require.NoError(t, err)
	up := region.PoPState{Healthy: true, Known: true}
	v := region.NewView(topology, map[string]region.PoPState{"ams1": up, "iad1": up}, nil)
	f := func(client string, want ...region.Step) {
		t.Helper()
		q := region.Query{Client: netip.MustParsePrefix(client)}
		require.Equal(t, want, dns.ByFamily(v, q, v.Choose(q)))
	}
	f("198.51.100.0/24", "AAAA queries get iad1, because ams1 has no IPv6 address")
	v = v.With(map[string]region.PoPState{"ams1": {}, "iad1": up})
	f("198.51.100.0/24")
	v = v.With(nil)
	f("198.51.100.0/24") // all addresses are in the answer
}

// The router waits for a topology, answers, and stops on request.
func TestDNS(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.edge(t, "eu-west", "ams1", "ams1-1")
	var errOut buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	admin := fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
	go func() {
		ended <- run(ctx, f.program(strings.NewReader(""), &buffer{}, &errOut), []string{"dns", "--fleet", f.file, "--listen", "127.0.0.1:0", "--metrics", admin})
	}()
	defer stop()
	logged := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(errOut.String(), text) }, patience, tick, "%q in:\n%s", text, &errOut)
	}
	logged("waiting for a topology")
	status, _ := fetch(t, "http://"+admin+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _ = fetch(t, "http://"+admin+"/healthz")
	require.Equal(t, http.StatusOK, status)

	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	logged(`"msg":"answering","zone":"edge.example.com"`)
	port := regexp.MustCompile(`"listen":"127\.0\.0\.1:(\d+)"`).FindStringSubmatch(errOut.String())[1]
	dig := func(args ...string) string {
		out, err := exec.Command("dig", append([]string{"@127.0.0.1", "-p", port, "+short", fmt.Sprintf("+timeout=%d", patience/time.Second), "+tries=1"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, "203.0.113.1", dig("edge.example.com"), "us-east has no edge")
	require.Equal(t, "203.0.113.1", dig("+tcp", "+subnet=198.51.100.0/24", "edge.example.com"))
	require.Equal(t, "ns1.edge.example.com.", dig("edge.example.com", "NS"))
	require.Equal(t, "127.0.0.1", dig("ns1.edge.example.com"))

	f.good(t, "drain", "ams1", "--message", "to see", "--by", "ann", "--yes", "--force", "--wait", "0")
	logged(`"msg":"pop is drained","region":"eu-west","pop":"ams1","who":"ann","why":"to see"`)
	f.good(t, "undrain", "ams1", "--yes")
	logged("pop is no longer drained")
	status, text := fetch(t, "http://"+admin+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{`weir_dns_pop_up{pop="ams1",region="eu-west"} 1`, `weir_dns_pop_up{pop="iad1",region="us-east"} 0`, `weir_dns_region_known{region="us-east"} 1`, `weir_dns_queries_total{answer="answer"} 4`} {
		require.Contains(t, text, line)
	}
	status, _ = fetch(t, "http://"+admin+"/readyz")
	require.Equal(t, http.StatusOK, status)

	e := parse[dns.Explanation](t, f.good(t, "dns", "explain", "--client", "198.51.100.7", "-o", "json").out)
	require.Equal(t, []string{"ams1"}, e.PoPs)
	require.Contains(t, fmt.Sprint(e.Reason), "client 198.51.100.7 matches 198.51.100.0/24 of ams1")
	require.NotContains(t, fmt.Sprint(e.Reason), "queries get", "iad1 is down")
	e = parse[dns.Explanation](t, f.good(t, "dns", "explain", "--client", "::ffff:198.51.100.0/120", "-o", "json").out)
	require.Equal(t, "198.51.100.0/24", e.Client)
	r := f.run(t, "dns", "explain", "--client", "198.51.100.7", "--state", "nowhere")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "--state nowhere: there is no such file; name the one that the router writes, or leave --state out")
	f.consuls["us-east"].Kill()
	r = f.run(t, "dns", "explain", "--client", "198.51.100.7", "--timeout", "5s")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.out, "203.0.113.1")
	require.Contains(t, r.errOut, "the state of us-east is unknown\nus-east: ")
	require.NotContains(t, r.errOut, "eu-west")
	logged(`"msg":"region is unknown`)

	stop()
	require.NoError(t, <-ended)
	require.Contains(t, errOut.String(), `"msg":"stopped"`)

	f.consuls["eu-west"].Kill()
	r = f.run(t, "dns", "explain", "--client", "198.51.100.7", "--timeout", "5s")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "; while no Consul has one, --state FILE names the router's copy")
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, b.String()
}
