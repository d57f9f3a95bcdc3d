package sign

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func newKey(t testing.TB) (*Key, Keys) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.pem")
	id, err := Generate(file, file+".pub")
	require.NoError(t, err)
	key, err := ReadKey(file)
	require.NoError(t, err)
	require.Equal(t, id, key.ID())
	keys, err := ReadPublic([]string{file + ".pub"})
	require.NoError(t, err)
	require.Contains(t, keys, id)
	return key, keys
}

var subject = Subject{Kind: "rules", Region: "eu-west", SHA256: strings.Repeat("ab", 32)}

// A signature is void for another subject, and if any bit changes.
func TestVerify(t *testing.T) {
	key, keys := newKey(t)
	other, _ := newKey(t)
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	soon, later := now.Add(time.Hour), now.Add(2*time.Hour)
	good, temporary := key.Sign(subject, nil), key.Sign(subject, &soon)
	require.Equal(t, good, key.Sign(subject, nil), "signing is deterministic")

	f := func(list []Signature, s Subject, expires *time.Time, want string) {
		t.Helper()
		err := keys.Verify(s, list, expires)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
		require.True(t, IsFault(err))
	}
	f([]Signature{good}, subject, nil, "")
	f([]Signature{good}, subject, &later, "")
	f([]Signature{other.Sign(subject, nil), good}, subject, nil, "")
	f(nil, subject, nil, "is not signed; apply it with regionctl --sign KEYFILE")
	f([]Signature{other.Sign(subject, nil)}, subject, nil, `is signed by key "`+other.ID()+`", but the trusted keys are `+key.ID())
	for _, s := range []Subject{
		{"shedder", subject.Region, subject.SHA256}, {subject.Kind, "us-east", subject.SHA256}, {subject.Kind, "", subject.SHA256},
		{subject.Kind, subject.Region, strings.Repeat("cd", 32)}, {"rules\"\nregion \"eu-west", "", subject.SHA256},
	} {
		f([]Signature{good}, s, nil, "is damaged, or covers another document, kind or region")
	}
	// Temporary settings must stay temporary, or a kill switch could be made permanent.
	f([]Signature{temporary}, subject, &soon, "")
	f([]Signature{temporary}, subject, &now, "")
	f([]Signature{temporary}, subject, nil, "as temporary, until 2026-03-01T11:00:00Z, but the pointer does not expire")
	f([]Signature{temporary}, subject, &later, "until 2026-03-01T11:00:00Z, but the pointer expires at 2026-03-01T12:00:00Z")
	f([]Signature{temporary, good}, subject, nil, "")
	forged := temporary
	forged.Until = &later
	f([]Signature{forged}, subject, &later, "damaged")
	forged.Until = nil
	f([]Signature{forged}, subject, nil, "damaged")
	// The key's name carries no trust.
	forged = other.Sign(subject, nil)
	forged.Key = key.ID()
	f([]Signature{forged}, subject, nil, "damaged")
	for bit := range len(good.Value) * 8 {
		flipped := Signature{Key: good.Key, Value: bytes.Clone(good.Value)}
		flipped.Value[bit/8] ^= 1 << (bit % 8)
		f([]Signature{flipped}, subject, nil, "damaged")
	}
	f([]Signature{{Key: good.Key}}, subject, nil, "damaged")
	f([]Signature{{Key: "\x1b[2Jnobody's", Value: good.Value}}, subject, nil, `\x1b`)
}

func TestEncode(t *testing.T) {
	key, keys := newKey(t)
	until := time.Date(2026, 3, 1, 10, 0, 0, 123, time.FixedZone("", 3600))
	text, err := Encode([]Signature{key.Sign(subject, nil), key.Sign(subject, &until)})
	require.NoError(t, err)
	list, err := Parse(bytes.Replace(text, []byte(`{"key"`), []byte(`{"of a later release":1,"key"`), 1))
	require.NoError(t, err)
	require.NoError(t, keys.Verify(subject, list[:1], nil))
	require.NoError(t, keys.Verify(subject, list[1:], &until))
	for _, bad := range []string{"", "{}", "[1]", `[{"signature":"%"}]`, strings.Repeat(" ", maxText+1)} {
		_, err := Parse([]byte(bad))
		require.ErrorContains(t, err, "sign the document again", bad)
	}
}

