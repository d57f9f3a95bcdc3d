package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The image's user, which has a number only: Kubernetes must see that it is not root.
const imageUser = 65532

const (
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor names a blob of an image layout.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// layout is an OCI image layout: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
type layout struct {
	date   time.Time
	blobs  []file
	images []descriptor // by platform
}

// add stores a blob.
func (l *layout) add(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	l.blobs = append(l.blobs, file{"blobs/sha256/" + sum, 0o644, data})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

// addJSON stores a document. Maps are sorted by key, so it is always the same.
func (l *layout) addJSON(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	return l.add(mediaType, data), err
}

// addImage adds the image of an architecture: the programs, the roots of TLS, and nothing that could run a script.
func (l *layout) addImage(version, arch string, programs, texts []file) error {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // its constraint, by which Mozilla phases it out, has no form in PEM
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return err
		}
	}
	state := "var/lib/weir/"
	files := slices.Concat([]file{
		{"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil}, {"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"etc/weir/", 0o755, nil}, {"usr/", 0o755, nil}, {"usr/local/", 0o755, nil}, {"usr/local/bin/", 0o755, nil},
		{"usr/share/", 0o755, nil}, {"usr/share/doc/", 0o755, nil}, {"usr/share/doc/weir/", 0o755, nil},
		{"var/", 0o755, nil}, {"var/lib/", 0o755, nil}, {state, 0o750, nil},
	}, below("usr/local/bin", programs), below("usr/share/doc/weir", texts))
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	plain, err := pack(l.date, files, map[string]int{state: imageUser})
	if err != nil {
		return err
	}
	zipped, err := compress(plain)
	if err != nil {
		return err
	}
	layer := l.add(ociLayer, zipped)
	config, err := l.addJSON(ociConfig, map[string]any{
		"created": l.date, "os": "linux", "architecture": arch,
		"config": map[string]any{
			"User":         fmt.Sprintf("%d:%[1]d", imageUser),
			"Env":          []string{"PATH=/usr/local/bin"},
			"Cmd":          []string{"/usr/local/bin/edge", "-config", "/etc/weir/edge.yaml"},
			"ExposedPorts": map[string]any{"8080/tcp": struct{}{}, "8081/tcp": struct{}{}},
			"Volumes":      map[string]any{"/var/lib/weir": struct{}{}}, // rules.cache outlives the container
			"StopSignal":   "SIGTERM",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain))}},
	})
	if err != nil {
		return err
	}
	image, err := l.addJSON(ociManifest, map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest, "config": config, "layers": []descriptor{layer},
		"annotations": map[string]string{
			"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": home,
		},
	})
	image.Platform = map[string]string{"os": "linux", "architecture": arch}
	l.images = append(l.images, image)
	return err
}

// archive packs the layout of all architectures as one image, which tools name after its version.
func (l *layout) archive(version string) ([]byte, error) {
	index := func(of []descriptor) map[string]any {
		return map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": of}
	}
	all, err := l.addJSON(ociIndex, index(l.images))
	if err != nil {
		return nil, err
	}
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": version, "io.containerd.image.name": "docker.io/library/weir:" + version}
	top, err := json.Marshal(index([]descriptor{all}))
	if err != nil {
		return nil, err
	}
	files := append([]file{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, top},
		{"blobs/", 0o755, nil}, {"blobs/sha256/", 0o755, nil},
	}, l.blobs...)
	return pack(l.date, files, nil)
}
