package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed assets
var embedded embed.FS

// kinds are the types of the files.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// Pages are the addresses of the pages: one document, whose script shows what its address says.
var Pages = []string{"/", "/fleet", "/rules", "/client", "/shedder", "/behavior", "/global", "/dns", "/audit"}

// asset is a file as it travels.
type asset struct{ kind, etag, plain, packed string }

// built are the files by their addresses, compressed once.
var built = sync.OnceValue(func() map[string]asset {
	files := map[string]asset{}
	err := fs.WalkDir(embedded, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is good
		_, _ = w.Write(text)                                       // to memory
		_ = w.Close()
		sum := sha256.Sum256(text)
		files["/"+name] = asset{kind: kinds[path.Ext(name)], etag: `"` + hex.EncodeToString(sum[:12]) + `"`, plain: string(text), packed: packed.String()}
		return nil
	})
	if err != nil {
		panic(err) // what was built in is there
	}
	files["/done"] = files["/assets/done.html"]
	for _, page := range Pages {
		files[page] = files["/assets/index.html"]
	}
	return files
})

// assets serves what is built in.
func assets() http.Handler {
	files := built()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, known := files[r.URL.Path]
		if !known || r.Method == http.MethodPost {
			refuse(w, http.StatusNotFound, "no page "+clip(r.URL.Path)+"; there are "+strings.Join(slices.Clone(Pages[1:]), ", "))
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "no-cache") // asked for again, and answered with 304
		h.Set("ETag", f.etag)
		h.Set("Vary", "Accept-Encoding")
		if r.Header.Get("If-None-Match") == f.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body := f.plain
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = f.packed
		}
		_, _ = w.Write([]byte(body)) // the client hung up
	})
}
