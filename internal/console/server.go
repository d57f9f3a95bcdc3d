// Package console serves the web page and the HTTP API of regionctl console. Each operation
// of the API runs a command of regionctl, so a page, a script and an operator do the same by
// the same code; this package knows no region and no rule.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"time"
)

// Regionctl runs one command of regionctl, and returns its exit status.
type Regionctl func(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) (status int)

// Config is how a console is set up.
type Config struct {
	Run Regionctl
	// Answers are the types of what the operations answer, by ID: for the description.
	Answers map[string]reflect.Type
	User    string // whom the histories name
	Version string
	Log     *slog.Logger
}

// Server is a console.
type Server struct {
	Config
	hosts   map[string]bool // by which it may be addressed
	token   string          // of writes, for the life of this process
	places  chan struct{}   // of commands at work
	feeds   map[string]*feed
	openapi []byte
	ctx     context.Context // ends the feeds
}

const (
	// atOnce is how many commands run at the same time; each asks every region.
	atOnce = 8
	// placeWait is how long a request waits for its turn.
	placeWait = 5 * time.Second
	// readTime bounds a command that only looks, writeTime one that changes something and
	// waits for the edges.
	readTime  = 30 * time.Second
	writeTime = 3 * time.Minute
	// bodyTime bounds the reading of a body.
	bodyTime = 30 * time.Second
	// goodbye is how long requests in progress have once the console is told to stop.
	goodbye = 5 * time.Second
)

// New returns a console that is to be reached at addr. ctx ends what it does on its own.
func New(ctx context.Context, c Config, addr netip.AddrPort) *Server {
	s := &Server{Config: c, ctx: ctx, token: rand.Text(), places: make(chan struct{}, atOnce), feeds: map[string]*feed{}, hosts: hostsOf(addr)}
	for _, o := range Operations() {
		if o.Streams {
			s.feeds[o.ID] = &feed{server: s, operation: o}
		}
	}
	s.openapi = describe(c)
	return s
}

// Loopback reports whether only programs of this host can connect.
func Loopback(addr netip.AddrPort) bool { return addr.Addr().Unmap().IsLoopback() }

// Run serves until ctx ends.
func Run(ctx context.Context, c Config, ln net.Listener) error {
	feeds, cancel := context.WithCancel(ctx)
	defer cancel()
	s := New(feeds, c, ln.Addr().(*net.TCPAddr).AddrPort())
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		// The feeds set a deadline for each event; a ReadTimeout would end them.
		WriteTimeout: writeTime + time.Minute,
		ErrorLog:     slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	err := server.Shutdown(bounded) // the feeds have ended with ctx
	if err != nil {
		err = server.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, o := range Operations() {
		pattern := o.Method + " " + Prefix + o.Path
		if o.Streams {
			mux.Handle(pattern, s.feeds[o.ID])
		} else {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.do(w, r, &o) })
		}
	}
	mux.HandleFunc("GET "+Prefix+"/session", s.session)
	mux.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.openapi) // the client hung up
	})
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "no operation "+r.Method+" "+r.URL.Path+"; "+Prefix+"/openapi.json lists them")
	})
	mux.Handle("/", assets())
	return s.guard(mux)
}

// Session is what a page must know before it does anything.
type Session struct {
	User    string `json:"user"`
	Role    string `json:"role"`
	Token   string `json:"token"` // for the header Weir-Console-Token of writes
	Version string `json:"version"`
}

func (s *Server) session(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, Session{s.User, "operator", s.token, s.Version})
}
