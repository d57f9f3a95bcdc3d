package ctl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Conversations with regionctl, each with its own keys in two shared Consuls. The scripts'
// commands are the methods of script.
func TestScripts(t *testing.T) {
	t.Parallel()
	names := []string{"eu-west", "us-east"}
	consuls := map[string]*testenv.Consul{}
	for _, name := range names {
		consuls[name] = testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: name})
	}
	files, err := filepath.Glob("testdata/fleet/*.txtar")
	require.NoError(t, err)
	for i, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := &script{t: t, names: names, consuls: consuls, prefix: fmt.Sprintf("script%d", i), away: map[string]string{}, sessions: map[string]*session{}, edges: map[string]*stub{}, releases: map[string]func(){}}
			testscript.Run(t, testscript.Params{Files: []string{file}, RequireUniqueNames: true, Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"regionctl": s.command(s.regionctl), "terminal": s.command(s.terminal), "status": s.command(s.status), "begin": s.command(s.begin), "sees": s.command(s.sees),
				"answer": s.command(s.answer), "interrupt": s.command(s.interrupt), "end": s.command(s.end), "edge": s.command(s.edge),
				"runs": s.command(s.runs), "sheds": s.command(s.sheds), "judges": s.command(s.judges), "publish": s.command(s.publish), "holds": s.command(s.holds),
				"version": s.command(s.version), "put": s.command(s.put), "delete": s.command(s.delete), "json": s.command(s.json), "equal": s.command(s.equal),
				"address": s.command(s.address), "unchanged": s.command(s.unchanged), "active": s.command(s.active), "lasts": s.command(s.lasts), "canary": s.command(s.canary), "try": s.command(s.try),
				"duel": s.command(s.duel), "prints": s.command(s.prints), "complete": s.command(s.complete), "asked": s.command(s.asked), "forget": s.command(s.forget),
				"patient": s.command(s.patient), "held": s.command(s.held), "stopped": s.command(s.stopped), "let": s.command(s.let), "locked": s.command(s.locked), "lock": s.command(s.lock), "unlock": s.command(s.unlock),
				"until": s.command(s.until), "expired": s.command(s.expired), "baked": s.command(s.baked),
			}})
		})
	}
}

// script is one conversation. Its methods are the commands.
type script struct {
	testing.TB // of the running command: it fails the script
	t          *testing.T
	ts         *testscript.TestScript

	names    []string
	consuls  map[string]*testenv.Consul
	prefix   string
	away     map[string]string // addresses that replace the Consuls' own
	fleet    *testFleet
	sessions map[string]*session
	edges    map[string]*stub
	releases map[string]func() // of runs and locks that are held
}

func (s *script) Errorf(format string, args ...any) { s.ts.Logf(format, args...) }
func (s *script) FailNow()                          { s.ts.Fatalf("failed") }
func (s *script) Helper()                           {}

func (s *script) command(do func([]string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command takes no !")
		}
		if s.TB, s.ts = s.t, ts; s.fleet == nil {
			s.fleet = newFleet(s, s.prefix, s.names, s.consuls)
		}
		do(args)
	}
}

// args returns regionctl's arguments, with paths to the script's files.
func (s *script) args(list []string) []string {
	out := make([]string, len(list))
	for i, arg := range list {
		if out[i] = arg; strings.Contains(arg, ".") {
			if _, err := os.Stat(s.ts.MkAbs(arg)); err == nil {
				out[i] = s.ts.MkAbs(arg)
			}
		}
	}
	return out
}

// show makes a result available to stdout, stderr and json.
func (s *script) show(r result) {
	_, _ = s.ts.Stdout().Write([]byte(r.out))
	_, _ = s.ts.Stderr().Write([]byte(r.errOut))
}

// regionctl ARGUMENT… must succeed.
func (s *script) regionctl(args []string) { s.status(append([]string{"0", "regionctl"}, args...)) }

// terminal regionctl ARGUMENT… writes to a terminal, which would obey control characters.
func (s *script) terminal(args []string) {
	var out, errOut buffer
	p := s.fleet.program(strings.NewReader(""), &out, &errOut)
	p.OutLive = true
	require.NoError(s, run(s.Context(), p, append(s.args(args[1:]), "--fleet", s.fleet.file)))
	s.show(result{out: out.String(), errOut: errOut.String()})
}

