package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// answers starts a server that imitates a misbehaving Consul.
func answers(t testing.TB, config Config, handle http.HandlerFunc) *Client {
	t.Helper()
	return answersBounded(t, config, maxAnswer, handle)
}

func answersBounded(t testing.TB, config Config, most int64, handle http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	config.Addr = s.URL
	c, err := openBounded(config, most)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// kv answers with a key as Consul does.
func kv(w http.ResponseWriter, index, modified uint64, value []byte) {
	w.Header().Set("X-Consul-Index", fmt.Sprint(index))
	text, _ := json.Marshal([]map[string]any{{"Key": "weir/k", "Value": value, "ModifyIndex": modified}})
	_, _ = w.Write(text)
}

func TestFailuresAreNeverMissing(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"denied": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "Permission denied: token lacks permission", http.StatusForbidden)
			},
			"answered 403 (Permission denied: token lacks permission); name a file with a token in token_file",
		},
		"no leader": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "No cluster leader", 500) },
			"answered 500 (No cluster leader)",
		},
		"a page": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "<html>\n<p>"+strings.Repeat("sorry ", 1000), http.StatusBadGateway)
			},
			"answered 502 (<html> <p>sorry sorry",
		},
		"terminal control codes": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "a\x1b[2J\nb\u009b\u0085c\x7f\x00\xffd\re", http.StatusForbidden)
			},
			"answered 403 (a[2J b cd e); name",
		},
		"without a word":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "answered 503 (without a reason)"},
		"empty":             {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, "EOF"},
		"another server":    {http.NotFound, "answered 404 without X-Consul-Index; this is not Consul, correct addr"},
		"no JSON":           {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, "invalid character 'h'"},
		"cut short":         {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"Key":"weir/k","Val`) }, "unexpected EOF"},
		"connection closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"a redirect": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/v1/kv/other", http.StatusMovedPermanently)
			},
			"answered 301",
		},
		"without end": {
			func(w http.ResponseWriter, _ *http.Request) {
				spaces := []byte(strings.Repeat(" ", 1<<16))
				for {
					if _, err := w.Write(spaces); err != nil {
						return
					}
				}
			},
			"answer is longer than 1048576 bytes; is this Consul?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := answersBounded(t, Config{}, 1<<20, row.handle) // 16 MiB would take a busy machine longer than answerTimeout
			w := watch(t, c, "weir/k")
			err := w.failure(t)
			require.ErrorContains(t, err, "consul "+c.name[len("consul "):]+": read weir/k: ")
			require.ErrorContains(t, err, row.want)
			require.Less(t, len(err.Error()), 500)
			p, _, err := c.Documents("rules").Current(t.Context())
			require.ErrorContains(t, err, row.want)
			require.Nil(t, p)
			for len(w) > 0 {
				require.False(t, (<-w).told, "a failure is no content")
			}
		})
	}
}

func TestConsulAway(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
	c := open(t, Config{Addr: addr, Datacenter: "eu-west"})
	_, _, err := c.Documents("rules").Current(t.Context())
	require.EqualError(t, err, "consul "+addr+" (eu-west): read weir/rules/current: dial tcp "+addr+": connect: connection refused")
	_, err = c.Documents("rules").Put(t.Context(), []byte("x"))
	require.ErrorContains(t, err, "connection refused")
	_, err = c.Nodes(t.Context())
	require.EqualError(t, err, "consul "+addr+" (eu-west): read the nodes of weir-edge: dial tcp "+addr+": connect: connection refused")
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c := answers(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := c.Documents("rules").Current(short)
	require.ErrorContains(t, err, "read weir/rules/current: context deadline exceeded")

	var all sync.WaitGroup
	for what, ask := range map[string]func() error{
		"read":   func() error { _, _, err := c.Documents("rules").Current(t.Context()); return err },
		"list":   func() error { _, _, err := c.Documents("rules").History(t.Context(), 0); return err },
		"delete": func() error { return c.Remove(t.Context(), c.Documents("rules").CanaryKey("ams1")) },
		"nodes":  func() error { _, err := c.Nodes(t.Context()); return err },
	} {
		all.Go(func() {
			start := time.Now()
			if err := ask(); err == nil || !strings.Contains(err.Error(), "no answer within 5s") {
				t.Errorf("%s: %v", what, err)
			}
			promised(t, time.Since(start), 8*time.Second)
		})
	}
	all.Wait()
	require.Equal(t, 10*time.Second, query{}.bound())
	require.Equal(t, 20625*time.Millisecond, query{index: 1}.bound())
}

// Consul does not answer a missing key with an empty list and status 200, so that counts only
// if the leader confirms it.
func TestWatchDoubtsAnEmptyList(t *testing.T) {
	var asked atomic.Int32
	var consistent atomic.Int32
	c := answers(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, confirm := r.URL.Query()["consistent"]
		switch n := asked.Add(1); {
		case confirm:
			consistent.Add(1)
			kv(w, 12, 10, []byte("a"))
		case n == 1:
			kv(w, 10, 10, []byte("a"))
		case n == 2:
			w.Header().Set("X-Consul-Index", "11")
			fmt.Fprint(w, "[]")
		default:
			kv(w, 13, 13, []byte("b"))
		}
	})
	w := watch(t, c, "weir/k")
	require.Equal(t, "a", string(w.next(t).Value))
	require.Equal(t, "b", string(w.next(t).Value))
	require.EqualValues(t, 1, consistent.Load())
}

