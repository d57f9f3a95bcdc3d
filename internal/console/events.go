package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// mostListeners bounds who follows one feed.
	mostListeners = 64
	// again is how long a feed waits before it runs a command again that has ended.
	again = 3 * time.Second
	// heartbeat is how often a silent stream says that it lives.
	heartbeat = 10 * time.Second
	// slow is how long one event may take to be written.
	slow = 10 * time.Second
)

// feed runs one command that repeats its answer, or follows something else, once for all who
// listen, while anybody does.
type feed struct {
	server    *Server
	operation Operation
	// source tells what is new until its context ends; nil: the operation's command does.
	source func(ctx context.Context, tell func(event))

	mu        sync.Mutex
	listeners map[chan event]bool
	last      event // what the next listener sees first
	stop      context.CancelFunc
}

// event is one answer of the command.
type event struct {
	name string
	data []byte
}

// ServeHTTP implements http.Handler.
func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		refuse(w, http.StatusBadRequest, "this takes nothing")
		return
	}
	news, ok := f.join()
	if !ok {
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d others follow this already", mostListeners))
		return
	}
	defer f.leave(news)
	w.Header().Set("Content-Type", "text/event-stream")
	to := http.NewResponseController(w)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	text := ": " + f.operation.command(nil) + "\n\n"
	for {
		if f.server.Access.Ended(personOf(r)) {
			return
		}
		// Without support for deadlines, as in tests, writes are not bounded.
		_ = to.SetWriteDeadline(time.Now().Add(slow))
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
		if err := to.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-f.server.ctx.Done():
			return
		case e := <-news:
			text = "event: " + e.name + "\ndata: " + string(e.data) + "\n\n"
		case <-tick.C:
			text = ": still here\n\n"
		}
	}
}

// join returns where news come. A listener that is slow misses what is outdated.
func (f *feed) join() (chan event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.listeners) == mostListeners {
		return nil, false
	}
	news := make(chan event, 1)
	if len(f.listeners) == 0 {
		f.listeners, f.last = map[chan event]bool{}, event{}
		var ctx context.Context
		ctx, f.stop = context.WithCancel(f.server.ctx)
		if f.source != nil {
			go f.source(ctx, func(e event) { f.tell(ctx, e) })
		} else {
			go f.run(ctx)
		}
	} else if f.last.data != nil {
		news <- f.last
	}
	f.listeners[news] = true
	return news, true
}

func (f *feed) leave(news chan event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.listeners, news); len(f.listeners) == 0 {
		f.stop()
	}
}

// run runs the command until ctx ends.
func (f *feed) run(ctx context.Context) {
	for {
		var errOut bytes.Buffer
		o := &f.operation
		status := f.server.Run(ctx, "", o.arguments(nil), strings.NewReader(""), &lines{to: func(line []byte) { f.tell(ctx, event{"look", line}) }}, &errOut)
		if ctx.Err() != nil {
			return
		}
		_, message, _ := notesOf(errOut.String())
		f.server.Log.Warn("a feed ended", "operation", o.ID, "exit_status", status, "error", message)
		f.tell(ctx, event{"problem", encode(Problem{Type: "about:blank", Title: "Failed", Status: http.StatusInternalServerError, Detail: message, Command: o.command(nil)})})
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func (f *feed) tell(ctx context.Context, e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // another run has begun, for other listeners
	}
	f.last = e
	for news := range f.listeners {
		select {
		case <-news: // what nobody has read is outdated
		default:
		}
		news <- e
	}
}

// lines calls to with each whole line.
type lines struct {
	to   func([]byte)
	part []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte{'\n'})
		if !whole {
			return len(p), nil
		}
		l.to(bytes.Clone(line))
		l.part = append([]byte(nil), rest...)
	}
}
