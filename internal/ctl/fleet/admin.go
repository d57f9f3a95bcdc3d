// Package fleet queries the regions of a fleet and their edges: what each runs, counts and
// would decide.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// maxAdminAnswer bounds one answer. The counters of ten thousand rules take megabytes of
// /metrics.
const maxAdminAnswer = 64 << 20

// Admin asks the admin listeners of a region's edges. Any node may register any address, so it
// asks only those in admin_networks of the fleet file, if that has them.
type Admin struct {
	client    *http.Client
	transport *http.Transport
	tokenFile string
	bounded   bool // the fleet file has admin_networks
	trusts    bool // it names who signs the edges' certificates
	insecure  bool
}

// NewAdmin returns a client of the admin listeners of r. insecure lets the token travel
// over plain HTTP; timeout bounds an answer.
func NewAdmin(r *region.FleetRegion, insecure bool, timeout time.Duration) (*Admin, error) {
	secure, err := r.AdminTLS.Load()
	if err != nil {
		return nil, fmt.Errorf("admin_tls.%w", err)
	}
	dialer := &net.Dialer{Timeout: timeout}
	if len(r.AdminNetworks) > 0 {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address) // of the name that was looked up
			if err == nil && !slices.ContainsFunc(r.AdminNetworks, func(n netip.Prefix) bool { return n.Contains(at.Addr().Unmap().WithZone("")) }) {
				err = errors.New("is not in admin_networks of the fleet file")
			}
			return err
		}
	}
	// No proxy: the token is for the edge alone.
	transport := &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, TLSClientConfig: secure,
	}
	if r.Consul.Dial != nil {
		transport.DialContext = r.Consul.Dial
	}
	return &Admin{
		client: &http.Client{
			Transport: transport, Timeout: timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		transport: transport, tokenFile: r.AdminTokenFile, insecure: insecure,
		bounded: len(r.AdminNetworks) > 0, trusts: r.AdminTLS != nil && r.AdminTLS.CAFile != "",
	}, nil
}

func (a *Admin) Close() { a.transport.CloseIdleConnections() }

// Get decodes a node's answer into answer.
func (a *Admin) Get(ctx context.Context, n consul.Node, path string, query url.Values, answer any) error {
	return a.do(ctx, http.MethodGet, n, path, query, decodeJSON(answer))
}

// Get is Admin.Get for an answer of type T.
func Get[T any](ctx context.Context, a *Admin, n consul.Node, path string, query url.Values) (*T, error) {
	answer := new(T)
	return answer, a.Get(ctx, n, path, query, answer)
}

func (a *Admin) Explain(ctx context.Context, n consul.Node, request url.Values) (*adminapi.Explanation, error) {
	return Get[adminapi.Explanation](ctx, a, n, adminapi.PathExplain, request)
}

// Reset forgets a counter and returns the keys that it had.
func (a *Admin) Reset(ctx context.Context, n consul.Node, request url.Values) ([]string, error) {
	var r adminapi.Reset
	err := a.do(ctx, http.MethodDelete, n, adminapi.PathLimits, request, decodeJSON(&r))
	return r.Reset, err
}

// Recent reads a node's recent requests, one JSON line each, and what the node says about
// them.
func (a *Admin) Recent(ctx context.Context, n consul.Node, query url.Values) (lines []byte, about http.Header, err error) {
	err = a.do(ctx, http.MethodGet, n, adminapi.PathRecent, query, func(body io.Reader) (err error) {
		lines, err = io.ReadAll(body)
		return err
	}, func(h http.Header) { about = h })
	return lines, about, err
}

// Prove makes n accept the documents that the node itself says it accepts, at an address or by a
// certificate that the fleet file vouches for: anyone with an edge's token can register nodes.
func (a *Admin) Prove(ctx context.Context, n *consul.Node) error {
	if !a.bounded && !(a.trusts && strings.HasPrefix(n.Admin, "https://")) {
		return errors.New("the fleet file has no admin_networks for this region, nor admin_tls.ca_file for an edge with TLS")
	}
	var answer adminapi.Rules
	err := a.Get(ctx, *n, adminapi.PathRules, url.Values{"brief": {""}}, &answer)
	switch {
	case err != nil:
		return err
	case answer.Registered == nil:
		return errors.New("its release does not repeat what it registered")
	}
	n.Accepts(answer.Registered)
	return nil
}