func TestWatchAsksAsItShould(t *testing.T) {
	queries := make(chan string, 100)
	c := answers(t, Config{Datacenter: "eu-west"}, func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.Path + "?" + r.URL.RawQuery
		if r.URL.Query().Has("index") {
			<-r.Context().Done()
			return
		}
		kv(w, 77, 70, nil)
	})
	w := watch(t, c, "weir/k")
	e := w.next(t)
	require.NotNil(t, e, "an empty value is an entry")
	require.Empty(t, e.Value)
	require.EqualValues(t, 70, e.ModifyIndex)
	require.Equal(t, "/v1/kv/weir/k?dc=eu-west", <-queries)
	require.Equal(t, "/v1/kv/weir/k?dc=eu-west&index=77&wait=10000ms", <-queries)
}

func TestWatchOfNoKeyFails(t *testing.T) {
	c := answers(t, Config{}, func(http.ResponseWriter, *http.Request) { t.Error("received a request") })
	w := watch(t, c, "weir/../secret")
	require.ErrorContains(t, w.failure(t), "not a key under weir/")
}

func TestTokenIsReadForEachRequest(t *testing.T) {
	file := write(t, "token", "first\n")
	seen := make(chan string, 100)
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Consul-Token")
		if r.Method == http.MethodGet {
			kv(w, 1, 1, nil)
		} else {
			http.Error(w, "ACL not found", http.StatusForbidden)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := open(t, Config{Addr: s.URL, TokenFile: file})

	_, _, err := c.get(t.Context(), "weir/k", query{}, patience)
	require.NoError(t, err)
	require.Equal(t, "first", <-seen)

	require.NoError(t, os.WriteFile(file, []byte("second-secret"), 0o600))
	err = c.Put(t.Context(), "weir/k", nil)
	require.Equal(t, "second-secret", <-seen)
	require.ErrorContains(t, err, "write weir/k: answered 403 (ACL not found); put a token whose policies allow this into "+file)
	require.NotContains(t, err.Error(), "second-secret")

	require.NoError(t, os.Remove(file))
	_, _, err = c.get(t.Context(), "weir/k", query{}, patience)
	require.ErrorContains(t, err, "read weir/k: token_file: open "+file+": no such file or directory")
	err = c.Put(t.Context(), "weir/k", []byte("x"))
	require.ErrorContains(t, err, "token_file: open "+file)
	require.Empty(t, seen, "no request goes out without the token")
	require.EqualValues(t, 1, connections.Load(), "connections are reused")
}

func TestEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "from-the-environment")
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", "/none/token")
	t.Setenv("CONSUL_NAMESPACE", "other")
	t.Setenv("CONSUL_PARTITION", "other")
	t.Setenv("CONSUL_HTTP_ADDR", "192.0.2.1:1")
	t.Setenv("CONSUL_HTTP_SSL", "true")
	t.Setenv("CONSUL_HTTP_AUTH", "user:password")
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	c := answers(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Consul-Index", "1")
		if r.Header.Get("X-Consul-Token")+r.Header.Get("Authorization")+r.URL.RawQuery != "" {
			http.Error(w, fmt.Sprint(r.Header, r.URL), 400)
			return
		}
		w.WriteHeader(404)
	})
	p, index, err := c.Documents("rules").Current(t.Context())
	require.NoError(t, err)
	require.Nil(t, p)
	require.Zero(t, index)
}

