package region

import (
	"fmt"
	"net/netip"

	"github.com/oschwald/maxminddb-golang/v2"
)

// GeoIP is a database of address locations in the MaxMind DB format: GeoLite2 City or any
// other with location.latitude and location.longitude.
type GeoIP struct{ db *maxminddb.Reader }

var _ Locator = (*GeoIP)(nil)

// NewGeoIP reads a database. It keeps data, which must not change.
func NewGeoIP(data []byte) (*GeoIP, error) {
	db, err := maxminddb.OpenBytes(data)
	if err != nil {
		return nil, fmt.Errorf("read GeoIP database: %w", err)
	}
	return &GeoIP{db}, nil
}

// Locate looks up an address. A damaged record counts as missing.
func (g *GeoIP) Locate(a netip.Addr) (at Location, network netip.Prefix, known bool) {
	r := g.db.Lookup(a)
	network = r.Prefix()
	if network.Addr().Is4() != a.Is4() {
		network = netip.Prefix{} // an IPv4 address in a database without IPv4
	}
	if r.Err() != nil || !r.Found() {
		return Location{}, network, false
	}
	var lat, lon *float64
	if r.DecodePath(&lat, "location", "latitude") != nil || r.DecodePath(&lon, "location", "longitude") != nil || lat == nil || lon == nil {
		return Location{}, network, false
	}
	if !(*lat >= -90 && *lat <= 90 && *lon >= -180 && *lon <= 180) {
		return Location{}, network, false
	}
	return Location{*lat, *lon}, network, true
}
