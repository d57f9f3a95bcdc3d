package keys

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Entry is one request of a log.
type Entry struct {
	At           time.Duration // since the first one
	Client       string
	Method, Path string
}

// Log is the requests of an access log, ordered by time. Several generators may share
// one: each request is returned once.
type Log struct {
	Entries []Entry
	Skipped int // lines that could not be read
	cursor  atomic.Int64
}

func (l *Log) next() (Entry, bool) {
	i := l.cursor.Add(1) - 1
	if i >= int64(len(l.Entries)) {
		return Entry{}, false
	}
	return l.Entries[i], true
}

// ParseLog reads an access log: lines of JSON, or of the Combined or Common Log Format,
// possibly mixed. Unreadable lines are counted; a log without a readable line is an
// error.
func ParseLog(text string) (*Log, error) {
	l := &Log{}
	var times []time.Time
	first := time.Time{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		read := combined
		if line[0] == '{' {
			read = jsonLine
		}
		e, at, ok := read(line)
		if !ok {
			l.Skipped++
			continue
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		l.Entries, times = append(l.Entries, e), append(times, at)
	}
	if len(l.Entries) == 0 {
		return nil, fmt.Errorf("log: no line could be read (%d skipped); give lines of JSON or of the Combined Log Format", l.Skipped)
	}
	for i := range l.Entries {
		l.Entries[i].At = times[i].Sub(first)
	}
	sortByTime(l.Entries)
	return l, nil
}

// [vhost] client ident user [time] "method target version" …
var combinedLine = regexp.MustCompile(`^(?:\S+ )?(\S+) \S+ \S+ \[([^\]]+)\] "([A-Z]+) (\S+)(?: HTTP/[0-9.]+)?"`)

func combined(line string) (Entry, time.Time, bool) {
	m := combinedLine.FindStringSubmatch(line)
	if m == nil {
		return Entry{}, time.Time{}, false
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
	return Entry{Client: m[1], Method: m[3], Path: m[4]}, at, err == nil
}

// The servers' names for these fields, the best first.
var (
	timeNames   = []string{"time", "StartUTC", "ts", "timestamp", "@timestamp", "msec", "time_iso8601", "time_local"}
	clientNames = []string{"client", "client_ip", "remote_ip", "remote_addr", "ClientHost"}
	targetNames = []string{"target", "request_uri", "uri", "path", "url", "RequestPath"}
	methodNames = []string{"method", "request_method", "RequestMethod"}
)

func jsonLine(line string) (e Entry, at time.Time, ok bool) {
	var fields map[string]any
	if json.Unmarshal([]byte(line), &fields) != nil {
		return e, at, false
	}
	text := func(names []string) string {
		for _, n := range names {
			if s, ok := fields[n].(string); ok && s != "" && s != "-" {
				return s
			}
		}
		return ""
	}
	for _, n := range timeNames {
		if at, ok = timeOf(fields[n]); ok {
			break
		}
	}
	e = Entry{Client: text(clientNames), Method: text(methodNames), Path: text(targetNames)}
	if e.Path == "" { // "GET /path HTTP/1.1"
		if parts := strings.Fields(text([]string{"request"})); len(parts) >= 2 {
			e.Method, e.Path = parts[0], parts[1]
		}
	}
	if e.Method == "" {
		e.Method = "GET"
	}
	return e, at, ok && e.Client != "" && e.Path != ""
}

// timeOf reads a time as text, or as seconds or milliseconds since 1970.
func timeOf(v any) (time.Time, bool) {
	var number float64
	switch v := v.(type) {
	case float64:
		number = v
	case string:
		for _, layout := range []string{time.RFC3339Nano, "02/Jan/2006:15:04:05 -0700"} {
			if at, err := time.Parse(layout, v); err == nil {
				return at, true
			}
		}
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return time.Time{}, false
		}
		number = n
	default:
		return time.Time{}, false
	}
	if math.IsNaN(number) || number <= 0 || number > 1e14 {
		return time.Time{}, false
	}
	if number > 1e11 {
		number /= 1000
	}
	return time.UnixMicro(int64(math.Round(number * 1e6))), true
}
