package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
)

// leastScript is the least that a script must do for an exact rolling window: a ring of 4-byte
// times for each key, with one limit for all keys, and only yes or no as the answer.
//
// KEYS  one per request
// ARGV  the limit, the window in milliseconds
const leastScript = `
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time, passed = redis.call('TIME'), {}
local now = (time[1] * 1000 + math.floor(time[2] / 1000)) % 4294967296
for i, key in ipairs(KEYS) do
  local ring, first = redis.call('GET', key) or '', 1
  while first < #ring and (now - struct.unpack('>I4', ring, first)) % 4294967296 >= window do first = first + 4 end
  passed[i] = 0
  if (#ring - first + 1) / 4 < limit then
    redis.call('SET', key, string.sub(ring, first) .. struct.pack('>I4', now), 'PX', window)
    passed[i] = 1
  end
end
return passed`

// least asks Redis by the cheapest means: one connection, one call at a time, which asks for all
// requests that arrived during the call before. It has no timeouts, and its first error is its
// last.
type least struct {
	r     *bufio.Reader
	w     *bufio.Writer
	begin string // of every call, up to its number of keys
	end   string

	mu      sync.Mutex
	arrived []*waiting
	some    chan struct{}
}

type waiting struct {
	key    []byte
	passes bool
	done   chan struct{}
}

var questions = sync.Pool{New: func() any { return &waiting{done: make(chan struct{}, 1)} }}

// startLeast connects to Redis. limit is the number of requests of a key that pass within a
// window of this many milliseconds.
func startLeast(ctx context.Context, addr string, limit, window int) (*least, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	sha, err := client.ScriptLoad(ctx, leastScript).Result()
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &least{
		r: bufio.NewReader(conn), w: bufio.NewWriter(conn), some: make(chan struct{}, 1),
		begin: fmt.Sprintf("\r\n$7\r\nEVALSHA\r\n$%d\r\n%s\r\n", len(sha), sha),
		end:   bulk(fmt.Sprint(limit)) + bulk(fmt.Sprint(window)),
	}
	go func() { panic(l.run()) }()
	return l, nil
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// passes reports whether a request with this key passes.
func (l *least) passes(key []byte) bool {
	q := questions.Get().(*waiting)
	defer questions.Put(q)
	q.key = append(q.key[:0], key...)
	l.mu.Lock()
	l.arrived = append(l.arrived, q)
	first := len(l.arrived) == 1
	l.mu.Unlock()
	if first {
		l.some <- struct{}{}
	}
	<-q.done
	return q.passes
}

func (l *least) run() error {
	var batch []*waiting
	for range l.some {
		l.mu.Lock()
		batch, l.arrived = l.arrived, batch[:0]
		l.mu.Unlock()
		fmt.Fprintf(l.w, "*%d%s%s", 5+len(batch), l.begin, bulk(fmt.Sprint(len(batch))))
		for _, q := range batch {
			fmt.Fprintf(l.w, "$%d\r\n", len(q.key))
			_, _ = l.w.Write(q.key)
			_, _ = l.w.WriteString("\r\n")
		}
		_, _ = l.w.WriteString(l.end)
		if err := l.w.Flush(); err != nil { // also the error of a write before
			return err
		}
		if line, err := l.r.ReadSlice('\n'); err != nil || line[0] != '*' {
			return fmt.Errorf("redis answers %q: %w", line, err)
		}
		for _, q := range batch {
			line, err := l.r.ReadSlice('\n')
			if err != nil {
				return err
			}
			q.passes = string(line) == ":1\r\n"
			q.done <- struct{}{}
		}
	}
	return nil
}

// limit makes a handler pass only the requests that Redis lets pass.
func (l *least) limit(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if !l.passes(ctx.Request.Header.Peek("X-User")) {
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
			return
		}
		next(ctx)
	}
}
