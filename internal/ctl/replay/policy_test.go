package replay

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func shipped(t testing.TB) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(policy.Example))
	require.NoError(t, err)
	return p
}

// A replay of either format finds a client that guesses passwords, and the route, but not one
// that browses.
func TestPolicyOfALog(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	write := func(line func(at time.Time, client, path string, status int) string) *bytes.Buffer {
		var log bytes.Buffer
		for i := range 200 {
			now := at.Add(time.Duration(i) * 100 * time.Millisecond)
			log.WriteString(line(now, "2001:db8:0:1::7", "/login", 401))
			log.WriteString(line(now, fmt.Sprintf("198.51.100.%d", i), "/login", 401))
			if i%5 == 0 {
				log.WriteString(line(now, "203.0.113.7", fmt.Sprintf("/page/%d", i), 200))
			}
		}
		return &log
	}
	for name, line := range map[string]func(time.Time, string, string, int) string{
		"json": func(at time.Time, client, path string, status int) string {
			return fmt.Sprintf(`{"time":%q,"client":%q,"path":%q,"status":%d,"user_agent":"x"}`+"\n", at.Format(time.RFC3339Nano), client, path, status)
		},
		"combined": func(at time.Time, client, path string, status int) string {
			return fmt.Sprintf("%s - - [%s] \"POST %s HTTP/1.1\" %d 12 \"-\" \"x\"\n", client, at.Format("02/Jan/2006:15:04:05 -0700"), path, status)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := RunPolicy(t.Context(), shipped(t), Config{Top: 3}, write(line))
			require.NoError(t, err)
			require.EqualValues(t, 440, r.Requests)
			require.Equal(t, 202, r.Clients)
			require.Len(t, r.Subjects, 2)
			guesser := r.Subjects[0]
			require.Equal(t, []string{"client", "2001:db8:0:1::/64", "blocked"}, []string{guesser.Kind, guesser.Subject, guesser.Tier})
			require.Equal(t, "failures", guesser.Signals[0].Signal)
			require.Equal(t, 40.0, guesser.Signals[0].Threshold)
			require.Equal(t, []string{"route", "/login", "suspicious"}, []string{r.Subjects[1].Kind, r.Subjects[1].Subject, r.Subjects[1].Tier})
			require.Equal(t, []int{0, 0, 1}, []int{r.Tiers[0].Clients, r.Tiers[1].Clients, r.Tiers[2].Clients})
			require.Greater(t, r.Tiers[2].Requests, int64(100))
			require.Equal(t, []string{"no line has the header Accept, so presence was evaluated without it; log it", "a log does not contain Retry-After, so denials were not evaluated"}, r.Notes)
		})
	}

	// The clock of an unsorted log never runs backward, and the notes say so.
	line := func(second int) string {
		return fmt.Sprintf("203.0.113.7 - - [20/Nov/2026:10:00:%02d +0000] \"GET / HTTP/1.1\" 401 12 \"-\" \"x\"\n", second)
	}
	r, err := RunPolicy(t.Context(), shipped(t), Config{}, bytes.NewBufferString(strings.Repeat(line(50)+line(10), 100)))
	require.NoError(t, err)
	require.EqualValues(t, 100, r.OutOfOrder)
	require.Equal(t, at.Add(10*time.Second), r.From)
	require.Equal(t, at.Add(50*time.Second), r.Subjects[0].At)
	require.Contains(t, r.Notes[0], "50.00% of the requests are older than one before them (line 2 has 2026-11-20T10:00:10Z, line 1 before it")

	_, err = RunPolicy(t.Context(), shipped(t), Config{}, bytes.NewBufferString("x\n"))
	require.ErrorContains(t, err, "no line can be read; the first: line 1 ")
	_, err = RunPolicy(t.Context(), shipped(t), Config{}, &bytes.Buffer{})
	require.EqualError(t, err, "is empty")
}

func BenchmarkPolicy(b *testing.B) {
	p := shipped(b)
	for b.Loop() {
		r, err := RunPolicy(b.Context(), p, Config{}, newTraffic(largeLines, 20_000, asCombined))
		require.NoError(b, err)
		require.EqualValues(b, largeLines, r.Requests)
	}
	b.ReportMetric(float64(b.N)*largeLines/b.Elapsed().Seconds(), "lines/s")
}

// A policy that identifies clients by a header works on a log with that header, and reports its
// absence.
func TestSubjectsOfALog(t *testing.T) {
	p, err := policy.Parse([]byte("subject: [header:X-Api-Key]"))
	require.NoError(t, err)
	write := func(header string) *bytes.Buffer {
		var log bytes.Buffer
		for i := range 200 {
			at := time.Date(2026, 11, 20, 10, 0, 0, i*1e8, time.UTC).Format(time.RFC3339Nano)
			fmt.Fprintf(&log, `{"time":%q,"client":"203.0.113.7","path":"/login","status":%d,"headers":{%q:%q}}`+"\n", at, []int{401, 200}[i%2], header, []string{"bad", "good"}[i%2])
		}
		return &log
	}
	r, err := RunPolicy(t.Context(), p, Config{}, write("X-Api-Key"))
	require.NoError(t, err)
	require.Equal(t, 2, r.Clients)
	require.Equal(t, rules.HashOf("header:X-Api-Key", "bad"), r.Subjects[0].Subject)
	require.NotContains(t, strings.Join(r.Notes, "\n"), "X-Api-Key")

	r, err = RunPolicy(t.Context(), p, Config{}, write("X-Other"))
	require.NoError(t, err)
	require.Equal(t, 1, r.Clients)
	require.Contains(t, r.Notes, "no line has header:X-Api-Key, so clients were told apart by their addresses; log it")
}
