package documents

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

func newKey(t *testing.T) (*sign.Key, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.pem")
	_, err := sign.Generate(file, file+".pub")
	require.NoError(t, err)
	key, err := sign.ReadKey(file)
	require.NoError(t, err)
	return key, file + ".pub"
}

// signedToys is a follower of toys that must be signed, in a real Consul.
type signedToys struct {
	t         *testing.T
	keys      string // the file of the trusted keys
	client    *consul.Client
	documents *consul.Documents
	config    Config[toy]
}

func newSignedToys(t *testing.T, require bool) (*signedToys, *sign.Key) {
	s := &signedToys{t: t}
	var key *sign.Key
	key, s.keys = newKey(t)
	client, err := consul.Open(consul.Config{Addr: testenv.StartConsul(t, testenv.ConsulOptions{}).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.client, s.documents = client, client.Documents("toys").Temporary()
	s.config = Config[toy]{
		Kind: Kind[toy]{
			Name: "toys", What: "toys", Compile: parseToy, CanaryOf: "ams1", Temporary: true,
			Verify: &Verify{Keys: func() (sign.Keys, error) { return sign.ReadPublic([]string{s.keys}) }, Require: require, Region: "eu-west"},
		},
		Node: Node{Consul: client, Owner: europe}, Cache: filepath.Join(t.TempDir(), "toys.json"),
	}
	return s, key
}

// start follows until stop is called. The keeper's view changes with what is followed.
func (s *signedToys) start() (*toyKeeper, func()) {
	k := newToyKeeper(s.t, s.config)
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return k, stop
}

func (s *signedToys) subject(kind, text string) sign.Subject {
	return sign.Subject{Kind: kind, Region: "eu-west", SHA256: consul.NewPointer([]byte(text), "", time.Time{}).SHA256}
}

func (s *signedToys) sign(text string, signature sign.Signature) {
	s.t.Helper()
	require.NoError(s.t, s.documents.Sign(s.t.Context(), consul.NewPointer([]byte(text), "", time.Time{}).Version, signature))
}

// point makes a text current.
func (s *signedToys) point(text string, change func(*consul.Pointer)) consul.Pointer {
	s.t.Helper()
	_, err := s.documents.Put(s.t.Context(), []byte(text))
	require.NoError(s.t, err)
	p := consul.NewPointer([]byte(text), "test", time.Now())
	if change != nil {
		change(&p)
	}
	_, index, err := s.documents.Current(s.t.Context())
	require.NoError(s.t, err)
	ok, err := s.documents.Activate(s.t.Context(), consul.Change{Pointer: p}, index)
	require.NoError(s.t, err)
	require.True(s.t, ok)
	return p
}

func (k *toyKeeper) refuses(version, reason string) func() bool {
	return func() bool {
		r := k.State().Refused
		return r != nil && r.Version == version && strings.Contains(r.Errors[0], reason)
	}
}

// Nothing that is unsigned or signed for something else becomes active, and what is active stays.
func TestRequireSigned(t *testing.T) {
	t.Parallel()
	s, key := newSignedToys(t, true)
	other, _ := newKey(t)
	_, strangers := newKey(t)
	k, stop := s.start()
	boat := s.point("boat", nil)
	eventually(t, "it is refused", k.refuses(boat.Version, "is not signed"))
	require.Nil(t, k.active.Load())
	s.sign("boat", other.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "a stranger's key", k.refuses(boat.Version, "is signed by key"))
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "signed later, it becomes active", func() bool { return k.is("boat") })
	require.True(t, k.SignatureState.View().OK)

	for name, signature := range map[string]sign.Signature{
		"kite":  key.Sign(s.subject("rules", "kite"), nil),
		"ball":  key.Sign(s.subject("toys", "boat"), nil),
		"doll":  key.Sign(sign.Subject{Kind: "toys", Region: "us-east", SHA256: s.subject("", "doll").SHA256}, nil),
		"plane": key.Sign(s.subject("toys", "plane"), new(time.Now().Add(time.Hour))),
	} {
		s.sign(name, signature)
		p := s.point(name, nil)
		eventually(t, name, k.refuses(p.Version, "key "+key.ID()))
		require.True(t, k.is("boat"))
		require.False(t, k.SignatureState.View().OK)
	}
	// A canary counts like any other.
	trial, ends := consul.NewPointer([]byte("kite"), "test", time.Now()), time.Now().Add(time.Hour)
	trial.ExpiresAt = &ends
	s.point("boat", nil)
	eventually(t, "the refusal is over", func() bool { return k.State().Refused == nil })
	ok, err := s.documents.SetCanary(t.Context(), "ams1", trial, 0)
	require.NoError(t, err)
	require.True(t, ok)
	eventually(t, "the canary is refused", k.refuses(trial.Version, "another document, kind or region"))
	require.True(t, k.is("boat"))
	require.NoError(t, s.client.Remove(t.Context(), s.documents.CanaryKey("ams1")))

	// The copy on disk has its signatures; a node that trusts other keys does not use it.
	eventually(t, "it is on disk", func() bool { _, err := os.Stat(s.config.Cache); return err == nil })
	stop()
	require.True(t, newToyKeeper(t, s.config).is("boat"))
	trusted := s.keys
	s.keys = strangers
	require.Nil(t, newToyKeeper(t, s.config).active.Load())
	cached, err := ReadCache(s.config.Cache, europe)
	require.NoError(t, err)
	require.ErrorContains(t, s.config.Verify.Check("toys", cached), "is signed by key")
	s.keys = trusted
	require.NoError(t, s.config.Verify.Check("toys", cached))
	require.ErrorContains(t, s.config.Verify.Check("rules", cached), "another document, kind or region")
	require.NoError(t, WriteCache(s.config.Cache, europe, cached.Pointer, cached.Document))
	require.Nil(t, newToyKeeper(t, s.config).active.Load(), "without signatures")

	// So does a bootstrapped document.
	s.config.Bootstrap = func(context.Context) ([]byte, []sign.Signature, error) { return []byte("boat"), nil, nil }
	f := newToyKeeper(t, s.config)
	_, err = f.fetch(t.Context())
	require.ErrorContains(t, err, "is not signed")
	f.Bootstrap = func(context.Context) ([]byte, []sign.Signature, error) { return []byte("boat"), cached.Signatures, nil }
	d, err := f.fetch(t.Context())
	require.NoError(t, err)
	require.Equal(t, adminapi.SourceBootstrap, d.Source)

	// A key that is lost or unreadable trusts nobody.
	require.NoError(t, os.WriteFile(s.keys, nil, 0o600))
	require.ErrorContains(t, s.config.Verify.Check("toys", cached), "holds no PEM block")
}

// Keys are replaced without a restart: signatures that are added, or taken away, are seen while
// the document stays, so that the copy on disk is signed by a key that is still trusted when
// Consul is unreachable.
func TestReplacedKeys(t *testing.T) {
	t.Parallel()
	s, key := newSignedToys(t, true)
	s.config.Verify.Every = 20 * time.Millisecond
	k, stop := s.start()
	next, trusted := newKey(t)
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	boat := s.point("boat", nil)
	eventually(t, "boat", func() bool { return k.is("boat") })

	both := filepath.Join(t.TempDir(), "both.pub")
	old, err := os.ReadFile(s.keys)
	require.NoError(t, err)
	young, err := os.ReadFile(trusted)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(both, append(old, young...), 0o600))
	require.NoError(t, os.Rename(both, s.keys))
	s.sign("boat", next.Sign(s.subject("toys", "boat"), nil))
	onlyNext := &Verify{Keys: func() (sign.Keys, error) { return sign.ReadPublic([]string{trusted}) }, Region: "eu-west"}
	eventually(t, "the copy on disk has the new signature", func() bool {
		cached, err := ReadCache(s.config.Cache, europe)
		return err == nil && onlyNext.Check("toys", cached) == nil
	})
	require.NoError(t, os.WriteFile(s.keys+".next", young, 0o600))
	require.NoError(t, os.Rename(s.keys+".next", s.keys))

	// Without its signatures, it stays active, and the node says so.
	require.NoError(t, s.client.Put(t.Context(), s.client.Key("toys", "signatures", boat.Version), []byte("[]")))
	eventually(t, "it counts as unsigned", func() bool { return !k.SignatureState.View().OK })
	eventually(t, "it is refused", k.refuses(boat.Version, "is not signed"))
	require.True(t, k.is("boat"))
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "by a key that is not trusted any more", k.refuses(boat.Version, "is signed by key"))
	s.sign("boat", next.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "signed again", func() bool { return k.SignatureState.View().OK && k.State().Refused == nil })
	stop()
	require.True(t, newToyKeeper(t, s.config).is("boat"), "from disk")
}