// complete WORD… shows the shell's completions of the last word.
func (s *script) complete(words []string) {
	var out, errOut buffer
	require.NoError(s, run(s.Context(), s.fleet.program(strings.NewReader(""), &out, &errOut), append([]string{"__complete", "--fleet", s.fleet.file}, words...)))
	s.show(result{out: out.String(), errOut: errOut.String()})
}

// status N regionctl ARGUMENT… [<FILE]
func (s *script) status(args []string) {
	in := ""
	list := slices.DeleteFunc(s.args(args[2:]), func(arg string) bool {
		file, is := strings.CutPrefix(arg, "<")
		if is {
			in = s.ts.ReadFile(file)
		}
		return is
	})
	r := s.fleet.runContext(s, s.Context(), in, list...)
	s.show(r)
	require.Equal(s, args[0], strconv.Itoa(r.status), "%s%s", r.out, r.errOut)
}

// begin NAME regionctl ARGUMENT… starts another person's run.
func (s *script) begin(args []string) {
	s.sessions[args[0]] = s.fleet.converse(s, s.args(args[2:])...)
}

// held NAME regionctl ARGUMENT… starts a run and waits until it has changed eu-west and is
// about to change us-east. It stays there until let NAME.
func (s *script) held(args []string) {
	arrived, released := make(chan struct{}), make(chan struct{})
	came, let := sync.OnceFunc(func() { close(arrived) }), sync.OnceFunc(func() { close(released) })
	through := s.fleet.faulty(s, "us-east", func(w http.ResponseWriter, r *http.Request) bool {
		if !writes(r, "/current") {
			return false
		}
		came()
		select {
		case <-released:
			return false
		case <-time.After(2 * time.Second): // of the 5 s for one request
			outrun(w, r)
			return true
		}
	})
	s.t.Cleanup(let) // before the server of through closes, which waits for its requests
	run := through.converse(s, s.args(args[2:])...)
	s.sessions[args[0]], s.releases[args[0]] = run, let
	select {
	case <-arrived:
	case <-time.After(patience):
		require.Fail(s, "does not reach us-east", &run.errOut)
	}
}

// stopped NAME TEXT regionctl ARGUMENT… starts a run that stops where it writes text to standard
// error, until let NAME.
func (s *script) stopped(args []string) {
	s.sessions[args[0]], s.releases[args[0]] = s.fleet.stopped(s, args[1], s.args(args[3:])...)
}

func (s *script) let(args []string) { s.releases[args[0]]() }

// locked KIND [REGION…]: these regions hold a lock.
func (s *script) locked(args []string) {
	require.Equal(s, args[1:], append([]string{}, s.fleet.locked(s, args[0])...))
}

// sees NAME TEXT waits for text on standard error.
func (s *script) sees(args []string) { s.sessions[args[0]].sees(s, args[1]) }

// prints NAME N waits for N lines on standard output.
func (s *script) prints(args []string) {
	n, err := strconv.Atoi(args[1])
	require.NoError(s, err)
	out := &s.sessions[args[0]].out
	require.Eventually(s, func() bool { return strings.Count(out.String(), "\n") >= n }, patience, tick)
}

// patient makes later commands wait for missing edges.
func (s *script) patient([]string) { s.fleet.registering = patience }

// answer NAME LINE
func (s *script) answer(args []string) { s.sessions[args[0]].answer(s, args[1]) }

// interrupt NAME presses Ctrl-C.
func (s *script) interrupt(args []string) { s.sessions[args[0]].cancel() }

// end NAME STATUS waits for the run to end.
func (s *script) end(args []string) {
	r := s.sessions[args[0]].end(s)
	s.show(r)
	require.Equal(s, args[1], strconv.Itoa(r.status), "%s%s", r.out, r.errOut)
}

