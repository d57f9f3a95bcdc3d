package edge

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// A node that requires signatures keeps what it has, says why everywhere, and starts from
// signed copies only.
func TestNodeRequiresSignatures(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, server)
	file := filepath.Join(t.TempDir(), "key.pem")
	_, err := sign.Generate(file, file+".pub")
	require.NoError(t, err)
	key, err := sign.ReadKey(file)
	require.NoError(t, err)
	signed := func(document string) sign.Signature {
		v := consul.NewPointer([]byte(document), "", time.Time{})
		return key.Sign(sign.Subject{Kind: "rules", Region: "eu-west", SHA256: v.SHA256}, nil)
	}
	first := p.put(ruleA)
	require.NoError(t, p.Sign(t.Context(), first.Version, signed(ruleA)))
	p.point(first)
	var signatures atomic.Pointer[[]byte] // a stopped node's last request may still read it
	copySigned := func(list []sign.Signature) {
		t.Helper()
		text, err := sign.Encode(list)
		require.NoError(t, err)
		signatures.Store(&text)
	}
	signatures.Store(new([]byte))
	copies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sig") {
			_, _ = w.Write(*signatures.Load())
			return
		}
		_, _ = w.Write([]byte(ruleA))
	}))
	t.Cleanup(copies.Close)
	s := p.setup(func(c *config.Config) {
		c.Documents = config.Documents{VerifyKeys: []string{file + ".pub"}, RequireSigned: true}
		c.Rules.Bootstrap, c.Rules.BootstrapSignatures = copies.URL+"/rules.yaml", copies.URL+"/rules.yaml.sig"
	})
	n := start(t, s)
	n.runs(first.Version)
	require.Equal(t, key.ID(), n.config.Documents.SignedBy())

	second := p.apply(ruleB)
	v := n.shows("the unsigned one is refused", func(v adminapi.Rules) bool { return v.Refused != nil })
	require.Equal(t, []any{first.Version, second, "document: is not signed; apply it with regionctl --sign KEYFILE"}, []any{v.Version, v.Refused.Version, v.Refused.Errors[0]})
	require.Contains(t, v.Signature.Error, "is not signed")
	_, state := n.readyz()
	require.Contains(t, state["rules_signature"], "is not signed")
	require.Contains(t, state["rules_refused"], second+": document: is not signed")
	require.EqualValues(t, 1, n.metric("weir_rules_rejected_total"))
	require.Contains(t, n.operate("GET", "/metrics").body, `weir_documents_unsigned{document="rules"} 1`)
	require.Len(t, n.logs.lines(t, "rules refused"), 1)
	require.NoError(t, p.Sign(t.Context(), second, signed(ruleB)))
	n.runs(second)
	eventually(t, "the metric falls", func() bool {
		return strings.Contains(n.operate("GET", "/metrics").body, `weir_documents_unsigned{document="rules"} 0`)
	})
	p.point(first)
	n.runs(first.Version)
	eventually(t, "it is on disk", func() bool { kept, err := n.kept(); return err == nil && kept.Pointer.Version == first.Version })
	n.stop()
	_, err = config.Check(n.config)
	require.NoError(t, err)
	server.Kill()

	n = start(t, s)
	require.Equal(t, "cache", n.rulesView().Source)
	n.stop()
	// A copy of a node that did not verify is not used; nor is an unsigned bootstrap.
	require.NoError(t, os.Remove(n.config.Rules.Cache))
	copySigned(nil)
	n = start(t, s)
	eventually(t, "bootstrap is refused", func() bool {
		_, state := n.readyz()
		return strings.Contains(state["rules_bootstrap"], "is not signed")
	})
	n.stop()
	copySigned([]sign.Signature{signed(ruleA)})
	n = start(t, s)
	n.shows("the signed copy is used", func(v adminapi.Rules) bool { return v.Version == first.Version && v.Source == "bootstrap" })
}

func TestDocumentsConfig(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, nil, 0o600))
	f := func(change func(*config.Config), want string) {
		t.Helper()
		c := config.Defaults()
		c.Rules = config.Rules{Source: "consul", Cache: "x", Required: true}
		c.Node = config.Node{ID: "a", Region: "eu", PoP: "ams"}
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	f(func(c *config.Config) { c.Documents.RequireSigned = true }, "documents.verify_keys: must name a file with a public key when documents.require_signed is true")
	f(func(c *config.Config) { c.Documents.VerifyKeys = []string{key, ""} }, "documents.verify_keys[1]: must name a file")
	f(func(c *config.Config) { c.Documents.VerifyKeys = []string{key + "x"} }, "documents.verify_keys[0]: ")
	f(func(c *config.Config) {
		c.Documents.VerifyKeys, c.Rules.Source, c.Rules.File = []string{key}, "file", key
	}, "documents.verify_keys: is for rules.source consul; remove it")
	f(func(c *config.Config) {
		c.Documents = config.Documents{VerifyKeys: []string{key}, RequireSigned: true}
		c.Rules.Bootstrap = "https://example.com/rules.yaml"
	}, "rules.bootstrap_signatures: must be a URL of the signatures of rules.bootstrap when documents.require_signed is true")
	f(func(c *config.Config) { c.Rules.BootstrapSignatures = "https://example.com/rules.yaml.sig" }, "rules.bootstrap_signatures: must be an https:// URL")
	c := config.Defaults()
	c.Documents.VerifyKeys = []string{key}
	_, err := config.Check(&c)
	require.ErrorContains(t, err, "documents.verify_keys: "+key+` holds no PEM block "PUBLIC KEY"`)
}