// Without require, everything becomes active, and the node says what is unsigned.
func TestVerifyOnly(t *testing.T) {
	t.Parallel()
	s, key := newSignedToys(t, false)
	k, stop := s.start()
	s.point("boat", nil)
	eventually(t, "it becomes active", func() bool { return k.is("boat") })
	eventually(t, "unsigned", func() bool { return strings.Contains(k.SignatureState.View().Error, "is not signed") })
	require.Nil(t, k.State().Refused)
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "signed", func() bool { return k.SignatureState.View().OK })
	eventually(t, "the copy on disk gets the signature", func() bool {
		cached, err := ReadCache(s.config.Cache, europe)
		return err == nil && s.config.Verify.Check("toys", cached) == nil
	})
	stop()
}

// An unsigned pointer neither ends nor prolongs what is temporary, and never leads back to the
// configuration.
func TestUnsignedPointerEndsNothing(t *testing.T) {
	t.Parallel()
	s, key := newSignedToys(t, true)
	k, _ := s.start()
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	boat := s.point("boat", nil)
	eventually(t, "boat", func() bool { return k.is("boat") })
	soon := time.Now().Add(time.Hour) // after the end of this test, also on a slow machine
	s.sign("kite", key.Sign(s.subject("toys", "kite"), &soon))
	s.point("kite", func(p *consul.Pointer) {
		p.ExpiresAt, p.Successor = &soon, &consul.Named{Version: boat.Version, SHA256: boat.SHA256}
	})
	eventually(t, "kite", func() bool { return k.is("kite") })
	past, later := time.Now().Add(-time.Minute), time.Now().Add(2*time.Hour)
	for name, change := range map[string]func(*consul.Pointer){
		"ends":     func(p *consul.Pointer) { p.ExpiresAt = &past },
		"replaces": func(p *consul.Pointer) { p.ExpiresAt = &later },
		"prolongs": func(p *consul.Pointer) {
			*p = consul.NewPointer([]byte("kite"), "eve", time.Now())
			p.ExpiresAt = &later
		},
		"keeps": func(p *consul.Pointer) { *p = consul.NewPointer([]byte("kite"), "eve", time.Now()) },
	} {
		p := s.point("ball", change)
		eventually(t, name, func() bool {
			c := k.State()
			return c.Refused != nil && c.Pointer != nil && c.Pointer.AppliedAt.Equal(p.AppliedAt) && c.Refused.Version == p.Version
		})
		require.True(t, k.is("kite"), name)
		then, ends := k.Successor()
		require.LessOrEqual(t, time.Until(ends), time.Hour, name)
		require.Equal(t, boat.Version, then, name)
	}
}

