package ctl

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
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region"
)

// maxAdminAnswer bounds what is read of one answer. The counters of ten thousand rules
// take megabytes of /metrics.
const maxAdminAnswer = 64 << 20

// admin asks the admin listeners of a region's edges.
type admin struct {
	client    *http.Client
	transport *http.Transport
	tokenFile string
	insecure  bool
}

func newAdmin(tokenFile string, insecure bool, timeout time.Duration) *admin {
	// No proxy: the token is for the edge alone.
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: timeout}).DialContext, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
	}
	return &admin{
		client: &http.Client{
			Transport: transport, Timeout: timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		transport: transport, tokenFile: tokenFile, insecure: insecure,
	}
}

func (a *admin) close() { a.transport.CloseIdleConnections() }

// nodeRuns is what a node says of the rules, or of the settings of the shedder, that it
// runs.
type nodeRuns struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Source  string    `json:"source"`
	Canary  bool      `json:"canary"`
	Refused *refusal  `json:"refused"`
	Consul  *struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	} `json:"consul"`
	// Of the shedder: the settings, and how things stand by upstream group.
	Document *struct {
		Enabled bool `json:"enabled"`
	} `json:"document"`
	Upstreams []shedding.UpstreamStatus `json:"upstreams"`
}

// refusal is a document that a node did not take.
type refusal struct {
	Version string    `json:"version"`
	At      time.Time `json:"at,omitzero"`
	Errors  []string  `json:"errors,omitempty"`
}

func (a *admin) runs(ctx context.Context, k *kind, n region.Node) (*nodeRuns, error) {
	var r nodeRuns
	return &r, a.do(ctx, http.MethodGet, n, k.path, k.query, decodeJSON(&r))
}

// explanation is what a node answers to /v1/explain.
type explanation struct {
	Client       string          `json:"client"`
	RulesVersion string          `json:"rules_version"`
	Verdict      string          `json:"verdict"`
	RetryAfter   string          `json:"retry_after,omitempty"`
	Rules        []explainedRule `json:"rules"`
}

type explainedRule struct {
	Rule       string `json:"rule"`
	Mode       string `json:"mode"`
	Algorithm  string `json:"algorithm"`
	Key        string `json:"key"`
	Cost       int64  `json:"cost"`
	Limit      int64  `json:"limit"`
	Window     string `json:"window"`
	Allowed    bool   `json:"allowed"`
	Remaining  int64  `json:"remaining"`
	RetryAfter string `json:"retry_after,omitempty"`
	ResetAfter string `json:"reset_after"`
	Source     string `json:"source"`
}

func (a *admin) explain(ctx context.Context, n region.Node, request url.Values) (*explanation, error) {
	var e explanation
	return &e, a.do(ctx, http.MethodGet, n, "/v1/explain", request, decodeJSON(&e))
}

// reset forgets a counter and returns the keys that it had.
func (a *admin) reset(ctx context.Context, n region.Node, request url.Values) ([]string, error) {
	var r struct {
		Reset []string `json:"reset"`
	}
	err := a.do(ctx, http.MethodDelete, n, "/v1/limits", request, decodeJSON(&r))
	return r.Reset, err
}

func decodeJSON(to any) func(io.Reader) error {
	return func(body io.Reader) error {
		if err := json.NewDecoder(body).Decode(to); err != nil {
			return fmt.Errorf("is not what an edge answers: %w", err)
		}
		return nil
	}
}

// statusError is an answer that refuses a request.
type statusError struct {
	code   int
	detail string
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d: %s", e.code, e.detail) }

func (a *admin) do(ctx context.Context, method string, n region.Node, path string, query url.Values, read func(io.Reader) error) error {
	if err := a.ask(ctx, method, n, path, query, read); err != nil {
		return fmt.Errorf("node %s: admin %s: %w", printable(n.ID), printable(n.Admin), err)
	}
	return nil
}

func (a *admin) ask(ctx context.Context, method string, n region.Node, path string, query url.Values, read func(io.Reader) error) error {
	host, _, err := net.SplitHostPort(n.Admin)
	if err != nil {
		return errors.New("is no host:port; the node registered none")
	}
	target := url.URL{Scheme: "http", Host: n.Admin, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return err
	}
	if a.tokenFile != "" {
		if !a.insecure && !isLoopback(host) {
			return errors.New("is not on this host, and the admin token would travel over plain HTTP; use a host beside the edges, or --insecure-admin on a network you trust")
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
		return err
	}
	defer resp.Body.Close()
	// An address such as 127.0.0.1 leads to another node on each machine.
	switch answering := resp.Header.Get("Weir-Node"); answering {
	case n.ID:
	case "":
		return errors.New("the answer does not say which node it is from; is this an edge?")
	default:
		return fmt.Errorf("answered by node %s, not %s; its admin address is not reachable from here", printable(answering), printable(n.ID))
	}
	body := http.MaxBytesReader(nil, resp.Body, maxAdminAnswer)
	if resp.StatusCode != http.StatusOK {
		return &statusError{resp.StatusCode, a.detail(resp.StatusCode, body)}
	}
	return read(body)
}

// detail says why, and what to do.
func (a *admin) detail(code int, body io.Reader) string {
	switch {
	case code == http.StatusUnauthorized && a.tokenFile == "":
		return "it wants a token; name a file with it as admin_token_file in the fleet file"
	case code == http.StatusUnauthorized:
		return "wrong token; put that of the edge's listen.admin_token_file into " + a.tokenFile
	}
	var problem struct {
		Detail string `json:"detail"`
	}
	text, _ := io.ReadAll(io.LimitReader(body, 4096)) // what there is of it
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		return printable(problem.Detail)
	}
	return clip(printable(strings.TrimSpace(string(text))), 200)
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "localhost"
}
