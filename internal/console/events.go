package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// mostListeners bounds the listeners of one feed.
	mostListeners = 64
	// again is the pause before a feed that ended begins again.
	again = 3 * time.Second
	// heartbeat is the interval between comments on an idle stream.
	heartbeat = 10 * time.Second
	// slow bounds the write of one event.
	slow = 10 * time.Second
)

// feed performs one operation that streams, or follows another source of events, for all its
// listeners. It runs only while it has listeners.
type feed struct {
	server    *Server
	operation Operation
	// source reports events until its context is done. nil: the events are the operation's
	// looks.
	source func(ctx context.Context, report func(event))

	mu        sync.Mutex
	listeners map[chan event]bool
	last      event // the first event of a new listener
	stop      context.CancelFunc
}

// event is one server-sent event.
type event struct {
	name string
	data []byte
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		refuse(w, http.StatusBadRequest, "this endpoint takes no parameters")
		return
	}
	news, ok := f.join()
	if !ok {
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("this feed already has %d listeners", mostListeners))
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
		// Where deadlines are unsupported, as in tests, writes are unbounded.
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

// join adds a listener and returns its channel. A slow listener misses outdated events.
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
			go f.source(ctx, func(e event) { f.publish(ctx, e) })
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

// run performs the operation until ctx is done, and again if it ends.
func (f *feed) run(ctx context.Context) {
	c := &Call{Operation: &f.operation, Note: func(string) {}, Look: func(found any) error {
		look, err := resultOf(found)
		if err == nil {
			f.publish(ctx, event{"look", encode(look)})
		}
		return err
	}}
	for {
		_, err := f.server.Do(ctx, c)
		if ctx.Err() != nil {
			return
		}
		reason, message := explain(err)
		f.server.Log.Warn("a feed ended", "operation", f.operation.ID, "reason", reason, "error", message)
		f.publish(ctx, event{"problem", encode(Problem{Type: "about:blank", Title: "Failed", Status: http.StatusInternalServerError, Detail: message, Command: c.command()})})
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func (f *feed) publish(ctx context.Context, e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // another run has begun, for other listeners
	}
	f.last = e
	for news := range f.listeners {
		select {
		case <-news: // drop an outdated event that was not read
		default:
		}
		news <- e
	}
}