// Where nothing ends a document, a pointer that says when it ends does not let one pass that is
// signed as temporary.
func TestTemporarySignatureOfALastingKind(t *testing.T) {
	t.Parallel()
	s, key := newSignedToys(t, true)
	s.config.Temporary = false
	k, _ := s.start()
	soon := time.Now().Add(time.Hour)
	s.sign("boat", key.Sign(s.subject("toys", "boat"), &soon))
	p := s.point("boat", func(p *consul.Pointer) { p.ExpiresAt = &soon })
	eventually(t, "it is refused", k.refuses(p.Version, "but the pointer does not expire"))
	require.Nil(t, k.active.Load())
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "signed for good", func() bool { return k.is("boat") })
}

func TestUnreadableSignaturesCountAsNone(t *testing.T) {
	t.Parallel()
	s, key := newSignedToys(t, true)
	k, _ := s.start()
	version := consul.NewPointer([]byte("boat"), "", time.Time{}).Version
	require.NoError(t, s.client.Put(t.Context(), s.client.Key("toys", "signatures", version), []byte("{")))
	s.point("boat", nil)
	eventually(t, "it is refused", k.refuses(version, "is not a list of signatures"))
	s.sign("boat", key.Sign(s.subject("toys", "boat"), nil))
	eventually(t, "signing repairs them", func() bool { return k.is("boat") })
	require.False(t, errors.Is(k.unsigned(time.Now(), nil), errUnsigned))
}