// A pointer that was written although the answer was lost is not reported as a failure; one
// that was not written is.
func TestPointLooksAfterALostAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		status int // of the write
		stored string
		want   string // failure
		reads  int32
	}{
		"written":     {status: 500, stored: "ours", reads: 1},
		"not written": {status: 500, stored: "theirs", want: "answered 500 (leadership lost); it may still take effect; check before you try again", reads: 1},
		"refused":     {status: 403, stored: "ours", want: "answered 403 (leadership lost); name a file with a token in token_file"},
	} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Int32
			var entry atomic.Value
			c := answers(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					var ops api.TxnOps
					_ = json.NewDecoder(r.Body).Decode(&ops)
					entry.Store(ops[1].KV.Value)
					http.Error(w, "leadership lost", row.status)
					return
				}
				reads.Add(1)
				if _, confirm := r.URL.Query()["consistent"]; !confirm {
					http.Error(w, "ask the leader", 400)
				} else if row.stored == "ours" {
					kv(w, 9, 9, entry.Load().([]byte))
				} else {
					kv(w, 9, 9, []byte("{}"))
				}
			})
			ok, err := c.Documents("rules").ContinuingFrom(&End{}).Activate(t.Context(), Change{Pointer: NewPointer([]byte("x"), "ana", time.Now())}, 8)
			if row.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.want)
			}
			require.Equal(t, row.want == "", ok)
			require.Equal(t, row.reads, reads.Load())
		})
	}
}

func TestNamesCannotLeaveThePrefix(t *testing.T) {
	c := answers(t, Config{}, func(_ http.ResponseWriter, r *http.Request) { t.Error("received a request for", r.URL) })
	ctx := t.Context()
	p := NewPointer([]byte("x"), "ana", time.Now())
	later := time.Now().Add(time.Hour)
	canary := p
	canary.ExpiresAt = &later
	for _, name := range []string{"", "../../other", "a/b", "A", "a b", "..", "x?recurse"} {
		want := "must be 1 to 64 lower-case letters, digits or -"
		d := c.Documents("rules")
		_, err := d.SetCanary(ctx, name, canary, 0)
		require.ErrorContains(t, err, "pop: "+want)
		_, err = d.DeleteCanary(ctx, name, 1)
		require.ErrorContains(t, err, "pop: "+want)
		_, err = d.WithdrawCanary(ctx, Change{Pointer: canary, Canary: name}, 1)
		require.ErrorContains(t, err, "pop: "+want)
		_, _, err = d.Canary(ctx, name)
		require.ErrorContains(t, err, "pop: "+want)

		d = c.Documents(name)
		_, _, err = d.Current(ctx)
		require.ErrorContains(t, err, "kind of document: "+want)
		_, err = d.Load(ctx, p)
		require.ErrorContains(t, err, "kind of document: "+want)
		_, err = d.Put(ctx, []byte("x"))
		require.ErrorContains(t, err, "kind of document: "+want)
		_, err = d.Activate(ctx, Change{Pointer: p}, 0)
		require.ErrorContains(t, err, "kind of document: "+want)
		_, err = d.Versions(ctx, "")
		require.ErrorContains(t, err, "kind of document: "+want)
		_, _, err = d.History(ctx, 0)
		require.ErrorContains(t, err, "kind of document: "+want)
		_, _, err = d.Canaries(ctx)
		require.ErrorContains(t, err, "kind of document: "+want)
		require.ErrorContains(t, d.Record(ctx, Change{Pointer: p}), "kind of document: "+want)
	}
	bad := p
	bad.Version = "../../secret"
	d := c.Documents("rules")
	_, err := d.Load(ctx, bad)
	require.ErrorContains(t, err, "version: must be 12 hex digits")
	_, err = d.Activate(ctx, Change{Pointer: bad}, 0)
	require.ErrorContains(t, err, "version: must be 12 hex digits")
	require.ErrorContains(t, d.Record(ctx, Change{Pointer: bad}), "version: must be 12 hex digits")
	require.ErrorContains(t, d.Record(ctx, Change{Pointer: p, Replaced: "x"}), `replaced: must be a version (got "x")`)
	_, err = d.Activate(ctx, Change{Pointer: canary}, 0)
	require.ErrorContains(t, err, "expires_at: is for canaries; leave it out")
	_, err = d.SetCanary(ctx, "ams1", p, 0)
	require.ErrorContains(t, err, "expires_at: must be set")
	_, err = d.Put(ctx, nil)
	require.EqualError(t, err, "document is empty")
}

func TestAnAddressThatIsNoConsul(t *testing.T) {
	for name, says := range map[string]string{"ends": "", "speaks another protocol": "-ERR unknown command\r\n"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Write([]byte(says)) // the client may be gone
					_ = c.Close()
				}
			}()
			_, err = open(t, Config{Addr: l.Addr().String()}).Nodes(t.Context())
			require.ErrorContains(t, err, "is this address Consul's HTTP port?")
		})
	}
}
