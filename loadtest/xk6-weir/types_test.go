package weir

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lines puts each member on its own line.
var lines = strings.NewReplacer("      | { ", "|\n ", "'; ", "'\n ")

var member = regexp.MustCompile(`(?m)^\s+(\w+)\??(?:: |\()`)

// The types for script authors have exactly the existing fields and methods.
func TestTypes(t *testing.T) {
	text, err := os.ReadFile("index.d.ts")
	require.NoError(t, err)
	part := func(from, to string) (names []string) {
		_, rest, ok := strings.Cut(string(text), from)
		require.True(t, ok, from)
		rest, _, ok = strings.Cut(rest, to)
		require.True(t, ok, to)
		for _, m := range member.FindAllStringSubmatch(lines.Replace(rest), -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	fields := func(v any, tag string) (names []string) {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name := f.Tag.Get(tag); name != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	const end = "\n  }\n"
	require.Equal(t, fields(clientOptions{}, "json"), part("interface ClientOptions {", end))
	require.Equal(t, fields(params{}, "json"), part("interface Params {", "\n  }\n\n"))
	require.Equal(t, fields(oracleOptions{}, "json"), part("interface OracleOptions {", end))
	require.Equal(t, fields(ruleOptions{}, "json"), part("interface Rule {", end))
	require.Equal(t, fields(Response{}, "js"), part("interface Response {", end))
	require.Equal(t, fields(RateLimit{}, "js"), part("interface RateLimit {", end))
	all := append(part("type KeysOptions", "\n    );"), part("interface CommonKeys {", end)...)
	slices.Sort(all)
	require.Equal(t, fields(keysOptions{}, "json"), all)

	methods := func(v any) (names []string) {
		for m := range reflect.TypeOf(v).Methods() {
			names = append(names, strings.ToLower(m.Name[:1])+m.Name[1:])
		}
		return names
	}
	without := func(names []string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return n == "constructor" })
	}
	require.Equal(t, methods(&Client{}), without(part("class Client {", end)))
	require.Equal(t, methods(&Keys{}), without(part("class Keys {", end)))
	require.Equal(t, methods(&Judge{}), part("interface Oracle {", end))
	require.Equal(t, methods(&Behavior{}), without(part("class Behavior {", end)))
	require.Equal(t, fields(behaviorOptions{}, "json"), part("interface BehaviorOptions {", end))
	require.Equal(t, slices.Sorted(maps.Keys(kinds()[0])), part("interface BehaviorKind {", end))
}
