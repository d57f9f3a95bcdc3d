package console

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/console/access"
)

// Operation is one operation of the API. It does what one command of regionctl does, so pages,
// scripts and shells have the same abilities.
type Operation struct {
	ID      string // OpenAPI's operationId
	Method  string
	Path    string
	Summary string
	Command []string
	Inputs  []Input
	// Document is the name of the document whose text comes with the request. "": none.
	Document string
	// Upload is the name of a log of any length that is read while it arrives. "": none.
	Upload string
	// Least is the least role that may use it.
	Least access.Role
	// Writes: the operation changes something and requires the token.
	Writes bool
	// Verdict: a result is a good answer even with an error, for example on a document with
	// faults or a region without a published document.
	Verdict bool
	// Rollout is what the operation does to the rollout: look, start, halt or resume. "":
	// nothing.
	Rollout string
	// Streams: it answers again and again until it is interrupted.
	Streams bool
}

// Input is a path or query parameter, or a field of the body's JSON object.
type Input struct {
	Name, About string
	Flag        string // "": a positional argument
	Shape       Shape
	Required    bool
	Check       *regexp.Regexp // for each value; nil: any line of text
	Longest     int            // most bytes of a value
}

// Shape is an input's type.
type Shape int

// The shapes.
const (
	Text Shape = iota
	List       // of strings
	Bool       // true or false
)

const (
	longestText = 500
	mostValues  = 64
)

var (
	word     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	block    = regexp.MustCompile(`^[0-9A-Fa-f.:]{2,45}(/[0-9]{1,3})?$`)
	digits   = regexp.MustCompile(`^[0-9a-f]{4,12}$`)
	baseOf   = regexp.MustCompile(`^([0-9a-f]{4,12}|none)$`)
	number   = regexp.MustCompile(`^[0-9]{1,5}$`)
	duration = regexp.MustCompile(`^([0-9]{1,6}(ms|s|m|h)){1,4}$`)
	groups   = regexp.MustCompile(`^([0-9]{1,4},){0,31}([0-9]{1,4}|rest)$`)
	setting  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}=[^\x00-\x1f]{1,1000}$`)
	address  = regexp.MustCompile(`^[0-9A-Fa-f.:]{2,45}$`)
	network  = regexp.MustCompile(`^[0-9A-Fa-f.:]{2,45}(/[0-9]{1,3})?$`)
	urlPath  = regexp.MustCompile(`^/[^\x00-\x20?#]{0,1000}$`)
	// key names a key that rules count by. Headers, cookies and queries may be secret, so only
	// their hashes are accepted.
	key = regexp.MustCompile(`^([0-9A-Fa-f.:]{2,45}|(client|host|path|method|tier)=[^\x00-\x20?]{1,1000}|(header|cookie|query):[^\x00-\x20=]{1,128}=~[0-9a-f]{32})$`)
)

// Inputs shared by several operations.
var (
	inRegion  = Input{Name: "region", About: "only this region; default: all", Flag: "region", Shape: List, Check: word}
	inVersion = Input{Name: "version", About: "the version, or four or more of its first digits; default: the active one", Check: digits}
	inLines   = Input{Name: "lines", About: "how many changes; 0: all", Flag: "lines", Check: number}
	inMessage = Input{Name: "message", About: "why, for the history", Flag: "message", Longest: longestText}
	inBase    = Input{Name: "if_version", About: "change nothing unless every region runs this version, which the document was made from; none: nothing is published", Flag: "if-version", Check: baseOf}
	inFrom    = Input{Name: "from", About: "the version to compare with; none: nothing", Flag: "from", Required: true, Check: baseOf}
	inWith    = Input{Name: "to", About: "the version that is compared; default: the active one", Flag: "to", Check: digits}
	inTo      = Input{Name: "to", About: "the version to go back to", Flag: "to", Required: true, Check: digits}
	inOf      = Input{Name: "of", About: "the versions that may be undone; nothing is changed if a region has another one", Flag: "of", Shape: List, Required: true, Check: digits}
	inPoP     = Input{Name: "pop", About: "the PoP", Required: true, Check: word}
	inPartial = Input{Name: "partial", About: "continue without regions that cannot be reached", Flag: "partial", Shape: Bool}
)