// edge REGION POP ID [stays
// silent
// reads=SCHEMA
// runs=VERSION
// refuses=VERSION
// reason=TEXT
// traffic=N]… starts an edge that follows Consul, or changes one.
func (s *script) edge(args []string) {
	set := func(e *stub) {
		for _, option := range args[3:] {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "stays":
				e.stays = value != "no"
			case "keeps": // its counters
				e.keeps = true
			case "claims": // to be another node
				e.claims = value
			case "reads":
				reads, err := strconv.Atoi(value)
				require.NoError(s, err)
				e.reads = reads
			case "silent":
				e.silent = value != "no"
			case "runs":
				e.version = value
			case "refuses":
				e.refuses = value
			case "reason":
				e.reasons = append(e.reasons, strings.ReplaceAll(value, `\e`, "\x1b"))
			case "traffic": // for this many scrapes
				left, err := strconv.Atoi(value)
				require.NoError(s, err)
				e.traffic = func(e *stub, _ string) {
					if left--; left > 0 {
						e.requests["2xx"] += 100
					}
				}
			case "load": // between two readings: requests, of them limited, of them 5xx
				var requests, limited, errors float64
				_, err := fmt.Sscanf(value, "%g,%g,%g", &requests, &limited, &errors)
				require.NoError(s, err)
				e.traffic = load(requests, limited, errors)
			case "loses": // its traffic while it runs that version
				before := e.traffic
				e.traffic = func(e *stub, version string) {
					if version != value {
						before(e, version)
					}
				}
			case "restarts": // at every third reading
				before, looks := e.traffic, 0
				e.traffic = func(e *stub, version string) {
					if looks++; looks%3 == 0 {
						e.requests, e.limited, e.slow = map[string]float64{}, 0, 0
					}
					before(e, version)
				}
			case "slow": // this many of the requests between two readings
				slow, err := strconv.ParseFloat(value, 64)
				require.NoError(s, err)
				before := e.traffic
				e.traffic = func(e *stub, version string) {
					before(e, version)
					e.slow += slow
				}
			case "takes": // so long to answer each reading
				slow, err := time.ParseDuration(value)
				require.NoError(s, err)
				before := e.traffic
				e.traffic = func(e *stub, version string) {
					<-time.After(slow)
					before(e, version)
				}
			case "stalls": // VERSION:DURATION, at the first reading while it runs that version
				when, text, _ := strings.Cut(value, ":")
				slow, err := time.ParseDuration(text)
				require.NoError(s, err)
				before := e.traffic
				e.traffic = func(e *stub, version string) {
					if version == when {
						<-time.After(slow)
						when, e.stalled = "", time.Now()
					}
					before(e, version)
				}
			case "silent-after": // that many readings
				left, err := strconv.Atoi(value)
				require.NoError(s, err)
				before := e.traffic
				e.traffic = func(e *stub, version string) {
					left--
					e.silent = left == 0
					before(e, version)
				}
			case "policy": // follows behavior policies
				e.policy.follows = true
			case "clients": // follows the client lists
				e.clients.follows = true
			case "refuses-policy":
				e.policy.refuses = value
			case "sheds":
				e.shedder.stays = value
			case "refuses-settings":
				e.shedder.refuses = value
			case "explains": // this answer to every question
				require.NoError(s, json.Unmarshal([]byte(s.ts.ReadFile(value)), &e.explanation))
			case "top": // whom it refuses most
				require.NoError(s, json.Unmarshal([]byte(s.ts.ReadFile(value)), &e.top))
			case "global": // its knowledge of other regions
				require.NoError(s, json.Unmarshal([]byte(s.ts.ReadFile(value)), &e.global))
			case "shedders": // their status
				require.NoError(s, json.Unmarshal([]byte(s.ts.ReadFile(value)), &e.shedder.status))
			case "off": // the kill switch
				e.shedder.off = true
			case "unregistered":
			default:
				s.ts.Fatalf("edge: no option %q", name)
			}
		}
	}
	e := s.edges[args[2]]
	if e == nil {
		s.edges[args[2]] = s.fleet.edge(s, args[0], args[1], args[2], set)
		return
	}
	e.mu.Lock()
	set(e)
	e.mu.Unlock()
	if !slices.Contains(args, "unregistered") {
		s.fleet.register(s, e)
	}
}

func (s *script) follows(id, want string, runs func(*stub) string) {
	got := ""
	require.Eventually(s, func() bool { got = runs(s.edges[id]); return got == want }, patience, tick, "%s runs %s", id, &got)
}

// runs ID VERSION waits until an edge has these rules.
func (s *script) runs(args []string) { s.follows(args[0], args[1], (*stub).runs) }

// sheds ID VERSION waits until an edge has these settings.
func (s *script) sheds(args []string) { s.follows(args[0], args[1], (*stub).sheds) }

// judges ID VERSION waits until an edge has this policy.
func (s *script) judges(args []string) { s.follows(args[0], args[1], (*stub).judges) }

// publish FILE BY REGION… publishes rules without regionctl, as another person.
func (s *script) publish(args []string) {
	s.fleet.publish(s, s.ts.ReadFile(args[0]), args[1], args[2:]...)
}

// asked ID QUERY… checks and clears the questions that an edge was asked to explain.
func (s *script) asked(args []string) {
	e := s.edges[args[0]]
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Equal(s, args[1:], e.asked)
	e.asked = nil
}

