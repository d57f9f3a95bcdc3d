package kinds

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

// fullTopology has every field that a topology can have, twice where there may be several.
const fullTopology = `zone: edge.example.com
steering: first
probe: {port: 443, path: /healthz, host: probe.example.com, tls: true}
regions:
  - name: eu-west
    pops:
      - {name: ams1, addresses: [203.0.113.10, 203.0.113.11], location: {lat: 52.37, lon: 4.9}, weight: 3, capacity: 20, clients: [198.51.100.0/25, 198.51.100.128/25]}
      - {name: fra1, addresses: [203.0.113.20]}
  - name: us-east
    pops: [{name: iad1, addresses: [203.0.113.30]}]
routers:
  - {name: ns1, key: MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=}
  - {name: ns2, key: MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=}
records:
  - {name: www, type: TXT, values: [one, two], ttl: 60}
  - {name: mail, type: A, values: [192.0.2.1]}
`

func parsedTopology(t *testing.T, text string) *region.Topology {
	t.Helper()
	topology, err := region.ParseTopology([]byte(text))
	require.NoError(t, err)
	return topology
}

func topologyDiff(before, next *region.Topology) string {
	var b bytes.Buffer
	compareTopologies(before, next).Write(&b, term.Style{}, 0)
	return b.String()
}

// A change of any field has a line that names the field.
func TestTopologyDiffNamesEveryField(t *testing.T) {
	before, next := parsedTopology(t, fullTopology), parsedTopology(t, fullTopology)
	fields := 0
	try := func(path string, v, other reflect.Value) {
		fields++
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(other)
		text := topologyDiff(before, next)
		v.Set(old)
		require.Regexp(t, regexp.MustCompile(`(?m)^  [-+~] .*\b`+namedInDiff(path)+`\b`), text, path)
		require.NotContains(t, text, "order", path)
		require.NotContains(t, text, "the text differs", path)
	}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch value := v.Interface().(type) {
		case netip.Addr:
			try(path, v, reflect.ValueOf(netip.MustParseAddr("192.0.2.99")))
			return
		case netip.Prefix:
			try(path, v, reflect.ValueOf(netip.PrefixFrom(value.Addr(), value.Bits()+1)))
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				walk(strings.TrimPrefix(path+"."+name, "."), v.Field(i))
			}
		case reflect.Pointer:
			require.False(t, v.IsNil(), "%s: the sample lacks it", path)
			try(path, v, reflect.Zero(v.Type()))
			walk(path, v.Elem())
		case reflect.Slice:
			require.NotZero(t, v.Len(), "%s: the sample lacks it", path)
			try(path, v, v.Slice(0, v.Len()-1))
			walk(path, v.Index(0))
		case reflect.String:
			try(path, v, reflect.ValueOf(v.String()+"x"))
		case reflect.Bool:
			try(path, v, reflect.ValueOf(!v.Bool()))
		case reflect.Int:
			try(path, v, reflect.ValueOf(int(v.Int()+1)))
		case reflect.Float64:
			try(path, v, reflect.ValueOf(v.Float()+0.5))
		default:
			t.Fatalf("%s: the test cannot change a %s", path, v.Kind())
		}
	}
	walk("", reflect.ValueOf(next).Elem())
	require.Greater(t, fields, 20)
	unchanged, err := json.Marshal(next)
	require.NoError(t, err)
	expected, err := json.Marshal(before)
	require.NoError(t, err)
	require.JSONEq(t, string(expected), string(unchanged), "each change was undone")
}

// namedInDiff returns the word that must be in the line about a field: its name, or that
// of the short object that the line shows whole.
func namedInDiff(path string) string {
	parts := strings.Split(path, ".")
	switch last := parts[len(parts)-1]; {
	case parts[0] == "probe":
		return "probe"
	case parts[0] == "records", parts[0] == "routers":
		return parts[0][:len(parts[0])-1]
	case last == "name" || last == "regions" || last == "pops":
		return map[int]string{1: "region", 2: "(region|pop)", 3: "pop"}[len(parts)]
	case last == "lat" || last == "lon":
		return "location"
	default:
		return last
	}
}