// Inputs of manual decisions about clients.
var (
	inNetwork = Input{Name: "network", About: "an address, or a network such as 203.0.113.0/24", Required: true, Check: block}
	inReason  = Input{Name: "reason", About: "why; other operators see it", Flag: "message", Required: true, Longest: 200}
	inLasts   = Input{Name: "for", About: "how long it lasts; default: until it is removed", Flag: "for", Check: duration}
)

// inReplay describes how to read a log.
var inReplay = []Input{
	{Name: "host", About: "the host of lines that name none", Flag: "host", Longest: 255, Check: regexp.MustCompile(`^[A-Za-z0-9.:_\[\]-]+$`)},
	{Name: "paths", About: "server.paths of the edges: match_all, strict or normalized", Flag: "paths", Check: word},
	{Name: "trusted", About: "the requests came through a trusted proxy", Flag: "trusted", Shape: Bool},
	{Name: "top", About: "how many clients to list for each rule", Flag: "top", Check: regexp.MustCompile(`^[1-9][0-9]{0,2}$`)},
}

// inRequest describes a request, without its secrets.
var inRequest = []Input{
	{Name: "client", About: "the client's address", Flag: "client", Required: true, Check: address},
	{Name: "method", About: "the request's method; default: GET", Flag: "method", Check: word},
	{Name: "host", About: "the host asked for", Flag: "host", Longest: 255, Check: regexp.MustCompile(`^[A-Za-z0-9.:_\[\]-]+$`)},
	{Name: "path", About: "the path, without a query; default: /", Flag: "path", Longest: 1024, Check: urlPath},
	{Name: "tier", About: "the client's tier", Flag: "tier", Check: word},
}

var apply = []string{"rules", "apply"}