func (s *script) documents(kind, name string) *consul.Documents {
	switch kind {
	case "shedder":
		return s.fleet.settings(name)
	case "policy":
		return s.fleet.open[name].Documents(kind)
	}
	return s.fleet.rules(name)
}

// holds KIND REGION VERSION
// none [BY MESSAGE REPLACED] checks what is active there, and what the history says about it.
func (s *script) holds(args []string) {
	docs := s.documents(args[0], args[1])
	p, _, err := docs.Current(s.Context())
	require.NoError(s, err)
	if p == nil {
		require.Equal(s, args[2], versions.NoVersion)
		return
	}
	require.Equal(s, args[2], p.Version)
	stored, err := docs.Load(s.Context(), *p)
	require.NoError(s, err)
	require.Equal(s, p.SHA256, consul.NewPointer(stored, "", time.Time{}).SHA256)
	if len(args) > 3 {
		changes, _, err := docs.History(s.Context(), 0)
		require.NoError(s, err)
		require.Equal(s, args[3:], []string{changes[0].AppliedBy, changes[0].Message, cmp.Or(changes[0].Replaced, versions.NoVersion)})
		require.Equal(s, *p, changes[0].Pointer)
	}
}

// unchanged KIND REGION N: the history has N entries.
func (s *script) unchanged(args []string) {
	changes, _, err := s.documents(args[0], args[1]).History(s.Context(), 0)
	require.NoError(s, err)
	require.Equal(s, args[2], strconv.Itoa(len(changes)))
}

// forget REGION N: the rules' history there keeps its oldest N entries.
func (s *script) forget(args []string) {
	n, err := strconv.Atoi(args[1])
	require.NoError(s, err)
	kv := s.consuls[args[0]].Client().KV()
	keys, _, err := kv.Keys(s.prefix+"/rules/history/", "", nil) // in order of time
	require.NoError(s, err)
	for _, key := range keys[n:] {
		_, err := kv.Delete(key, nil)
		require.NoError(s, err)
	}
}

func versionOf(document string) string {
	return consul.NewPointer([]byte(document), "", time.Time{}).Version
}

// version NAME FILE sets a variable, and NAME_6 to its first six digits.
func (s *script) version(args []string) {
	v := versionOf(s.ts.ReadFile(args[1]))
	s.ts.Setenv(args[0], v)
	s.ts.Setenv(args[0]+"_6", v[:6])
}

// active NAME KIND REGION sets a variable to the version that a region's pointer names.
func (s *script) active(args []string) {
	p, _, err := s.documents(args[1], args[2]).Current(s.Context())
	require.NoError(s, err)
	require.NotNil(s, p)
	s.ts.Setenv(args[0], p.Version)
}

// canary REGION POP VERSION|none [DURATION] waits until a site is to try a version, for that
// duration.
func (s *script) canary(args []string) {
	got := ""
	require.Eventually(s, func() bool {
		p, _, err := s.fleet.rules(args[0]).Canary(s.Context(), args[1])
		require.NoError(s, err)
		if got = versions.NoVersion; p != nil {
			got = p.Version
		}
		return got == args[2]
	}, patience, time.Millisecond, "%s tries %s", args[1], &got)
	if len(args) > 3 {
		limit, err := time.ParseDuration(args[3])
		require.NoError(s, err)
		p, _, err := s.fleet.rules(args[0]).Canary(s.Context(), args[1])
		require.NoError(s, err)
		require.Equal(s, limit, p.ExpiresAt.Sub(p.AppliedAt))
	}
}

// until TEXT regionctl ARGUMENT… repeats the command until it prints text.
func (s *script) until(args []string) {
	r := result{}
	require.Eventually(s, func() bool {
		r = s.fleet.run(s, s.args(args[2:])...)
		return strings.Contains(r.out, args[0])
	}, patience, tick, "%q in: %+v", args[0], &r)
}

// expired REGION waits until the settings there have expired.
func (s *script) expired(args []string) {
	require.Eventually(s, func() bool {
		p, _, err := s.fleet.settings(args[0]).Current(s.Context())
		return err == nil && p.Expired(time.Now())
	}, patience, tick)
}

// baked ID DURATION: at least that long ago, the edge ended its stall.
func (s *script) baked(args []string) {
	limit, err := time.ParseDuration(args[1])
	require.NoError(s, err)
	e := s.edges[args[0]]
	e.mu.Lock()
	defer e.mu.Unlock()
	require.GreaterOrEqual(s, time.Since(e.stalled), limit)
}

