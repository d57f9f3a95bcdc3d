package exchange

import "time"

// delays between regions, there and back.
var delays = map[string]time.Duration{"a/b": 80 * time.Millisecond, "a/c": 140 * time.Millisecond, "b/c": 220 * time.Millisecond}

func (w *world) delay(a, b string) time.Duration {
	if d := delays[a+"/"+b] + delays[b+"/"+a]; d > 0 {
		return d / 2 * time.Duration(1+w.farther.Load())
	}
	return time.Millisecond / 2
}
