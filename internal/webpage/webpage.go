// Package webpage holds the files of weir's pages for browsers: those of regionctl console, and
// that of a node alone. Both are served with it.
package webpage

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"maps"
	"net/http"
	"path"
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

// policy lets a page load and run only what its own server serves.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Protect keeps what is answered from being used by pages of others, and its own page from
// loading anything else.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

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
	return files
})

// Handler serves the files, and at the addresses of pages those that they name, as in
// "/": "index.html". missing answers requests for anything else.
func Handler(pages map[string]string, missing http.HandlerFunc) http.Handler {
	files := maps.Clone(built())
	for at, name := range pages {
		files[at] = files["/assets/"+name]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, known := files[r.URL.Path]
		if !known || r.Method == http.MethodPost {
			missing(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "no-cache") // asked for again, and answered with 304
		h.Set("ETag", f.etag)
		h.Add("Vary", "Accept-Encoding")
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