// Operations returns all operations. Readers look. Operators act in an incident: they drain,
// reset, switch the shedder off, and roll back. Admins publish documents.
func Operations() []Operation {
	return []Operation{
		{ID: "fleet", Least: access.Reader, Method: "GET", Path: "/fleet", Summary: "Regions, PoPs and edges: health, drains, versions, requests, refusals", Command: []string{"status"}, Inputs: []Input{inRegion}},
		{ID: "fleet.events", Least: access.Reader, Method: "GET", Path: "/fleet/events", Summary: "The same every two seconds, as server-sent events", Command: []string{"status", "--watch=2s"}, Streams: true},
		{ID: "drain", Least: access.Operator, Method: "POST", Path: "/pops/{pop}/drain", Summary: "Take a PoP out of DNS", Command: []string{"drain"}, Writes: true, Inputs: []Input{
			inPoP, {Name: "reason", About: "why; other operators see it", Flag: "message", Required: true, Longest: longestText},
			{Name: "force", About: "drain it even if no healthy PoP would be left", Flag: "force", Shape: Bool}}},
		{ID: "undrain", Least: access.Operator, Method: "POST", Path: "/pops/{pop}/undrain", Summary: "Put a PoP back into DNS", Command: []string{"undrain"}, Writes: true, Inputs: []Input{inPoP}},
		{ID: "drain.undo", Least: access.Operator, Method: "POST", Path: "/drain/undo", Summary: "Undo the last drain or undrain", Command: []string{"undo", "drain"}, Writes: true, Inputs: []Input{inOf, inRegion, inPartial}},

		{ID: "rules", Least: access.Reader, Method: "GET", Path: "/rules", Summary: "The rules that edges run, with what each allows and limits", Command: []string{"rules", "list"}, Inputs: []Input{inRegion}},
		{ID: "rules.events", Least: access.Reader, Method: "GET", Path: "/rules/events", Summary: "The same every two seconds, as server-sent events", Command: []string{"rules", "list", "--watch=2s"}, Streams: true},
		{ID: "rules.hour", Least: access.Reader, Method: "GET", Path: "/rules/hour", Summary: "What each rule decided in the last hour, from Prometheus", Command: []string{"rules", "list", "--prometheus", "URL"}, Inputs: []Input{inRegion}},
		{ID: "rules.status", Least: access.Reader, Method: "GET", Path: "/rules/status", Summary: "Which version is active in each region, and which edges run it", Command: []string{"rules", "status"}, Inputs: []Input{inRegion}},
		{ID: "rules.document", Least: access.Reader, Method: "GET", Path: "/rules/document", Summary: "The active rule document, or another version", Command: []string{"rules", "show"}, Inputs: []Input{inRegion, inVersion}},
		{ID: "rules.history", Least: access.Reader, Method: "GET", Path: "/rules/history", Summary: "Who applied which rules, when and why", Command: []string{"rules", "history"}, Inputs: []Input{inRegion, inLines}},
		{ID: "rules.changes", Least: access.Reader, Method: "GET", Path: "/rules/changes", Summary: "What differs between two versions of the rules", Command: []string{"rules", "diff"}, Inputs: []Input{inFrom, inWith, inRegion}},
		{ID: "rules.validate", Least: access.Reader, Method: "POST", Path: "/rules/validate", Summary: "Every fault of a rule document, by line", Command: []string{"rules", "validate"}, Document: "rules.yaml", Verdict: true},
		{ID: "rules.diff", Least: access.Reader, Method: "POST", Path: "/rules/diff", Summary: "What a document would change in each region", Command: []string{"rules", "diff"}, Document: "rules.yaml", Inputs: []Input{inRegion}},
		{ID: "rules.test", Least: access.Reader, Method: "POST", Path: "/rules/test", Summary: "Who of a log would have been limited by a document, next to the active one", Command: []string{"rules", "test"}, Document: "rules.yaml", Upload: "access.log", Inputs: append([]Input{inRegion}, inReplay...)},
		{ID: "rules.test.recent", Least: access.Reader, Method: "POST", Path: "/rules/test/recent", Summary: "The same of what the edges of a region decided lately", Command: []string{"rules", "test", "--from-nodes"}, Document: "rules.yaml", Inputs: append([]Input{inRegion}, inReplay[1:]...)},
		{ID: "rules.apply", Least: access.Admin, Method: "POST", Path: "/rules/apply", Summary: "Apply a document, and wait for every edge", Command: apply, Document: "rules.yaml", Writes: true, Inputs: []Input{inMessage, inBase, inRegion, inPartial}},
		{ID: "rules.rollback", Least: access.Operator, Method: "POST", Path: "/rules/rollback", Summary: "Apply an earlier version again", Command: []string{"undo", "rules"}, Writes: true, Inputs: []Input{inTo, inRegion, inPartial}},
		{ID: "rules.undo", Least: access.Operator, Method: "POST", Path: "/rules/undo", Summary: "Undo the last change, also a rollout that is not finished", Command: []string{"undo", "rules"}, Writes: true, Inputs: []Input{inOf, inRegion, inPartial}},

		{ID: "rules.rollout", Least: access.Reader, Method: "GET", Path: "/rules/rollout", Summary: "How the rollout stands that this console runs, or ran last", Command: apply, Rollout: lookAtRollout},
		{ID: "rules.rollout.events", Least: access.Reader, Method: "GET", Path: "/rules/rollout/events", Summary: "The same at each change, as server-sent events", Command: apply, Rollout: lookAtRollout, Streams: true},
		{ID: "rules.rollout.start", Least: access.Admin, Method: "POST", Path: "/rules/rollout/start", Summary: "Apply a document step by step: on one site first, or in waves of regions. It continues when the page is closed", Command: apply, Document: "rules.yaml", Writes: true, Rollout: startRollout, Inputs: []Input{
			{Name: "canary", About: "the PoP to try it on first", Flag: "canary", Check: word},
			{Name: "bake", About: "how long the canary is watched before the rest follows; default: 5m", Flag: "bake", Check: duration},
			{Name: "waves", About: "the numbers of regions to change one group after another, such as 1,4,rest", Flag: "waves", Check: groups},
			{Name: "soak", About: "how long the regions of a wave are watched before the next; default: 10m", Flag: "soak", Check: duration},
			{Name: "min_requests", About: "how many requests are needed to compare; default: 100", Flag: "min-requests", Check: number},
			inMessage, inBase, inRegion, inPartial}},
		{ID: "rules.rollout.halt", Least: access.Operator, Method: "POST", Path: "/rules/rollout/halt", Summary: "Interrupt the rollout: a canary is withdrawn, regions that are changed stay so", Command: apply, Writes: true, Rollout: haltRollout},
		{ID: "rules.rollout.unfinished", Least: access.Reader, Method: "GET", Path: "/rules/rollout/unfinished", Summary: "The rollout that is not finished, from wherever it was started: which waves are done, and whether its regionctl still runs", Command: []string{"rules", "rollout"}},
		{ID: "rules.rollout.resume", Least: access.Admin, Method: "POST", Path: "/rules/rollout/resume", Summary: "Continue the rollout that is not finished, with the same document and flags, in the caller's name", Command: []string{"rules", "apply", "--resume"}, Writes: true, Rollout: resumeRollout},

		{ID: "limits.inspect", Least: access.Reader, Method: "GET", Path: "/limits", Summary: "What a client or another key has left of each rule", Command: []string{"limits", "inspect"}, Inputs: []Input{
			{Name: "key", About: "an address; client, host, path, method or tier with =VALUE; or header:NAME, cookie:NAME or query:NAME with =~ and the first 32 hex digits of the value's SHA-256", Shape: List, Required: true, Check: key}, inRegion}},
		{ID: "limits.explain", Least: access.Reader, Method: "GET", Path: "/limits/explain", Summary: "Which rules would decide a request, and how", Command: []string{"limits", "explain"}, Inputs: append(slices.Clone(inRequest), inRegion)},
		{ID: "limits.global", Least: access.Reader, Method: "GET", Path: "/limits/global", Summary: "What regions know of each other's counts, and what they hold of limits in escrow", Command: []string{"limits", "global"}, Inputs: []Input{inRegion}},
		{ID: "limits.reset", Least: access.Operator, Method: "POST", Path: "/limits/reset", Summary: "Forget one counter on every edge", Command: []string{"limits", "reset"}, Writes: true, Inputs: append([]Input{
			{Name: "rule", About: "the rule whose counter it is", Flag: "rule", Required: true, Check: word}}, append(slices.Clone(inRequest), inRegion)...)},

		{ID: "clients", Least: access.Reader, Method: "GET", Path: "/clients", Summary: "All networks that are blocked or allowed by hand", Command: []string{"clients", "list"}, Inputs: []Input{inRegion}},
		{ID: "clients.show", Least: access.Reader, Method: "GET", Path: "/clients/show", Summary: "What is decided about an address by hand", Command: []string{"clients", "show"}, Inputs: []Input{inNetwork, inRegion}},
		{ID: "clients.recent", Least: access.Reader, Method: "GET", Path: "/clients/recent", Summary: "What edges refused a client lately, and which rule did", Command: []string{"clients", "recent"}, Inputs: []Input{inNetwork,
			{Name: "all", About: "also what passed", Flag: "all", Shape: Bool}, {Name: "lines", About: "how many of each region", Flag: "lines", Check: number}, inRegion}},
		{ID: "clients.top", Least: access.Reader, Method: "GET", Path: "/clients/top", Summary: "Whom the rules refused most in the last one to two minutes, and which clients are suspicious", Command: []string{"clients", "top"}, Inputs: []Input{inRegion}},
		{ID: "clients.block", Least: access.Operator, Method: "POST", Path: "/clients/block", Summary: "Answer 403 to a network, on all edges", Command: []string{"clients", "block"}, Writes: true, Inputs: []Input{inNetwork, inReason, inLasts, inRegion}},
		{ID: "clients.allow", Least: access.Operator, Method: "POST", Path: "/clients/allow", Summary: "Exempt a network from blocks and from the behavior policy", Command: []string{"clients", "allow"}, Writes: true, Inputs: []Input{inNetwork, inReason, inLasts, inRegion}},
		{ID: "clients.unblock", Least: access.Operator, Method: "POST", Path: "/clients/unblock", Summary: "Remove a network from the list, blocked or allowed", Command: []string{"clients", "unblock"}, Writes: true, Inputs: []Input{inNetwork, inRegion}},
		{ID: "clients.undo", Least: access.Operator, Method: "POST", Path: "/clients/undo", Summary: "Undo the last block, allow, unblock or import", Command: []string{"undo", "clients"}, Writes: true, Inputs: []Input{inOf, inRegion, inPartial}},

		{ID: "shedder", Least: access.Reader, Method: "GET", Path: "/shedder", Summary: "The active settings of the load shedder", Command: []string{"shedder", "show"}, Inputs: []Input{inRegion}, Verdict: true},
		{ID: "shedder.live", Least: access.Reader, Method: "GET", Path: "/shedder/live", Summary: "What each edge's shedder measures and refuses, candidates included", Command: []string{"shedder", "show", "--live"}, Inputs: []Input{inRegion}},
		{ID: "shedder.hour", Least: access.Reader, Method: "GET", Path: "/shedder/hour", Summary: "What each edge's shedder refused in the last hour, from Prometheus", Command: []string{"shedder", "show", "--live", "--prometheus", "URL"}, Inputs: []Input{inRegion}},
		{ID: "shedder.set", Least: access.Admin, Method: "POST", Path: "/shedder/set", Summary: "Change settings, temporarily or for good", Command: []string{"shedder", "set"}, Writes: true, Inputs: []Input{
			{Name: "settings", About: "FIELD=VALUE", Shape: List, Required: true, Check: setting},
			{Name: "for", About: "how long they last; default: until the next change", Flag: "for", Check: duration}, inMessage, inRegion, inPartial}},
		{ID: "shedder.off", Least: access.Operator, Method: "POST", Path: "/shedder/off", Summary: "The kill switch: shed nothing temporarily", Command: []string{"shedder", "set", "enabled=false"}, Writes: true, Inputs: []Input{
			{Name: "for", About: "how long it lasts; then the previous settings return", Flag: "for", Required: true, Check: duration}, inMessage, inRegion, inPartial}},
		{ID: "shedder.rollback", Least: access.Operator, Method: "POST", Path: "/shedder/rollback", Summary: "Activate earlier settings again", Command: []string{"undo", "shedder"}, Writes: true, Inputs: []Input{inTo, inRegion, inPartial}},
		{ID: "shedder.undo", Least: access.Operator, Method: "POST", Path: "/shedder/undo", Summary: "End temporary settings, or undo the last change", Command: []string{"undo", "shedder"}, Writes: true, Inputs: []Input{inOf, inRegion, inPartial}},
		{ID: "shedder.history", Least: access.Reader, Method: "GET", Path: "/shedder/history", Summary: "Who changed the shedder's settings, when and why", Command: []string{"shedder", "history"}, Inputs: []Input{inRegion, inLines}},

		{ID: "policy.status", Least: access.Reader, Method: "GET", Path: "/policy/status", Summary: "Which behavior policy is active in each region, and which edges use it", Command: []string{"policy", "status"}, Inputs: []Input{inRegion}},
		{ID: "policy.document", Least: access.Reader, Method: "GET", Path: "/policy/document", Summary: "The active behavior policy, or another version", Command: []string{"policy", "show"}, Inputs: []Input{inRegion, inVersion}},
		{ID: "policy.history", Least: access.Reader, Method: "GET", Path: "/policy/history", Summary: "Who applied which behavior policy, when and why", Command: []string{"policy", "history"}, Inputs: []Input{inRegion, inLines}},
		{ID: "policy.changes", Least: access.Reader, Method: "GET", Path: "/policy/changes", Summary: "What differs between two versions of the behavior policy", Command: []string{"policy", "diff"}, Inputs: []Input{inFrom, inWith, inRegion}},
		{ID: "policy.rollback", Least: access.Operator, Method: "POST", Path: "/policy/rollback", Summary: "Apply an earlier behavior policy again", Command: []string{"undo", "policy"}, Writes: true, Inputs: []Input{inTo, inRegion, inPartial}},
		{ID: "policy.undo", Least: access.Operator, Method: "POST", Path: "/policy/undo", Summary: "Undo the last change of the behavior policy", Command: []string{"undo", "policy"}, Writes: true, Inputs: []Input{inOf, inRegion, inPartial}},

		{ID: "dns.topology", Least: access.Reader, Method: "GET", Path: "/dns/topology", Summary: "The active topology: regions, PoPs, their addresses and places", Command: []string{"topology", "show"}, Inputs: []Input{inRegion}},
		{ID: "dns.explain", Least: access.Reader, Method: "GET", Path: "/dns/explain", Summary: "What PoPs receive and give to others; which PoP a client is sent to now, and why", Command: []string{"dns", "explain"}, Inputs: []Input{
			{Name: "client", About: "the client's address, or its network; default: none", Flag: "client", Check: network},
			{Name: "region", About: "only PoPs of this region", Flag: "region", Check: word}}},

		{ID: "audit.list", Least: access.Reader, Method: "GET", Path: "/audit/changes", Summary: "Who did what, when and why, of whatever kind", Command: []string{"audit", "list"}, Inputs: []Input{inRegion, inLines}},
		{ID: "audit", Least: access.Reader, Method: "GET", Path: "/audit", Summary: "Verify that nobody changed the histories", Command: []string{"audit", "verify"}, Inputs: []Input{inRegion}, Verdict: true},
	}
}