func TestTopologyDiffShowsOnlyWhatChanges(t *testing.T) {
	diff := func(replacements ...string) string {
		return topologyDiff(parsedTopology(t, fullTopology), parsedTopology(t, strings.NewReplacer(replacements...).Replace(fullTopology)))
	}
	require.Equal(t, "  ~ pop ams1: capacity 20 → 30\n", diff("capacity: 20", "capacity: 30"))
	require.Equal(t, "  ~ pop ams1: weight 3 → 1; capacity 20 → as measured\n", diff("weight: 3, capacity: 20, ", ""))
	require.Equal(t, "  ~ pop ams1: clients added: 192.0.2.0/24; clients removed: 198.51.100.0/25\n", diff("198.51.100.0/25", "192.0.2.0/24"))
	require.Equal(t, "  ~ pop fra1: addresses 203.0.113.20 → 203.0.113.21\n", diff("203.0.113.20", "203.0.113.21"))
	require.Equal(t, "  ~ record www TXT: one, two; ttl 60 s → \"one, two\"; ttl 60 s\n", diff("[one, two]", "['one, two']"))
	require.Contains(t, topologyDiff(&region.Topology{}, parsedTopology(t, fullTopology)),
		"+ pop ams1 of eu-west: 203.0.113.10, 203.0.113.11; at 52.37, 4.9; weight 3; capacity 20; clients 198.51.100.0/25, 198.51.100.128/25\n")
}

func TestTopologyDiffShowsOtherOrders(t *testing.T) {
	for _, order := range []struct {
		swap func(*region.Topology)
		want string
	}{
		{func(n *region.Topology) { n.Regions[0], n.Regions[1] = n.Regions[1], n.Regions[0] }, "order of regions: eu-west, us-east → us-east, eu-west"},
		{func(n *region.Topology) { p := n.Regions[0].PoPs; p[0], p[1] = p[1], p[0] }, "region eu-west: another order of pops"},
		{func(n *region.Topology) { a := n.Regions[0].PoPs[0].Addresses; a[0], a[1] = a[1], a[0] }, "pop ams1: another order of addresses"},
		{func(n *region.Topology) { c := n.Regions[0].PoPs[0].Clients; c[0], c[1] = c[1], c[0] }, "pop ams1: another order of clients"},
		{func(n *region.Topology) { n.Records[0], n.Records[1] = n.Records[1], n.Records[0] }, "another order of records"},
	} {
		next := parsedTopology(t, fullTopology)
		order.swap(next)
		require.Equal(t, "  ~ "+order.want+"\n", topologyDiff(parsedTopology(t, fullTopology), next))
		next.Zone = "other.example.com"
		require.Contains(t, topologyDiff(parsedTopology(t, fullTopology), next), "  ~ "+order.want+"\n", "along with another change")
	}
	written := parsedTopology(t, strings.Replace(fullTopology, "name: fra1,", "name: fra1, weight: 1,", 1))
	require.Contains(t, topologyDiff(parsedTopology(t, fullTopology), written), "  the text differs, but not what it means\n")
}

func TestTopologyDiffShowsRecords(t *testing.T) {
	of := func(records string) *region.Topology {
		topology, err := region.ParseTopology([]byte("{zone: a.b, regions: [{name: r, pops: [{name: p, addresses: [192.0.2.1]}]}], records: [" + records + "]}"))
		require.NoError(t, err)
		return topology
	}
	require.Equal(t, "  - record y A: 192.0.2.2; ttl 300 s\n  + record @ MX: 10 m.c; ttl 300 s\n  ~ record x TXT: old; ttl 300 s → new, more; ttl 60 s\n", topologyDiff(of("{name: x, type: TXT, values: [old]}, {name: y, type: A, values: [192.0.2.2]}"),
		of("{name: x, type: TXT, values: [new, more], ttl: 60}, {name: '@', type: MX, values: [10 m.c]}")))
}
