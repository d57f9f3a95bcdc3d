package field

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type sample struct {
	Text    string            `yaml:"text"`
	Flag    bool              `yaml:"flag"`
	Count   int               `yaml:"count"`
	Size    *int64            `yaml:"size"`
	Share   float64           `yaml:"share"`
	Wait    time.Duration     `yaml:"wait"`
	Window  string            `yaml:"window" as:"duration"`
	Cost    string            `yaml:"cost" as:"number"`
	List    []string          `yaml:"list"`
	Table   map[string]string `yaml:"table" as:"number"`
	Items   []item            `yaml:"items"`
	Address netip.Addr        `yaml:"address"`
	Network netip.Prefix      `yaml:"network"`
	TLS     *item             `yaml:"tls"`
	Ignored chan int
	part    `yaml:",inline"`
}

type item struct {
	Name string `yaml:"name" required:"write what it is called"`
}

type part struct {
	Inner upper `yaml:"inner"`
}

// upper is a word converted to upper case.
type upper string

func (u *upper) UnmarshalField(d *Decoder, n *Node) {
	var text string
	d.Decode(n, &text)
	if text == "bad" {
		d.Fault("must not be bad")
	}
	*u = upper(strings.ToUpper(text))
}

func TestLoad(t *testing.T) {
	text := `
text: a
flag: TRUE
count: -3
size: 7
share: 0.5
wait: 1m30s
window: 10s
cost: 5
list: [x, "1"]
table: {a: 1, "b c": many}
items: [{name: i}]
address: 203.0.113.10
network: 2001:db8::/32
tls: {name: n}
inner: word
`
	got := sample{Text: "default", List: []string{"default"}, Count: 8}
	_, errs := Load([]byte(text), &got, &Form{})
	require.NoError(t, errs.Err())
	require.Equal(t, sample{
		Text: "a", Flag: true, Count: -3, Size: new(int64(7)), Share: 0.5, Wait: 90 * time.Second, Window: "10s", Cost: "5",
		List: []string{"x", "1"}, Table: map[string]string{"a": "1", "b c": "many"}, Items: []item{{"i"}},
		Address: netip.MustParseAddr("203.0.113.10"), Network: netip.MustParsePrefix("2001:db8::/32"), TLS: &item{"n"}, part: part{"WORD"},
	}, got)

	got = sample{Count: 8, List: []string{"default"}}
	_, errs = Load([]byte("{}"), &got, &Form{})
	require.NoError(t, errs.Err())
	require.Equal(t, sample{Count: 8, List: []string{"default"}}, got, "absent fields keep their values")
}