// The newest signatures stay, one of each key for permanent and one for temporary validity.
func TestAdd(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(seconds int) *time.Time { t := now.Add(time.Duration(seconds) * time.Second); return &t }
	list := Add(nil, Signature{Key: "a", Value: []byte("1")}, now)
	list = Add(list, Signature{Key: "a", Until: at(1)}, now)
	list = Add(list, Signature{Key: "b"}, now)
	require.Len(t, list, 3)
	list = Add(list, Signature{Key: "a", Value: []byte("2")}, now.Add(time.Minute))
	require.Equal(t, []Signature{{Key: "b"}, {Key: "a", Value: []byte("2")}}, list, "the expired one is gone")
	rapid.Check(t, func(t *rapid.T) {
		var list []Signature
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`[a-z]{3}`), 1, 3*maxKept).Draw(t, "names") {
			list = Add(list, Signature{Key: name}, now)
			require.Equal(t, name, list[len(list)-1].Key)
			require.LessOrEqual(t, len(list), maxKept)
		}
	})
}

func TestFilesAreSafe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key.pem")
	id, err := Generate(file, file+".pub")
	require.NoError(t, err)
	for name, mode := range map[string]os.FileMode{file: 0o600, file + ".pub": 0o644} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
	}
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = Generate(file, file+".other")
	require.ErrorIs(t, err, os.ErrExist)
	_, err = Generate(file+".new", file+".pub")
	require.ErrorIs(t, err, os.ErrExist)
	require.NoFileExists(t, file+".new")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)

	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		require.NoError(t, os.Chmod(file, mode))
		_, err = ReadKey(file)
		require.ErrorContains(t, err, fmt.Sprintf("is accessible to other users (mode %04o); run chmod 600", mode))
	}
	require.NoError(t, os.Chmod(file, 0o400))
	_, err = ReadKey(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), keyMode(1000, 1000))
	require.Equal(t, os.FileMode(0o640), keyMode(0, 1000), "others read it by their group")
	keys, err := ReadPublic([]string{file + ".pub", file + ".pub"})
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Contains(t, keys, id)

	_, err = ReadPublic([]string{file})
	require.ErrorContains(t, err, `holds a PEM block "PRIVATE KEY"; it must hold public keys only, as the .pub file of regionctl keys generate`)
	_, err = ReadKey(file + ".pub")
	require.ErrorContains(t, err, "holds a public key; name the private one", "its mode need not be 0600")
	_, err = ReadKey(dir)
	require.ErrorContains(t, err, "is not a regular file")
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err = ReadKey(pipe)
	require.ErrorContains(t, err, "is not a regular file")
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = ReadKey(empty)
	require.ErrorContains(t, err, `holds no PEM block "PRIVATE KEY"`)
	_, err = ReadPublic([]string{empty})
	require.ErrorContains(t, err, `holds no PEM block "PUBLIC KEY"`)
	_, err = ReadPublic([]string{filepath.Join(dir, "missing")})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// openssl makes keys that sign, and verifies their signatures.
func TestOpenSSL(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("openssl", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("genpkey", "-algorithm", "ed25519", "-out", "key.pem")
	run("pkey", "-in", "key.pem", "-pubout", "-out", "key.pub")
	require.NoError(t, os.Chmod(filepath.Join(dir, "key.pem"), 0o600))
	key, err := ReadKey(filepath.Join(dir, "key.pem"))
	require.NoError(t, err)
	keys, err := ReadPublic([]string{filepath.Join(dir, "key.pub")})
	require.NoError(t, err)
	s := key.Sign(subject, nil)
	require.NoError(t, keys.Verify(subject, []Signature{s}, nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), subject.text(nil), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sig"), s.Value, 0o600))
	run("pkeyutl", "-verify", "-pubin", "-inkey", "key.pub", "-rawin", "-in", "text", "-sigfile", "sig")

	run("genpkey", "-algorithm", "rsa", "-out", "rsa.pem")
	run("pkey", "-in", "rsa.pem", "-pubout", "-out", "rsa.pub")
	_, err = ReadKey(filepath.Join(dir, "rsa.pem"))
	require.Error(t, err)
	require.NoError(t, os.Chmod(filepath.Join(dir, "rsa.pem"), 0o600))
	_, err = ReadKey(filepath.Join(dir, "rsa.pem"))
	require.ErrorContains(t, err, "another algorithm than Ed25519")
	_, err = ReadPublic([]string{filepath.Join(dir, "rsa.pub")})
	require.ErrorContains(t, err, "another algorithm than Ed25519")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"key":"a","until":"2026-03-01T10:00:00Z","signature":"AAAA"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse(text)
		if err != nil {
			return
		}
		_ = Keys{}.Verify(subject, list, nil)
		again, err := Encode(list)
		require.NoError(t, err)
		_, err = Parse(again)
		require.True(t, err == nil || len(again) > maxText)
	})
}
