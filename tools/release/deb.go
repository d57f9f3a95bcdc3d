package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// scripts are the maintainer scripts and the configuration that a package starts with.
//
//go:embed debian
var scripts embed.FS

// deb writes a platform's Debian package; Debian uses the same architecture names. dpkg-deb gives
// the same bytes for the same tree and SOURCE_DATE_EPOCH.
func (r *release) deb(ctx context.Context, name, arch string, built, texts []file) error {
	tree := filepath.Join(r.work, name)
	put := func(path string, mode os.FileMode, data []byte) error {
		path = filepath.Join(tree, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return err
		}
		return os.Chmod(path, mode) // whatever the umask
	}
	for _, f := range built {
		if err := put("usr/bin/"+f.name, 0o755, f.data); err != nil {
			return err
		}
	}
	for _, f := range texts {
		if err := put("usr/share/doc/weir/"+f.name, 0o644, f.data); err != nil {
			return err
		}
	}
	for _, f := range r.pages {
		path, found := map[string]string{
			"completions/regionctl.bash": "usr/share/bash-completion/completions/regionctl",
			"completions/_regionctl":     "usr/share/zsh/vendor-completions/_regionctl",
			"completions/regionctl.fish": "usr/share/fish/vendor_completions.d/regionctl.fish",
		}[f.name]
		if !found {
			path = "usr/share/man/man1/" + filepath.Base(f.name)
		}
		if err := put(path, 0o644, f.data); err != nil {
			return err
		}
	}
	for path, source := range map[string]string{
		"lib/systemd/system/weir-edge.service":  "deploy/systemd/weir-edge.service",
		"lib/systemd/system/weir-dns.service":   "deploy/systemd/weir-dns.service",
		"lib/systemd/system/weir-list@.service": "deploy/systemd/weir-list@.service",
		"usr/lib/sysusers.d/weir.conf":          "deploy/systemd/weir.sysusers",
	} {
		data, err := os.ReadFile(filepath.Join(r.root, source))
		if err != nil {
			return err
		}
		// Packages install to /usr, administrators to /usr/local.
		if err := put(path, 0o644, []byte(strings.ReplaceAll(string(data), "/usr/local/bin/", "/usr/bin/"))); err != nil {
			return err
		}
	}
	if err := put("usr/share/doc/weir/copyright", 0o644, script("copyright")); err != nil {
		return err
	}
	conffiles := ""
	for _, path := range []string{"edge.yaml", "rules.yaml", "dns.env"} {
		if err := put("etc/weir/"+path, 0o644, script(path)); err != nil {
			return err
		}
		conffiles += "/etc/weir/" + path + "\n"
	}
	control := fmt.Sprintf(string(script("control")), debVersion(r.version), arch)
	for path, data := range map[string][]byte{"control": []byte(control), "conffiles": []byte(conffiles)} {
		if err := put("DEBIAN/"+path, 0o644, data); err != nil {
			return err
		}
	}
	for _, path := range []string{"postinst", "prerm", "postrm"} {
		if err := put("DEBIAN/"+path, 0o755, script(path)); err != nil {
			return err
		}
	}
	// Directories follow the builder's umask.
	if _, err := r.run(ctx, nil, "find", tree, "-type", "d", "-exec", "chmod", "755", "{}", "+"); err != nil {
		return err
	}
	file := name + ".deb"
	_, err := r.run(ctx, []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix())},
		"dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, filepath.Join(r.out, file))
	r.files = append(r.files, file)
	return err
}

// script returns an embedded file.
func script(name string) []byte {
	data, err := scripts.ReadFile("debian/" + name)
	if err != nil {
		panic(err) // the programmer named it
	}
	return data
}

// debVersion formats a module version so that Debian orders it: a pre-release sorts before its
// release.
func debVersion(version string) string {
	return strings.Replace(strings.TrimPrefix(version, "v"), "-", "~", 1)
}
