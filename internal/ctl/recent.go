package ctl

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

// recentTraffic is what the edges of a region recently decided.
type recentTraffic struct {
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
	lines  [][]byte
}

// kept is what one edge has.
type kept struct {
	lines []byte
	since time.Time
	share float64
	lost  int64
	err   error
}

// askRecent asks all edges of a region for their recent requests, each for most(number of
// edges).
func askRecent(ctx context.Context, t *fleet.Target, query url.Values, most func(edges int) int) (nodes []consul.Node, answers []kept, err error) {
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
	answers = make([]kept, len(nodes))
	fleet.Each(nodes, func(i int, n consul.Node) {
		a := &answers[i]
		var about http.Header
		if a.lines, about, a.err = t.Admin.Recent(ctx, n, query); a.err == nil {
			a.err = a.read(about)
		}
	})
	return nodes, answers, nil
}

func (k *kept) read(about http.Header) error {
	var errs [3]error
	k.since, errs[0] = time.Parse(time.RFC3339Nano, about.Get(adminapi.HeaderSince))
	k.share, errs[1] = strconv.ParseFloat(about.Get(adminapi.HeaderShare), 64)
	k.lost, errs[2] = strconv.ParseInt(about.Get(adminapi.HeaderLost), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("is not an edge's answer: %w", err)
	}
	return nil
}

// keepsNone reports whether an edge answered that it keeps no requests.
func keepsNone(err error) bool {
	var status *fleet.StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// takeSample collects what rules decided in the one named region.
func takeSample(ctx context.Context, p *command.Program, names []string) (*recentTraffic, error) {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	if len(targets) != 1 {
		return nil, term.Misused("--from-nodes: counters are per region; name one with --region (%s)", strings.Join(command.RegionNames(targets), ", "))
	}
	t := targets[0]
	nodes, answers, err := askRecent(ctx, t, url.Values{"rules": {""}}, func(edges int) int { return max(1, mostRecent/edges) })
	if err != nil {
		return nil, term.Failed("%s: %w", t.Name, err)
	}
	s := &recentTraffic{Region: t.Name}
	for i := range answers {
		if err := answers[i].err; err != nil {
			s.Missing = append(s.Missing, term.Printable(nodes[i].ID)+": "+err.Error())
		} else {
			s.add(&answers[i])
		}
	}
	switch s.merge(); {
	case s.Edges == 0:
		return nil, term.Failed("no edge of %s gave its recent requests; set recent.keep in their configuration:\n%s", t.Name, strings.Join(s.Missing, "\n"))
	case len(s.lines) == 0:
		return nil, term.Failed("%s: its edges have decided no request since %s", t.Name, term.Stamp(s.Since))
	}
	return s, nil
}

func (s *recentTraffic) add(k *kept) {
	s.differ = s.differ || s.Edges > 0 && s.Share != k.share
	s.Edges++
	s.Share = k.share
	s.Lost += k.lost
	if k.since.After(s.Since) {
		s.Since = k.since
	}
	for line := range bytes.Lines(k.lines) {
		s.lines = append(s.lines, line)
	}
}

// Lines begin with the time, in UTC and with a constant width, so they sort as text.
const (
	recentTime = len(`{"time":"`)
	recentEnd  = recentTime + len("2006-01-02T15:04:05.000000Z")
)

// merge sorts the lines by time, and drops those from before all edges have theirs.
func (s *recentTraffic) merge() {
	from := s.Since.UTC().Format("2006-01-02T15:04:05.000000Z")
	s.lines = fleet.Filter(s.lines, func(line []byte) bool {
		return len(line) > recentEnd && string(line[recentTime:recentEnd]) >= from
	})
	slices.SortStableFunc(s.lines, func(a, b []byte) int { return bytes.Compare(a[recentTime:recentEnd], b[recentTime:recentEnd]) })
	for _, line := range s.lines {
		if bytes.HasSuffix(line, []byte(",\"cut\":true}\n")) {
			s.Cut++
		}
	}
}

// size is the length of all lines.
func (s *recentTraffic) size() (n int64) {
	for _, line := range s.lines {
		n += int64(len(line))
	}
	return n
}

// notes describes what the sample cannot show.
func (s *recentTraffic) notes() (list []string) {
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

// partly says which edges are missing, or returns nil.
func (s *recentTraffic) partly() error {
	if s == nil || len(s.Missing) == 0 {
		return nil
	}
	return term.Partial("%s of %s gave no recent requests:\n%s", term.Plural(len(s.Missing), "edge"), s.Region, strings.Join(s.Missing, "\n"))
}

// reader reads the lines.
func (s *recentTraffic) reader() io.ReadCloser { return &lineReader{lines: s.lines} }

type lineReader struct {
	lines [][]byte
	rest  []byte
}

// Read implements io.Reader.
func (r *lineReader) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if len(r.rest) == 0 {
			if len(r.lines) == 0 {
				if n == 0 {
					return 0, io.EOF
				}
				return n, nil
			}
			r.rest, r.lines = r.lines[0], r.lines[1:]
		}
		m := copy(b[n:], r.rest)
		n, r.rest = n+m, r.rest[m:]
	}
	return n, nil
}

// Close implements io.Closer.
func (r *lineReader) Close() error { return nil }
