// Command release builds the downloads: static programs for each platform with man pages and
// completions, Debian packages, a bill of materials and checksums.
//
// The same commit and Go version give the same bytes on every machine. release builds the
// checkout that it runs in, which must have no uncommitted changes.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	root := flag.String("root", ".", "the checkout `DIRECTORY` to build")
	out := flag.String("out", "dist", "the `DIRECTORY` to write, emptied before")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "what to build for, as `OS/ARCH,…`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &release{root: *root, out: *out, platforms: strings.Split(*platforms, ",")}
	if err := r.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one run.
type release struct {
	root, out string
	platforms []string
	version   string    // of the module, as the programs report it
	date      time.Time // of the commit: the time of every file
	work      string
	pages     []file // man pages and completions
	files     []string
}

// program is built from a package of a module, whose folder is given.
type program struct{ name, module, source string }

// programs lists the programs of a release. Their modules' versions are one: the commit.
var programs = []program{{"edge", ".", "./cmd/edge"}, {"regionctl", ".", "./cmd/regionctl"}, {"weir-import", "tools", "./import"}}

func (r *release) build(ctx context.Context) (err error) {
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "weir-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	// A clone holds nothing but the commit, and lets go build record it even if the checkout is a
	// worktree.
	source := filepath.Join(r.work, "source")
	if _, err := r.run(ctx, nil, "git", "clone", "-q", "--shared", ".", source); err != nil {
		return err
	}
	r.root = source
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, platform := range r.platforms {
		if err := r.buildPlatform(ctx, platform); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	if err := r.sum(); err != nil {
		return err
	}
	fmt.Printf("%s: %d files in %s\n", r.version, len(r.files)+1, r.out)
	return nil
}

// readCommit refuses a checkout whose build could not be repeated.
func (r *release) readCommit(ctx context.Context) error {
	changed, err := r.run(ctx, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("%s holds uncommitted changes; commit or remove them:\n%s", r.root, changed)
	}
	when, err := r.run(ctx, nil, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	r.date, err = time.Parse(time.RFC3339, when)
	r.date = r.date.UTC()
	return err
}

func (r *release) buildPlatform(ctx context.Context, platform string) error {
	system, arch, found := strings.Cut(platform, "/")
	if !found {
		return fmt.Errorf("not a platform; name it as OS/ARCH, such as linux/amd64")
	}
	fmt.Println("building", platform)
	var built []file
	for _, p := range programs {
		path := filepath.Join(r.work, platform, p.name)
		// -s and -w omit symbols and debug information, a third of the size. grpcnotrace omits gRPC's trace
		// pages, whose templates would keep every method: another third.
		if _, err := r.run(ctx, []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch, "GOFLAGS=-buildvcs=true"},
			"go", "build", "-C", p.module, "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, p.source); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		built = append(built, file{p.name, 0o755, data})
	}
	bill, err := r.bill(ctx, filepath.Join(r.work, platform))
	if err != nil {
		return err
	}
	if r.pages == nil {
		if err := r.makePages(ctx); err != nil {
			return err
		}
	}
	name := "weir_" + strings.TrimPrefix(r.version, "v") + "_" + system + "_" + arch
	if err := r.write(name+".cdx.json", bill.data); err != nil {
		return err
	}
	texts := []file{{"THIRD-PARTY-LICENSES", 0o644, bill.licenses}}
	for _, text := range []string{"LICENSE", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(r.root, text))
		if err != nil {
			return err
		}
		texts = append(texts, file{text, 0o644, data})
	}
	archive, err := tarball(name, r.date, slices.Concat(built, texts, r.pages))
	if err != nil {
		return err
	}
	if err := r.write(name+".tar.gz", archive); err != nil {
		return err
	}
	if system != "linux" {
		return nil
	}
	return r.deb(ctx, name, arch, built, texts)
}

// write adds a file to the release.
func (r *release) write(name string, data []byte) error {
	r.files = append(r.files, name)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// sum writes SHA256SUMS, for sha256sum -c.
func (r *release) sum() error {
	var sums strings.Builder
	slices.Sort(r.files)
	for _, name := range r.files {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// run runs a command in the checkout and returns its trimmed output.
func (r *release) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = r.root
	c.Env = append(os.Environ(), append(env, "GOWORK=off")...) // each module with its own versions
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