// values holds a request's values by input name.
type values map[string][]string

// check refuses invalid values.
func (o *Operation) check(v values) error {
	for _, in := range o.Inputs {
		given := v[in.Name]
		switch {
		case in.Required && len(given) == 0:
			return fmt.Errorf("%s: is missing; it is %s", in.Name, in.About)
		case in.Shape != List && len(given) > 1:
			return fmt.Errorf("%s: is given %d times; give it once", in.Name, len(given))
		case len(given) > mostValues:
			return fmt.Errorf("%s: must be at most %d values (got %d)", in.Name, mostValues, len(given))
		}
		for _, text := range given {
			if err := in.check(text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (in *Input) check(text string) error {
	longest := cmp.Or(in.Longest, 1300)
	switch {
	case len(text) > longest:
		return fmt.Errorf("%s: must be at most %d bytes (got %d)", in.Name, longest, len(text))
	case in.Shape == Bool && text != "true" && text != "false":
		return fmt.Errorf("%s: must be true or false (got %q)", in.Name, text)
	case in.Required && text == "":
		return fmt.Errorf("%s: is empty; it is %s", in.Name, in.About)
	case in.Check != nil && !in.Check.MatchString(text):
		return fmt.Errorf("%s: must match %s (got %q)", in.Name, in.Check, text)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%s: must be one line without control characters (got %q)", in.Name, text)
	}
	return nil
}

// flags returns the inputs that are flags of the command, with their values.
func (o *Operation) flags(v values) iter.Seq2[*Input, string] {
	return func(yield func(*Input, string) bool) {
		for i := range o.Inputs {
			in := &o.Inputs[i]
			for _, text := range v[in.Name] {
				if in.Flag != "" && (in.Shape != Bool || text == "true") && !yield(in, text) {
					return
				}
			}
		}
	}
}

// command returns the equivalent shell command.
func (o *Operation) command(v values) string {
	words := append([]string{"regionctl"}, o.Command...)
	if o.Document != "" {
		words = append(words, o.Document)
	}
	if o.Upload != "" {
		words = append(words, o.Upload)
	}
	for _, in := range o.Inputs {
		if in.Flag == "" {
			words = append(words, v[in.Name]...)
		}
	}
	for in, text := range o.flags(v) {
		if words = append(words, "--"+in.Flag); in.Shape != Bool {
			words = append(words, text)
		}
	}
	for i, w := range words {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

// does describes the operation for OpenAPI.
func (o *Operation) does() string {
	switch o.Rollout {
	case lookAtRollout:
		return "Looks at what the console runs"
	case haltRollout:
		return "Does what Ctrl-C does where the command runs"
	}
	return "Runs " + o.command(nil)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote quotes a word for a shell.
func quote(w string) string {
	if plain.MatchString(w) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
