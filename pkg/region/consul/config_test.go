package consul

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
)

func TestConsulConfigValidate(t *testing.T) {
	token := write(t, "token", "secret\n")
	for _, c := range []Config{
		{},
		{Addr: "127.0.0.1:8500", Datacenter: "eu-west_1", TokenFile: token, Prefix: "edge/weir-2"},
		{Addr: "https://consul.example.com:8501/"},
		{Addr: "http://[::1]:8500", TLS: &certs.Client{}},
		{Addr: "localhost:8501", TLS: &certs.Client{ServerName: "server.eu-west.consul"}},
	} {
		require.NoError(t, c.Validate(), "%+v", c)
	}
	folder := filepath.Dir(token)
	for _, row := range []struct {
		config Config
		want   string
	}{
		{Config{Addr: "localhost"}, `addr: must be host:port or https://host:port (got "localhost")`},
		{Config{Addr: ":8500"}, `addr: must be host:port or https://host:port (got ":8500")`},
		{Config{Addr: "https://"}, `addr: must be host:port or https://host:port (got "https://")`},
		{Config{Addr: "unix:///run/consul"}, `addr: must be host:port or https://host:port (got "unix:///run/consul")`},
		{Config{Addr: "host:8500/consul"}, `addr: must be host:port or https://host:port (got "host:8500/consul")`},
		{Config{Addr: "user@host:8500"}, `addr: must be host:port or https://host:port (got "user@host:8500")`},
		{Config{Addr: "host:http"}, `addr: port must be between 1 and 65535 (got "http")`},
		{Config{Addr: "host:0"}, `addr: port must be between 1 and 65535 (got "0")`},
		{Config{Addr: "host:65536"}, `addr: port must be between 1 and 65535 (got "65536")`},
		{Config{Addr: "http://host:8500", TLS: &certs.Client{ServerName: "x"}}, `addr: must begin with https:// when tls is set (got "http://host:8500")`},
		{Config{Datacenter: "eu west"}, `datacenter: must be a datacenter's name in letters, digits, _ and - (got "eu west")`},
		{Config{TokenFile: folder + "/none"}, `token_file: stat ` + folder + `/none: no such file or directory`},
		{Config{TokenFile: folder}, `token_file: ` + folder + ` is a folder; name a file`},
		{Config{Prefix: "/weir"}, `prefix: must be names of letters, digits and . _ - separated by / (got "/weir")`},
		{Config{Prefix: "weir/../other"}, `prefix: must be names of letters, digits and . _ - separated by / (got "weir/../other")`},
		{Config{TLS: &certs.Client{CAFile: folder + "/ca"}}, `tls.ca_file: stat ` + folder + `/ca: no such file or directory`},
		{Config{TLS: &certs.Client{CertFile: token}}, `tls: must name both cert_file and key_file, or neither`},
		{
			Config{Addr: "x", Prefix: "a b", TLS: &certs.Client{CertFile: folder + "/c", KeyFile: folder + "/k"}},
			`addr: must be host:port or https://host:port (got "x")` + "\n" +
				`prefix: must be names of letters, digits and . _ - separated by / (got "a b")` + "\n" +
				`tls.cert_file: stat ` + folder + `/c: no such file or directory` + "\n" +
				`tls.key_file: stat ` + folder + `/k: no such file or directory`,
		},
	} {
		require.EqualError(t, row.config.Validate(), row.want)
		_, err := Open(row.config)
		require.EqualError(t, err, row.want)
	}
	c := Config{Addr: "x"}
	var fault *field.Error
	require.ErrorAs(t, c.Validate(), &fault)
	require.Equal(t, "addr", fault.Path)
}

func TestAddress(t *testing.T) {
	f := func(c Config, wantScheme, wantAddr string) {
		t.Helper()
		scheme, addr := c.Endpoint()
		require.Equal(t, wantScheme, scheme)
		require.Equal(t, wantAddr, addr)
	}
	f(Config{}, "http", "127.0.0.1:8500")
	f(Config{TLS: &certs.Client{}}, "http", "127.0.0.1:8500")
	f(Config{TLS: &certs.Client{ServerName: "x"}}, "https", "127.0.0.1:8500")
	f(Config{Addr: "http://a:1"}, "http", "a:1")
	f(Config{Addr: "https://a:1/"}, "https", "a:1")
	f(Config{Addr: "a:1", TLS: &certs.Client{CAFile: "x"}}, "https", "a:1")
}

func TestOpenConsulReadsCertificates(t *testing.T) {
	file := write(t, "ca.pem", "not PEM")
	_, err := Open(Config{TLS: &certs.Client{CAFile: file}})
	require.EqualError(t, err, "tls.ca_file: "+file+" contains no PEM certificate")
	_, err = Open(Config{TLS: &certs.Client{CertFile: file, KeyFile: file}})
	require.EqualError(t, err, "tls.cert_file: "+file+", "+file+": tls: failed to find any PEM data in certificate input")
}

func TestReadToken(t *testing.T) {
	token, err := readToken("")
	require.NoError(t, err)
	require.Empty(t, token)
	file := write(t, "token", " 5f2c0ab6-1b6b \n")
	token, err = readToken(file)
	require.NoError(t, err)
	require.Equal(t, "5f2c0ab6-1b6b", token)
	f := func(content, want string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := readToken(file)
		require.EqualError(t, err, want)
	}
	f(" \n", "token_file: "+file+" is empty; write the token into it")
	f("one two\n", "token_file: "+file+" contains more than one word; write only the token into it")
	f("one\r\nX-Other: 1", "token_file: "+file+" contains more than one word; write only the token into it")
	require.NoError(t, os.Remove(file))
	_, err = readToken(file)
	require.EqualError(t, err, "token_file: open "+file+": no such file or directory")
}

func TestKey(t *testing.T) {
	c := open(t, Config{})
	require.Equal(t, "weir/rules/current", c.Key("rules", "current"))
	d := open(t, Config{Prefix: "edge/weir"}).Documents("shedder")
	require.Equal(t, "edge/weir/shedder/current", d.CurrentKey())
	require.Equal(t, "edge/weir/shedder/canary/ams1", d.CanaryKey("ams1"))
	for _, key := range []string{"", "weir", "weir/", "other/rules/current", "weir/../other", "weir//x", "weir/./x", "weir/a b", "weir/a?recurse", "weir/%2e%2e/x", "weir/a\n", "weirdo/x"} {
		require.Error(t, c.checkKey(key), "%q", key)
	}
	require.NoError(t, c.checkKey("weir/rules/history/2026-03-01T10:00:00.000000005Z-ba7816bf8f01"))
}
