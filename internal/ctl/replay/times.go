package replay

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

// commonLogTime is the layout of the Common Log Format.
const commonLogTime = "02/Jan/2006:15:04:05 -0700"

const maxSeconds = 253402300799 // the end of the year 9999

// timeOf parses a time as logs write it, in Unix microseconds.
func (p *parser) timeOf(text []byte) (int64, error) {
	if len(text) > 0 && bytes.Equal(text, p.stamp) {
		return p.stamped, nil
	}
	t, ok := parseTime(text)
	if !ok {
		return 0, fmt.Errorf("time %s is neither RFC 3339, nor 10/Oct/2000:13:55:36 -0700, nor a Unix time since 1970", quote(text))
	}
	p.stamp, p.stamped = append(p.stamp[:0], text...), t
	return t, nil
}

func parseTime(text []byte) (int64, bool) {
	const longest = 64
	if len(text) > longest {
		return 0, false
	}
	s := string(text)
	for _, layout := range [...]string{time.RFC3339, commonLogTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UnixMicro(), t.Unix() >= 0 && t.Unix() <= maxSeconds
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0) {
		return 0, false
	}
	// Each unit's range ends where the next one's begins: seconds in the year 5138, which
	// in milliseconds is 1973.
	switch {
	case n < 1e11:
		n *= 1e6
	case n < 1e14:
		n *= 1e3
	case n < 1e17:
	default:
		n /= 1e3
	}
	return int64(math.Round(n)), n <= maxSeconds*1e6
}

// durationOf parses a duration in microseconds: a number of the unit, or text such as 12ms.
// It returns -1 if the text cannot be read, which is no reason to skip the request.
func durationOf(text []byte, unit time.Duration) int64 {
	if n, err := strconv.ParseFloat(string(text), 64); err == nil {
		if us := n * (float64(unit) / float64(time.Microsecond)); us >= 0 && us <= maxSeconds*1e6 {
			return int64(math.Round(us))
		}
	} else if d, err := time.ParseDuration(string(text)); err == nil && d >= 0 {
		return d.Microseconds()
	}
	return -1
}
