package region

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSteering(t *testing.T) {
	f := func(head, eu, us, wantFault, withoutGeo, withGeo string) {
		t.Helper()
		topology := mustParse(t, fmt.Sprintf("{zone: a, %s regions: [{name: eu, pops: [{name: p, addresses: [192.0.2.1] %s}]}, {name: us, pops: [{name: q, addresses: [192.0.2.2] %s}]}]}", head, eu, us))
		if err := topology.CheckSteering(); wantFault == "" {
			require.Empty(t, err)
		} else {
			require.ErrorContains(t, err, wantFault)
		}
		for geo, want := range map[bool]string{false: withoutGeo, true: withGeo} {
			if got := topology.CannotSteer(geo); want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, want)
			}
		}
		if wantFault != "" && withoutGeo != "" {
			for i := range 10_000 { // and so it does
				a := NewView(topology, nil, nil).Choose(Query{Client: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i), byte(i >> 8), 7, 1}), 24), Family: 4})
				require.Equal(t, "p", a.PoPs[0])
			}
		}
	}
	const at, more, all = ", location: {lat: 1, lon: 2}", ", location: {lat: 50, lon: 2}", "no client networks (clients) for eu, us, so all other clients go to eu"
	const refused = "regions: nothing tells clients apart, so all would go to eu; list in the pops the client networks"
	f("", "", "", refused, all, all)
	f("", at, more, refused, all, "")
	f("", ", clients: [10.0.0.0/8]", ", clients: [20.0.0.0/8]", "", "", "")
	f("", ", clients: [10.0.0.0/8]", "", "", "for us, so", "for us, so")
	f("", at, more+", clients: [10.0.0.0/8]", "", "for eu, so", "")
	f("steering: first,", "", ", clients: [10.0.0.0/8]", "", "", "")
	f("steering: first,", "", "", "", "", "")
	f("steering: geoip,", at, more, "", "this router has no --geoip", "")
	f("steering: geoip,", at, more+", clients: [10.0.0.0/8]", "", "this router has no --geoip", "")
	f("steering: geoip,", at, "", "steering: geoip needs a location in at least two regions (got 1)", "this router has no --geoip", "this router has no --geoip")
	require.Empty(t, mustParse(t, recordsOf("")).CheckSteering(), "one region")
	_, err := ParseTopology([]byte("{zone: a, steering: frist, regions: [{name: eu, pops: [{name: p, addresses: [192.0.2.1]}]}]}"))
	require.EqualError(t, err, `steering: must be geoip, first, or left out where clients networks steer (got "frist")`)
}
