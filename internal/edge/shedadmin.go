package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region"
)

// How long settings for this node alone are in force.
const (
	overrideLasts    = 15 * time.Minute
	overrideShortest = time.Second
	overrideLongest  = 24 * time.Hour
)

// shedderView is GET /v1/shedder.
type shedderView struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Source  string    `json:"source"`
	Since   time.Time `json:"since"`
	// ExpiresAt and Then are there while what is in force is temporary.
	ExpiresAt *time.Time      `json:"expires_at,omitempty"`
	Then      string          `json:"then,omitempty"` // a version
	Pointer   *region.Pointer `json:"pointer,omitempty"`
	Refused   *refusal        `json:"refused,omitempty"`
	Consul    *conditionView  `json:"consul,omitempty"`
	Cache     *conditionView  `json:"cache,omitempty"`

	Document   *shedding.Document        `json:"document,omitempty"`
	Upstreams  []shedding.UpstreamStatus `json:"upstreams"`
	ShadowBias string                    `json:"shadow_bias"`
}

func (k *shedKeeper) view() shedderView {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.edge.shedding.Load()
	v := shedderView{
		Node: k.edge.config.Node.ID, Version: s.document.Version, Source: s.source, Since: s.since.UTC(),
		Pointer: k.pointer(), Refused: k.followed.refused, Document: s.document, ShadowBias: shedding.ShadowBias,
	}
	if then, ends := k.then(time.Now()); then != "" {
		ends = ends.UTC().Round(time.Millisecond)
		v.Then, v.ExpiresAt = then, &ends
	}
	if k.consulState != nil {
		v.Consul, v.Cache = k.consulState.view(), k.cacheState.view()
	}
	for _, g := range k.edge.groups {
		v.Upstreams = append(v.Upstreams, shedding.NewUpstreamStatus(g.shedder.Status()))
	}
	return v
}

// showShedder tells by which settings is shed, and how things stand; with ?brief not
// the settings themselves.
func (e *Edge) showShedder(w http.ResponseWriter, r *http.Request) {
	v := e.keeper.view()
	if r.URL.Query().Has("brief") {
		v.Document = nil
	}
	writeJSON(w, http.StatusOK, v)
}

// overrideShedder puts settings in force on this node alone, for a while.
func (e *Edge) overrideShedder(w http.ResponseWriter, r *http.Request) {
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
		err = e.keeper.override(document, lasts)
	}
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	e.log.Info("shedder settings for this node alone", "version", document.Version, "for", lasts.String())
	e.answerBrief(w)
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

// endOverride has this node shed by the settings of all others again.
func (e *Edge) endOverride(w http.ResponseWriter, _ *http.Request) {
	if err := e.keeper.override(nil, 0); err != nil {
		adminError(w, http.StatusInternalServerError, err)
		return
	}
	e.log.Info("shedder settings for this node alone have been ended")
	e.answerBrief(w)
}

func (e *Edge) answerBrief(w http.ResponseWriter) {
	v := e.keeper.view()
	v.Document = nil
	writeJSON(w, http.StatusOK, v)
}
