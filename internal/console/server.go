// Package console serves the web page and HTTP API of regionctl console. Each operation of the
// API does what a command of regionctl does, by the same function. This package does not depend on
// regions or rules.
package console

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/webpage"
)

// Config configures a console.
type Config struct {
	Do Do
	// Answers maps operation IDs to the types of their results, for the description.
	Answers map[string]reflect.Type
	// Access authenticates and authorizes. Histories name the person that it identifies.
	Access *access.Access
	// Origin is the console's address in browsers, as https://weir.example.com. "": http:// and
	// the listener's address.
	Origin  string
	Version string
	Log     *slog.Logger
}

// Server is a console.
type Server struct {
	Config
	origins map[string]string // of its pages, by accepted Host
	reads   *turns            // of operations that change nothing
	changes *turns            // of those that do
	uploads chan struct{}     // one for each running upload
	feeds   map[string]*feed
	rollout *rollout
	openapi []byte
	ctx     context.Context // ends the feeds
}

const (
	// readsAtOnce and changesAtOnce bound the concurrent operations; ofOne bounds those of one
	// person, of either kind.
	readsAtOnce, changesAtOnce, ofOne = 32, 16, 8
	// readTime bounds an operation that only reads; writeTime one that changes something and waits
	// for edges.
	readTime  = 30 * time.Second
	writeTime = 3 * time.Minute
	// bodyTime bounds the pauses of an upload.
	bodyTime = 30 * time.Second
	// reload is how often files are read again.
	reload = time.Minute
	// goodbye is how long requests in progress may take when the console stops.
	goodbye = 5 * time.Second
)

// New returns a console for addr. Its background work ends with ctx.
func New(ctx context.Context, c Config, addr netip.AddrPort) *Server {
	s := &Server{Config: c, ctx: ctx, reads: newTurns(readsAtOnce, ofOne), changes: newTurns(changesAtOnce, ofOne), uploads: make(chan struct{}, uploadsAtOnce), feeds: map[string]*feed{}, origins: originsOf(c.Origin, addr)}
	s.rollout = newRollout(s)
	for _, o := range Operations() {
		if o.Streams {
			s.feeds[o.ID] = &feed{server: s, operation: o}
		}
		if o.Streams && o.Rollout != "" {
			s.feeds[o.ID].source = s.rollout.follow
		}
	}
	s.openapi = describe(c)
	return s
}

// Loopback reports whether only programs of this host can connect.
func Loopback(addr netip.AddrPort) bool { return addr.Addr().Unmap().IsLoopback() }

// Run serves until ctx is done.
func Run(ctx context.Context, c Config, ln net.Listener) error {
	feeds, cancel := context.WithCancel(ctx)
	defer cancel()
	s := New(feeds, c, ln.Addr().(*net.TCPAddr).AddrPort())
	server := httpconns.New(s.Handler())
	// The feeds set a deadline for each event.
	server.WriteTimeout, server.ErrorLog = writeTime+time.Minute, slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(c.Access.Listen(ln)) }()
	tick := time.NewTicker(reload)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			if err := c.Access.Reload(); err != nil {
				c.Log.Error("reload", "error", err)
			}
		case <-ctx.Done():
		}
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	err := server.Shutdown(bounded) // the feeds have ended with ctx
	if err != nil {
		err = server.Close()
	}
	s.rollout.wait()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}

// Handler routes all requests.
func (s *Server) Handler() http.Handler {
	api := http.NewServeMux()
	for _, o := range Operations() {
		pattern := o.Method + " " + Prefix + o.Path
		api.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.perform(w, r, &o) })
	}
	api.HandleFunc("GET "+Prefix+"/session", s.session)
	api.HandleFunc("POST "+Prefix+"/logout", s.logout)
	api.HandleFunc("GET "+Prefix+"/tokens", s.tokens)
	api.HandleFunc("POST "+Prefix+"/tokens", s.createToken)
	api.HandleFunc("POST "+Prefix+"/tokens/{name}/revoke", s.revokeToken)
	api.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.openapi) // fails only if the client hung up
	})
	api.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "no operation "+r.Method+" "+clip(r.URL.Path)+"; "+Prefix+"/openapi.json lists them")
	})
	all := http.NewServeMux()
	all.Handle("/api/", s.known(api))
	all.HandleFunc("POST "+Prefix+"/open", s.open)
	all.Handle("/auth/", s.Access.Handler())
	all.Handle("/", pages()) // the same for everyone: they contain no data of the fleet
	return s.guard(all)
}

// Pages are the pages' paths. All serve one document, whose script chooses the page by its
// path.
var Pages = []string{"/", "/fleet", "/rules", "/client", "/shedder", "/behavior", "/global", "/dns", "/audit", "/tokens"}

func pages() http.Handler {
	files := map[string]string{"/done": "done.html"}
	for _, page := range Pages {
		files[page] = "index.html"
	}
	return webpage.Handler(files, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "no page "+clip(r.URL.Path)+"; there are "+strings.Join(Pages[1:], ", "))
	})
}

// perform runs an operation if the person may use it.
func (s *Server) perform(w http.ResponseWriter, r *http.Request, o *Operation) {
	switch {
	case !s.permit(w, r, o, nil):
	case o.Streams:
		s.feeds[o.ID].ServeHTTP(w, r)
	case o.Rollout != "":
		s.rollout.serve(w, r, o)
	default:
		s.do(w, r, o)
	}
}

// Session is what a page must know before it does anything.
type Session struct {
	User  string `json:"user"`
	Role  string `json:"role"`  // all their rights, as operator for shedder in eu-west; reader
	Token string `json:"token"` // for the header Weir-Console-Token of writes, and locally of all
	// Until is the end of the session, if the console began it.
	Until   time.Time `json:"until,omitzero"`
	Version string    `json:"version"`
	// Needs lists the operations that these rights permit nowhere, with the least role for each.
	Needs map[string]string `json:"needs"`
	// Regions lists the operations that they permit in some regions only.
	Regions map[string][]string `json:"regions"`
	// Tokens: this person can create tokens for machines.
	Tokens bool `json:"tokens"`
}

// logout ends a session that this console began.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if !mayWrite(w, r) {
		return
	}
	err := s.Access.End(w, r)
	if err == nil {
		s.Log.Info("logout", "user", personOf(r).Name)
	}
	s.replyTo(w, r, err, Goodbye{true})
}

// Opened answers the exchange of a local console's ticket.
type Opened struct {
	Token string `json:"token"`
}

// open exchanges the ticket of a local console's page for the token.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	token, err := s.Access.Exchange(r.Header.Get(access.HeaderTicket))
	if err == nil {
		s.Log.Info("opened", "peer", r.RemoteAddr)
	}
	s.replyTo(w, r, err, Opened{token})
}

// Goodbye answers a logout.
type Goodbye struct {
	Ended bool `json:"ended"`
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	person := personOf(r)
	needs, regions := map[string]string{}, map[string][]string{}
	for _, o := range Operations() {
		switch list, everywhere := o.permitted(person); {
		case everywhere:
		case len(list) == 0:
			needs[o.ID] = o.Least.String()
		default:
			regions[o.ID] = list
		}
	}
	reply(w, http.StatusOK, Session{person.Name, person.Rights.String(), person.Token, person.Until, s.Version, needs, regions, s.Access.IssuesTokens(person)})
}