func TestFaults(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, errs := Load([]byte(text), &sample{}, &Form{})
		require.Equal(t, want, strings.Split(errs.Error(), "\n"))
		_, errs = Load([]byte("\n\n"+text), &sample{}, &Form{})
		for _, e := range errs.In("f.yaml") {
			require.Regexp(t, `^f\.yaml:3: `, e.Error())
		}
	}
	f("text: 5", "text: must be a string (got 5); put it in quotes")
	f("text: [a]", "text: must be a string (got a list)")
	f("text: ''", "text: must not be empty; give a value, or remove it")
	f("text:", "text: has no value; give one, or remove the field")
	f("flag: yes", `flag: must be true or false (got "yes")`)
	f("count: 1.5", "count: must be a whole number in plain decimal digits (got 1.5)")
	f("count: 010", "count: must be a whole number in plain decimal digits (got 010)")
	f("count: '5'", `count: must be a whole number (got "5"); remove the quotes`)
	f("count: many", `count: must be a whole number (got "many")`)
	f("count: 1234567890123456789", "count: is too large (got 1234567890123456789)")
	f("share: 1_0.5", "share: must be a number such as 0.8 (got 1_0.5)")
	f("share: .nan", "share: must be a number such as 0.8 (got .nan)")
	f("wait: 10", "wait: must be a duration with a unit (got 10); write 10s for seconds")
	f("wait: soon", `wait: must be a duration such as 250ms, 10s or 1h30m (got "soon")`)
	f("window: 10", "window: must be a duration with a unit (got 10); write 10s for seconds")
	f("cost: 0.5", "cost: must be a whole number in plain decimal digits (got 0.5)")
	f("list: a", `list: must be a list (got "a"); put brackets around it`)
	f("list: [a, 5, ~]", "list[1]: must be a string (got 5); put it in quotes", "list[2]: must be a string (got nothing)")
	f("table: []", "table: must be a map (got a list)")
	f("table: {a b: [], a: x, a: y}", `table."a b": must be a string (got a list)`, "table.a: is written twice; keep one")
	f("items: [a, {}, {nme: x}]", `items[0]: must be a map of fields (got "a")`, "items[1].name: is required; write what it is called",
		"items[2].nme: unknown field; did you mean name?", "items[2].name: is required; write what it is called")
	f("items: [{name: }]", "items[0].name: has no value; write what it is called")
	f("address: 203.0.113.0/24", `address: must be an IP address such as 203.0.113.10 (got "203.0.113.0/24")`)
	f("network: 203.0.113.0", `network: must be a network such as 198.51.100.0/24 (got "203.0.113.0")`)
	f("{text: a, text: b, a b: c}", "text: is written twice; keep one",
		`"a b": unknown field; use text, flag, count, size, share, wait, window, cost, list, table, items, address, network, tls or inner`)
	f("inner: bad", "inner: must not be bad")
	f("tls: 5", "tls: must be a map of fields (got 5)")

	_, errs := Load([]byte("- a"), &sample{}, &Form{})
	require.EqualError(t, errs.In("f.yaml"), "f.yaml: must be a map of fields (got a list)")
	require.EqualError(t, errs, "document: must be a map of fields (got a list)")
}

func TestLenient(t *testing.T) {
	got := sample{Text: "a", Count: 8}
	_, errs := Load([]byte("{text: , flag: , count: '5', window: '', list: [8080, true, 0x1], wait: 0, tls: , later: 1}"), &got, &Form{Lenient: true, Later: true})
	require.NoError(t, errs.Err())
	require.Equal(t, sample{Text: "a", Count: 5, List: []string{"8080", "true", "0x1"}}, got)
}

func TestExponents(t *testing.T) {
	for text, want := range map[string]int{"1e3": 1000, "5.0": 5, "-2e0": -2, "1.5e1": 15} {
		var got sample
		_, errs := Load([]byte("count: "+text), &got, &Form{Exponents: true})
		require.NoError(t, errs.Err())
		require.Equal(t, want, got.Count)
	}
	for _, text := range []string{"1.5", "1e-3", "1e300", "0x10", "010", "1_000", ".inf"} {
		_, errs := Load([]byte("count: "+text), &sample{}, &Form{Exponents: true})
		require.EqualError(t, errs, "count: must be a whole number in plain decimal digits (got "+text+")")
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, errs := Load([]byte(strings.Repeat("an_unknown_field: 1\n", 10_000)), &sample{}, &Form{})
	require.Len(t, errs, MaxFaults+1)
	require.EqualError(t, errs[MaxFaults], "document: has 9000 more problems; fix these first")
	require.Equal(t, 10_000, errs.Count())
	few := errs.Bounded(20)
	require.Len(t, few, 21)
	require.EqualError(t, few[20], "document: has 9980 more problems; fix these first")
	require.Equal(t, 10_000, few.Count())
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"{}", "text: a", "[", "a: &a [*a]", "\x00", `{"text": "a", "list": [1, {}]}`, "items: [{name: a}]\n---\n", "table: {? a}", "\"\r0"} {
		f.Add([]byte(seed))
	}
	breaks := regexp.MustCompile("[\n\r\u0085\u2028\u2029]") // as YAML defines them
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range []*Form{{MaxBytes: 1 << 16}, {MaxBytes: 1 << 16, Lenient: true, Aliases: true, Exponents: true}} {
			_, errs := Load(data, &sample{}, form)
			for _, e := range errs {
				require.NotEmpty(t, e.Msg)
				require.LessOrEqual(t, e.Line, 1+len(breaks.FindAll(data, -1)))
			}
		}
	})
}