// lock NAME REGION takes the lock of the rules there, and renews it until unlock NAME.
func (s *script) lock(args []string) {
	s.releases[args[0]] = s.fleet.hold(s, args[1], args[0])
}

func (s *script) unlock(args []string) { s.releases[args[0]]() }

// try REGION POP FILE BY makes a site follow a version on trial, without a manager.
func (s *script) try(args []string) {
	s.fleet.orphan(s, args[0], args[1], s.ts.ReadFile(args[2]), args[3])
}

// lasts REGION DURATION|forever [VERSION|none]: how long the settings there are active, and the
// version that follows. It sets $EXPIRES, and $UNTIL for display.
func (s *script) lasts(args []string) {
	p, _, err := s.documents("shedder", args[0]).Current(s.Context())
	require.NoError(s, err)
	if args[1] == "forever" {
		require.Nil(s, p.ExpiresAt)
		return
	}
	d, err := time.ParseDuration(args[1])
	require.NoError(s, err)
	require.Equal(s, p.AppliedAt.Add(d), *p.ExpiresAt)
	then := versions.NoVersion
	if p.Successor != nil {
		then = p.Successor.Version
	}
	require.Equal(s, args[2], then)
	s.ts.Setenv("EXPIRES", p.ExpiresAt.Format(time.RFC3339Nano))
	s.ts.Setenv("UNTIL", report.Until(p))
}

// duel NAME NAME makes two people answer yes at the same time: one changes all regions, the
// other learns of it. It sets $WINNER and $LOSER and shows the loser's output.
func (s *script) duel(args []string) {
	for _, name := range args {
		go s.sessions[name].answer(s.t, "y")
	}
	results := map[int]string{}
	for _, name := range args {
		r := s.sessions[name].end(s)
		if results[r.status] = name; r.status != 0 {
			s.show(r)
		}
	}
	require.Len(s, results, 2)
	require.Contains(s, results, term.StatusConflict)
	s.ts.Setenv("WINNER", results[0])
	s.ts.Setenv("LOSER", results[term.StatusConflict])
}

// put REGION KEY VALUE; \x1b stands for a byte and \u009b for a character.
func (s *script) put(args []string) {
	var text [2]string
	for i, arg := range args[1:] {
		text[i] = arg
		if strings.Contains(arg, `\`) {
			var err error
			text[i], err = strconv.Unquote(`"` + arg + `"`)
			require.NoError(s, err)
		}
	}
	// In a transaction the key may have any bytes.
	done, _, _, err := s.consuls[args[0]].Client().Txn().Txn(api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVSet, Key: s.prefix + "/" + text[0], Value: []byte(text[1])}}}, nil)
	require.NoError(s, err)
	require.True(s, done)
}

// delete REGION KEY deletes every key that begins with KEY.
func (s *script) delete(args []string) {
	_, err := s.consuls[args[0]].Client().KV().DeleteTree(s.prefix+"/"+args[1], nil)
	require.NoError(s, err)
}

// json PATH VALUE checks a value in the output of regionctl -o json.
func (s *script) json(args []string) { require.Equal(s, args[1], s.at(args[0]), args[0]) }

// equal PATH PATH compares two of its values.
func (s *script) equal(args []string) { require.Equal(s, s.at(args[0]), s.at(args[1]), args) }

func (s *script) at(path string) string {
	var v any
	require.NoError(s, json.Unmarshal([]byte(s.ts.ReadFile("stdout")), &v))
	for part := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[part]
		case []any:
			i, err := strconv.Atoi(part)
			require.NoError(s, err)
			require.Less(s, i, len(at), path)
			v = at[i]
		default:
			v = nil
		}
	}
	return fmt.Sprint(v)
}

// address REGION [ADDRESS] sets a Consul's address in the fleet file; nothing listens at
// 127.0.0.1:1.
func (s *script) address(args []string) {
	if delete(s.away, args[0]); len(args) > 1 {
		s.away[args[0]] = args[1]
	}
	var text strings.Builder
	text.WriteString("regions:\n")
	for _, name := range s.names {
		fmt.Fprintf(&text, "  - {name: %s, admin_networks: [127.0.0.0/8], consul: {addr: %q, prefix: %s}}\n", name, cmp.Or(s.away[name], s.consuls[name].Addr()), s.prefix)
	}
	s.fleet.file = write(s, "fleet.yaml", text.String())
}
