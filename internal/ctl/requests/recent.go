// Package requests finds requests to replay: in a log, or the latest that the nodes keep.
package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// mostRecent bounds how many requests are taken from all edges of a region together.
const mostRecent = 100_000

// Recent is what the edges of a region recently decided.
type Recent struct {
	Region string `json:"region"`
	Edges  int    `json:"edges"` // that keep requests, and answered
	// Missing are the edges that contribute nothing, and why.
	Missing []string `json:"missing,omitempty"`
	// Since is the time from which it has the requests of all these edges.
	Since time.Time `json:"since"`
	// Share is the share of clients whose requests are kept.
	Share float64 `json:"share"`
	// Lost is how many requests edges could not keep since they started; Cut is how many
	// were too long to be kept whole.
	Lost int64 `json:"lost,omitempty"`
	Cut  int   `json:"cut,omitempty"`
	// differ: edges keep different shares.
	differ bool
	Lines  [][]byte `json:"-"`
}

// Kept is what one edge has.
type Kept struct {
	Lines []byte
	Since time.Time
	Share float64
	lost  int64
	Err   error
}

// AskRecent asks all edges of a region for their recent requests, each for most(number of
// edges).
func AskRecent(ctx context.Context, t *fleet.Target, query url.Values, most func(edges int) int) (nodes []consul.Node, answers []Kept, err error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	if nodes, err = t.Nodes(brief); err != nil {
		return nil, nil, err
	}
	if len(nodes) == 0 {
		return nil, nil, errors.New("no edge is registered there, or this token may not see them")
	}
	query = maps.Clone(query)
	query.Set("most", strconv.Itoa(most(len(nodes))))
	answers = make([]Kept, len(nodes))
	fleet.Each(nodes, func(i int, n consul.Node) {
		a := &answers[i]
		var about http.Header
		if a.Lines, about, a.Err = t.Admin.Recent(ctx, n, query); a.Err == nil {
			a.Err = a.read(about)
		}
	})
	return nodes, answers, nil
}

func (k *Kept) read(about http.Header) error {
	var errs [3]error
	k.Since, errs[0] = time.Parse(time.RFC3339Nano, about.Get(adminapi.HeaderSince))
	k.Share, errs[1] = strconv.ParseFloat(about.Get(adminapi.HeaderShare), 64)
	k.lost, errs[2] = strconv.ParseInt(about.Get(adminapi.HeaderLost), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("is not an edge's answer: %w", err)
	}
	return nil
}

// KeepsNone reports whether an edge answered that it keeps no requests.
func KeepsNone(err error) bool {
	var status *fleet.StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// TakeSample collects what rules decided in the one named region.
func TakeSample(ctx context.Context, p *command.Program, names []string) (*Recent, error) {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	if len(targets) != 1 {
		return nil, term.Misused("--from-nodes: counters are per region; name one with --region (%s)", strings.Join(command.RegionNames(targets), ", "))
	}
	t := targets[0]
	nodes, answers, err := AskRecent(ctx, t, url.Values{"rules": {""}}, func(edges int) int { return max(1, mostRecent/edges) })
	if err != nil {
		return nil, term.Failed("%s: %w", t.Name, err)
	}
	s, hint := &Recent{Region: t.Name}, ""
	for i := range answers {
		if err := answers[i].Err; err != nil {
			if KeepsNone(err) {
				hint = "; set recent.keep in their configuration"
			}
			s.Missing = append(s.Missing, term.Printable(nodes[i].ID)+": "+err.Error())
		} else {
			s.add(&answers[i])
		}
	}
	switch s.merge(); {
	case s.Edges == 0:
		return nil, term.Failed("no edge of %s gave its recent requests%s:\n%s", t.Name, hint, strings.Join(s.Missing, "\n"))
	case len(s.Lines) == 0:
		return nil, term.Failed("%s: its edges have decided no request since %s", t.Name, term.Stamp(s.Since))
	}
	return s, nil
}

func (s *Recent) add(k *Kept) {
	s.differ = s.differ || s.Edges > 0 && s.Share != k.Share
	s.Edges++
	s.Share = k.Share
	s.Lost += k.lost
	if k.Since.After(s.Since) {
		s.Since = k.Since
	}
	for line := range bytes.Lines(k.Lines) {
		s.Lines = append(s.Lines, line)
	}
}

// Lines begin with the time, in UTC and with a constant width, so they sort as text.
const (
	recentTime = len(`{"time":"`)
	recentEnd  = recentTime + len("2006-01-02T15:04:05.000000Z")
)

// merge sorts the lines by time, and drops those from before all edges have theirs.
func (s *Recent) merge() {
	from := s.Since.UTC().Format("2006-01-02T15:04:05.000000Z")
	s.Lines = fleet.Filter(s.Lines, func(line []byte) bool {
		return len(line) > recentEnd && string(line[recentTime:recentEnd]) >= from
	})
	slices.SortStableFunc(s.Lines, func(a, b []byte) int { return bytes.Compare(a[recentTime:recentEnd], b[recentTime:recentEnd]) })
	for _, line := range s.Lines {
		if bytes.HasSuffix(line, []byte(",\"cut\":true}\n")) {
			s.Cut++
		}
	}
}

// Size is the length of all lines.
func (s *Recent) Size() (n int64) {
	for _, line := range s.Lines {
		n += int64(len(line))
	}
	return n
}

// Notes describes what the sample cannot show.
func (s *Recent) Notes() (list []string) {
	if s.Share < 1 {
		list = append(list, fmt.Sprintf("edges keep all requests of %s of the clients: rules that do not count by client limit too little here", term.Percent(s.Share)))
	}
	if s.differ {
		list = append(list, "edges keep the requests of different shares of the clients; set the same recent.share on all")
	}
	if s.Cut > 0 {
		list = append(list, fmt.Sprintf("%s too long to be kept as a whole", was(s.Cut, "request")))
	}
	if s.Lost > 0 {
		list = append(list, fmt.Sprintf("%s lost since the edges started, because many came at the same instant", was(int(s.Lost), "request")))
	}
	if len(s.Missing) > 0 {
		list = append(list, fmt.Sprintf("the requests of %s are missing", term.Plural(len(s.Missing), "edge")))
	}
	return list
}

func was(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " was"
	}
	return term.Plural(n, thing) + " were"
}

// Partly says which edges are missing, or returns nil.
func (s *Recent) Partly() error {
	if s == nil || len(s.Missing) == 0 {
		return nil
	}
	return term.Partial("%s of %s gave no recent requests:\n%s", term.Plural(len(s.Missing), "edge"), s.Region, strings.Join(s.Missing, "\n"))
}

func (s *Recent) Reader() io.ReadCloser {
	lines := make([]io.Reader, len(s.Lines))
	for i, line := range s.Lines {
		lines[i] = bytes.NewReader(line)
	}
	return io.NopCloser(io.MultiReader(lines...))
}
