// Command release builds the downloads: static programs for each platform with man pages and
// completions, Debian packages, an image, the Helm chart, bills of materials, a statement of
// provenance, checksums and their signature.
//
// The same commit, version of weir and version of Go give the same bytes on every machine. release
// builds the checkout that it runs in, which must have no uncommitted changes.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	root := flag.String("root", ".", "the checkout `DIRECTORY` to build")
	out := flag.String("out", "dist", "the `DIRECTORY` to write, emptied before")
	version := flag.String("version", "", "the `VERSION` to release, which CHANGELOG.md must begin with (default: a build of the commit, not a release)")
	key := flag.String("key", "", "the SSH private key `FILE` to sign with (default: no signature)")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/arm64", "what to build for, as `OS/ARCH,…`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &release{root: *root, out: *out, version: *version, key: *key, platforms: strings.Split(*platforms, ",")}
	if err := r.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one run.
type release struct {
	root, out string
	key       string // signs; empty: nothing does
	platforms []string
	cut       bool      // whether a version was named
	version   string    // of the module, as the programs report it
	commit    string    // its hash
	compiler  string    // the version of Go
	date      time.Time // of the commit: the time of every file
	work      string
	pages     []file // man pages and completions
	image     layout
	files     []string
}

// program is built from a package of a module, whose folder is given.
type program struct{ name, module, source string }

// programs lists the programs of a release. Their modules' versions are one: the commit.
var programs = []program{{"edge", ".", "./cmd/edge"}, {"regionctl", ".", "./cmd/regionctl"}, {"weir-import", "tools", "./import"}}

// programsFor lists those for an operating system: servers run Linux, operators' laptops also others.
func programsFor(system string) []program {
	if system == "linux" {
		return programs
	}
	return programs[1:2]
}

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
	if err := r.nameCommit(ctx); err != nil {
		return err
	}
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
	if err := r.writeImage(); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	if err := r.sum(); err != nil {
		return err
	}
	if r.key != "" {
		if err := r.sign(ctx); err != nil {
			return err
		}
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
	log, err := r.run(ctx, nil, "git", "log", "-1", "--format=%H %cI")
	if err != nil {
		return err
	}
	commit, when, _ := strings.Cut(log, " ")
	r.commit = commit
	r.date, err = time.Parse(time.RFC3339, when)
	r.date = r.date.UTC()
	r.image.date = r.date
	return err
}

// nameCommit tags the commit with the version in the clone, so that go build records it. Pages, chart, compose and Terraform
// name the version that CHANGELOG.md begins with (internal/house), so a release must have the same.
func (r *release) nameCommit(ctx context.Context) error {
	if r.version == "" {
		return nil
	}
	r.cut = true
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	first := regexp.MustCompile(`(?m)^## (\S+)`).FindStringSubmatch(string(text))
	if first == nil || first[1] != r.version {
		return fmt.Errorf("CHANGELOG.md does not begin with %s: describe that version there, then run go test ./internal/house -run Version -update", r.version)
	}
	others, err := r.run(ctx, nil, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	for _, tag := range strings.Fields(others) { // go build would take the highest
		if _, err := r.run(ctx, nil, "git", "tag", "-d", tag); err != nil {
			return err
		}
	}
	_, err = r.run(ctx, nil, "git", "-c", "tag.gpgSign=false", "tag", r.version)
	return err
}

func (r *release) buildPlatform(ctx context.Context, platform string) error {
	system, arch, found := strings.Cut(platform, "/")
	if !found {
		return fmt.Errorf("not a platform; name it as OS/ARCH, such as linux/amd64")
	}
	fmt.Println("building", platform)
	var built []file
	for _, p := range programsFor(system) {
		path := filepath.Join(r.work, platform, p.name)
		// -s and -w omit symbols and debug information, a third of the size. grpcnotrace omits gRPC's trace
		// pages, whose templates would keep every method: another third.
		// With one profile for all, what programs share is compiled once.
		if _, err := r.run(ctx, []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch, "GOFLAGS=-buildvcs=true"},
			"go", "build", "-C", p.module, "-trimpath", "-tags", "grpcnotrace", "-pgo", filepath.Join(r.root, "cmd/edge/default.pgo"), "-ldflags", "-s -w", "-o", path, p.source); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		built = append(built, file{p.name, 0o755, data})
	}
	bill, err := r.bill(ctx, filepath.Join(r.work, platform), programsFor(system))
	if err != nil {
		return err
	}
	if r.pages == nil {
		if err := r.makePages(ctx); err != nil {
			return err
		}
	}
	name, pages := r.name("weir")+"_"+system+"_"+arch, r.pages
	if system != "linux" {
		name = r.name("regionctl") + "_" + system + "_" + arch
		pages = slices.DeleteFunc(slices.Clone(pages), func(f file) bool { return !strings.Contains(f.name, "regionctl") })
	}
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
	archive, err := tarball(name, r.date, slices.Concat(built, texts, pages))
	if err != nil {
		return err
	}
	if err := r.write(name+".tar.gz", archive); err != nil {
		return err
	}
	if system != "linux" {
		return nil
	}
	if err := r.image.addImage(r.version, arch, built[:2], texts); err != nil {
		return err
	}
	return r.deb(ctx, name, arch, built, texts)
}

// writeImage writes the image of all architectures.
func (r *release) writeImage() error {
	if len(r.image.images) == 0 {
		return nil
	}
	data, err := r.image.archive(r.version)
	if err != nil {
		return err
	}
	return r.write(r.name("weir")+"_oci.tar", data)
}

// name begins the name of a download.
func (r *release) name(of string) string { return of + "_" + strings.TrimPrefix(r.version, "v") }

// write adds a file to the release.
func (r *release) write(name string, data []byte) error {
	r.files = append(r.files, name)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// sum writes the provenance of the files, and SHA256SUMS of all, for sha256sum -c.
func (r *release) sum() error {
	slices.Sort(r.files)
	sums := map[string]string{}
	for _, name := range r.files {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		sums[name] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	statement, err := r.provenance(sums)
	if err != nil {
		return err
	}
	if err := r.write(provenanceFile, statement); err != nil {
		return err
	}
	sums[provenanceFile] = fmt.Sprintf("%x", sha256.Sum256(statement))
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// run runs a command in the checkout and returns its trimmed output.
func (r *release) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = r.root
	// Each module with its own versions; nothing of the builder's environment changes the bytes.
	c.Env = append(os.Environ(), append([]string{"GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"}, env...)...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