func decodeJSON(to any) func(io.Reader) error {
	return func(body io.Reader) error {
		if err := json.NewDecoder(body).Decode(to); err != nil {
			return fmt.Errorf("is not an edge's answer: %w", err)
		}
		return nil
	}
}

// StatusError is an answer that refuses a request.
type StatusError struct {
	Code   int
	detail string
}

func (e *StatusError) Error() string { return fmt.Sprintf("answered %d: %s", e.Code, e.detail) }

// NodeError is why a node could not be asked.
type NodeError struct {
	Node, Admin string
	Err         error
}

func (e *NodeError) Error() string {
	return fmt.Sprintf("node %s: admin %s: %v", term.Printable(e.Node), term.Printable(e.Admin), e.Err)
}

func (e *NodeError) Unwrap() error { return e.Err }

// Reason returns why a node could not be asked, without its name.
func Reason(err error) string {
	var e *NodeError
	if errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}

func (a *Admin) do(ctx context.Context, method string, n consul.Node, path string, query url.Values, read func(io.Reader) error, heads ...func(http.Header)) error {
	if err := a.ask(ctx, method, n, path, query, read, heads...); err != nil {
		return &NodeError{n.ID, n.Admin, err}
	}
	return nil
}

func (a *Admin) ask(ctx context.Context, method string, n consul.Node, path string, query url.Values, read func(io.Reader) error, heads ...func(http.Header)) error {
	target, err := consul.AdminURL(n.Admin)
	if err != nil {
		return err
	}
	target.Path, target.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return err
	}
	if path == adminapi.PathMetrics {
		req.Header.Set("Accept", acceptMetrics)
	}
	if a.tokenFile != "" {
		switch {
		case target.Scheme == "https" && !a.trusts:
			return errors.New("gets no admin token, because any public authority could vouch for it; name that of the edges in admin_tls.ca_file of the fleet file")
		case target.Scheme == "http" && !a.insecure && !isLoopback(target.Hostname()):
			return errors.New("is not on this host, and the admin token would travel over plain HTTP; set listen.admin_tls of the edge, or pass --insecure-admin on a network you trust")
		}
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return fmt.Errorf("admin_token_file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := a.client.Do(req)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) {
			err = outer.Err
			if outer.Timeout() {
				err = errors.New("no answer in time")
			}
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Op != "remote error" {
			err = op.Err // without the address, which callers know
		}
		return err
	}
	defer resp.Body.Close()
	// An address such as 127.0.0.1 leads to a different node on each machine.
	switch answering := resp.Header.Get(adminapi.HeaderNode); answering {
	case n.ID:
	case "":
		return errors.New("the answer does not say which node it is from; is this an edge?")
	default:
		return fmt.Errorf("answered by node %s, not %s; its admin address is not reachable from here", term.Printable(answering), term.Printable(n.ID))
	}
	body := http.MaxBytesReader(nil, resp.Body, maxAdminAnswer)
	if resp.StatusCode != http.StatusOK {
		return &StatusError{resp.StatusCode, a.detail(resp.StatusCode, body)}
	}
	for _, look := range heads {
		look(resp.Header)
	}
	return read(body)
}

// detail returns the reason and the remedy.
func (a *Admin) detail(code int, body io.Reader) string {
	switch {
	case code == http.StatusUnauthorized && a.tokenFile == "":
		return "it requires a token; name a file with it as admin_token_file in the fleet file"
	case code == http.StatusUnauthorized:
		return "wrong token; put the one in the edge's listen.admin_token_file into " + a.tokenFile
	}
	var problem adminapi.Problem
	text, _ := io.ReadAll(io.LimitReader(body, 4096)) // as much as arrives
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		return term.Printable(problem.Detail)
	}
	return term.Clip(term.Printable(strings.TrimSpace(string(text))), 200)
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "localhost"
}
