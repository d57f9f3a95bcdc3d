package rules

import (
	"net/netip"
	"net/textproto"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// begin is the start of a window of 24, 720 and 744 hours.
const begin = 22 * 22_320 * time.Hour

var (
	recipes     = regexp.MustCompile("(?ms)^## ([^\n]+)$|^```yaml\n(.*?)^```$")
	requestLine = regexp.MustCompile(`^(\S+) +(\S+) +(?:(\d+) × )?(\S+) (/\S*?)(?:, (.+?))?  +(pass.*|429 .+)$`)
	closingLine = regexp.MustCompile(`^(\S+) +(\S+) +closes one$`)
	callLine    = regexp.MustCompile(`^(\S+) +domain (\S+), (\S+)=(\S+), (\d+) hits  +(OK|OVER_LIMIT)$`)
)

// TestCookbook loads the document of every recipe and sends its requests.
func TestCookbook(t *testing.T) {
	page, err := os.ReadFile("../../../docs/COOKBOOK.md")
	require.NoError(t, err)
	sent, err := os.ReadFile("../../../docs/data/cookbook.txt")
	require.NoError(t, err)
	requests := map[string]string{}
	for _, section := range strings.Split(string(sent), "\n## ")[1:] {
		name, lines, _ := strings.Cut(section, "\n")
		requests[name] = strings.TrimSpace(lines)
	}
	require.GreaterOrEqual(t, len(requests), 20)
	name := ""
	for _, m := range recipes.FindAllStringSubmatch(string(page), -1) {
		if m[1] != "" {
			name = m[1]
			continue
		}
		require.Contains(t, requests, name, "docs/data/cookbook.txt has no requests for a recipe")
		t.Run(name, func(t *testing.T) { newKitchen(t, m[2]).play(t, requests[name]) })
		delete(requests, name)
	}
	require.Empty(t, requests, "docs/data/cookbook.txt has requests without a recipe")
}

// kitchen is a recipe's rules and the counters of its requests.
type kitchen struct {
	set   *Set
	store *memory.Store
	now   time.Duration
	slot  uint64
	open  []held
}

// held is the slots that a request holds while it is open.
type held struct {
	client   string
	checks   []limiter.Check
	decision limiter.Decision
}

func newKitchen(t *testing.T, document string) *kitchen {
	k := &kitchen{set: load(t, document), now: begin}
	k.store = memory.New(memory.Config{Clock: func() int64 { return k.now.Microseconds() }})
	return k
}

func (k *kitchen) play(t *testing.T, lines string) {
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		at, _, _ := strings.Cut(line, " ")
		after, err := time.ParseDuration(at)
		require.NoError(t, err, line)
		k.now = begin + after
		if m := closingLine.FindStringSubmatch(line); m != nil {
			i := slices.IndexFunc(k.open, func(h held) bool { return h.client == m[2] })
			require.GreaterOrEqual(t, i, 0, line)
			require.NoError(t, k.store.Return(t.Context(), k.open[i].checks, &k.open[i].decision))
			k.open = slices.Delete(k.open, i, i+1)
		} else if m := callLine.FindStringSubmatch(line); m != nil {
			require.Equal(t, m[6], k.call(t, m[2], Pair{m[3], m[4]}, m[5]), line)
		} else {
			m := requestLine.FindStringSubmatch(line)
			require.NotNil(t, m, "not understood: %s", line)
			times := 1
			if m[3] != "" {
				times, err = strconv.Atoi(m[3])
				require.NoError(t, err)
			}
			for i := range times {
				require.Equal(t, m[7], k.request(t, m), "%s: request %d", line, 1+i)
			}
		}
	}
}

// request sends the request of a line and returns the answer.
func (k *kitchen) request(t *testing.T, m []string) string {
	r := &fake{
		client: netip.MustParseAddr(m[2]), method: m[4], path: m[5], host: "www.example.com",
		headers: map[string][]string{}, cookies: map[string][]string{},
	}
	stays := false
	for part := range strings.SplitSeq(m[6], ", ") {
		header, value, isHeader := strings.Cut(part, ": ")
		kind, what, _ := strings.Cut(part, " ")
		switch {
		case part == "":
		case part == "by gateway":
			r.trusted = true
		case part == "stays open":
			stays = true
		case header == "Host":
			r.host = value
		case header == "Cookie":
			cookie, content, _ := strings.Cut(value, "=")
			r.cookies[cookie] = []string{content}
		case isHeader:
			r.headers[textproto.CanonicalMIMEHeaderKey(header)] = []string{value}
		case kind == "risk":
			r.risk = what
		case kind == "tier":
			r.tier = what
		default:
			require.Fail(t, "not understood", part)
		}
	}
	require.False(t, r.tier != "" && !r.trusted, "only a gateway states a tier")
	var match Match
	k.slot++
	require.NoError(t, k.set.Match(r, k.slot, &match))
	var d limiter.Decision
	require.NoError(t, k.store.Take(t.Context(), match.Checks, &d))
	var refused, shadow []string
	for i := range d.Results {
		switch {
		case d.Results[i].Refuses(&match.Checks[i]):
			refused = append(refused, match.Rules[i].ID)
		case !d.Results[i].Allowed:
			shadow = append(shadow, match.Rules[i].ID)
		}
	}
	require.Equal(t, len(refused) == 0, d.Allowed)
	switch {
	case !d.Allowed:
		return "429 " + strings.Join(refused, " ")
	case stays:
		h := held{client: m[2]}
		for i := range match.Checks {
			if match.Checks[i].Limit.Algorithm == limiter.Concurrency {
				h.checks, h.decision.Results = append(h.checks, match.Checks[i]), append(h.decision.Results, d.Results[i])
			}
		}
		k.open = append(k.open, h)
	}
	if shadow != nil {
		return "pass, shadow " + strings.Join(shadow, " ")
	}
	return "pass"
}

// call sends a call of Envoy's rate limit service and returns its answer.
func (k *kitchen) call(t *testing.T, domain string, entry Pair, hits string) string {
	n, err := strconv.ParseInt(hits, 10, 64)
	require.NoError(t, err)
	var match Match
	require.NoError(t, k.set.MatchCall(domain, []Descriptor{{Pairs: []Pair{entry}, Hits: n}}, 1, &match))
	require.NotEmpty(t, match.Checks)
	var d limiter.Decision
	require.NoError(t, k.store.Take(t.Context(), match.Checks, &d))
	if d.Allowed {
		return "OK"
	}
	return "OVER_LIMIT"
}
