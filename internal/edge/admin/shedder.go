package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/shedding"
)

// How long settings for this node only may stay active.
const (
	overrideLasts    = 15 * time.Minute
	overrideShortest = time.Second
	overrideLongest  = 24 * time.Hour
)

func (a *Admin) shedder() adminapi.Shedder {
	k := a.Shedding
	s := k.State()
	v := adminapi.Shedder{
		Node: a.Config.Node.ID, Version: s.Version(), Source: s.Source(), Since: s.Since.UTC(), Pointer: s.Pointer, Refused: s.Refused,
		Consul: k.ConsulState.View(), Cache: k.CacheState.View(), Signature: k.SignatureState.View(),
		Document: s.Active.Compiled, ShadowBias: shedding.ShadowBias,
	}
	if then, ends := k.Successor(); then != "" {
		ends = ends.UTC().Round(time.Millisecond)
		v.Then, v.ExpiresAt = then, &ends
	}
	for _, s := range a.Decider.Shedders {
		v.Upstreams = append(v.Upstreams, shedding.NewUpstreamStatus(s.Status()))
	}
	return v
}

// showShedder shows the active settings and the shedder's state; ?brief leaves out the
// settings themselves.
func (a *Admin) showShedder(w http.ResponseWriter, r *http.Request) {
	v := a.shedder()
	if r.URL.Query().Has("brief") {
		v.Document = nil
	}
	writeJSON(w, http.StatusOK, v)
}

// overrideShedder temporarily activates settings on this node only.
func (a *Admin) overrideShedder(w http.ResponseWriter, r *http.Request) {
	lasts, err := overrideFor(r)
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, shedding.MaxBytes))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			adminError(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the document is larger than %d bytes; shorten it", shedding.MaxBytes))
			return
		}
		adminError(w, http.StatusBadRequest, err)
		return
	}
	document, err := shedding.Parse(body)
	if err == nil {
		err = a.Shedding.Override(documents.Local(document.Version, document, adminapi.SourceAdmin), lasts)
	}
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	a.Log.Info("shedder settings for this node alone", "version", document.Version, "for", lasts.String())
	a.answerBrief(w)
}

// overrideFor reads ?for=15m.
func overrideFor(r *http.Request) (time.Duration, error) {
	for name := range r.URL.Query() {
		if name != "for" {
			return 0, fmt.Errorf("%s: unknown; use for", name)
		}
	}
	text := r.URL.Query().Get("for")
	if text == "" {
		return overrideLasts, nil
	}
	lasts, err := time.ParseDuration(text)
	if err != nil || lasts < overrideShortest || lasts > overrideLongest {
		return 0, fmt.Errorf("for: must be between 1s and 24h, as in for=15m (got %q)", text)
	}
	return lasts, nil
}

// endOverride returns this node to the published settings.
func (a *Admin) endOverride(w http.ResponseWriter, _ *http.Request) {
	if err := a.Shedding.Override(nil, 0); err != nil {
		adminError(w, http.StatusInternalServerError, err)
		return
	}
	a.Log.Info("shedder settings for this node alone ended")
	a.answerBrief(w)
}

func (a *Admin) answerBrief(w http.ResponseWriter) {
	v := a.shedder()
	v.Document = nil
	writeJSON(w, http.StatusOK, v)
}
