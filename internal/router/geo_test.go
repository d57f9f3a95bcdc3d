package router

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/region"
)

// geoData is a database that locates each of 100 networks, from 20.0.0.0/24 on, at a latitude of
// 1, 2 or 3 degrees. tools/geodata writes it.
func geoData(t *testing.T, latitude int) []byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("testdata/latitude-%d.mmdb", latitude))
	require.NoError(t, err)
	return b
}

// Somebody who copies a new database over the old one truncates what the router reads.
func TestGeoFileIsOverwritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "city.mmdb")
	require.NoError(t, os.WriteFile(file, geoData(t, 1), 0o600))
	g, err := OpenGeo(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, 0))
	for i := range 100 {
		at, _, known := g.Locate(netip.AddrFrom4([4]byte{20, 0, byte(i), 1}))
		require.True(t, known)
		require.EqualValues(t, 1, at.Lat)
	}
}

// A file that cannot be read leaves the previous database in use, and never makes the router wait.
func TestGeoFileIsBad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "city.mmdb")
	good := geoData(t, 1)
	require.NoError(t, os.WriteFile(file, good, 0o600))
	g, err := OpenGeo(file)
	require.NoError(t, err)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	f := func(want string, latitude float64, replace func() error) {
		t.Helper()
		require.NoError(t, os.RemoveAll(file))
		require.NoError(t, replace())
		out.Reset()
		g.look(log)
		require.Contains(t, out.String(), want)
		g.look(log)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "%s", &out)
		require.Equal(t, strings.Contains(out.String(), "level=ERROR"), strings.HasPrefix(g.fault(), "the GeoIP file cannot be read"), g.fault())
		at, _, known := g.Locate(netip.MustParseAddr("20.0.7.1"))
		require.True(t, known)
		require.Equal(t, latitude, at.Lat)
	}
	data := func(b []byte) func() error { return func() error { return os.WriteFile(file, b, 0o600) } }
	f("city.mmdb: no such file", 1, func() error { return nil })
	f("is not a regular file", 1, func() error { return syscall.Mkfifo(file, 0o600) })
	f("read the new GeoIP database", 3, data(geoData(t, 3)))
	f("city.mmdb: read GeoIP database: ", 3, data(nil))
	f("is not a regular file", 3, func() error { return os.Mkdir(file, 0o700) })
	f("city.mmdb: read GeoIP database: ", 3, data(good[:len(good)/2]))
	f("is larger than 1024 MiB", 3, func() error {
		return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, maxGeo+1))
	})
	f("city.mmdb: read GeoIP database: ", 3, data(good[:len(good)-10]))
	f("read the new GeoIP database", 2, data(geoData(t, 2)))
}

// A database of countries or networks opens like any other.
func TestGeoFileLocatesNobody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "asn.mmdb")
	require.NoError(t, os.WriteFile(file, geoData(t, 1), 0o600))
	g, err := OpenGeo(file)
	require.NoError(t, err)
	r := &router{Config: &Config{Geo: g}, others: &otherRouters{}}
	v := region.NewView(&region.Topology{}, nil, nil)
	m := newMetrics(func() *region.View { return v }, g, func() bool { return true }, func() bool { return false })
	f := func(faulty bool) {
		t.Helper()
		out := httptest.NewRecorder()
		m.handler().ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
		require.Contains(t, out.Body.String(), fmt.Sprintf("\nweir_dns_geoip_faulty %v\n", metric.OneIf(faulty)))
		require.Equal(t, faulty, strings.Contains(strings.Join(r.remarks(v), "\n"), "asn.mmdb locates nobody (10000 clients); it must have location.latitude"))
	}
	for range vainLookups - 1 {
		g.Locate(netip.MustParseAddr("192.0.2.1"))
	}
	f(false)
	g.Locate(netip.MustParseAddr("192.0.2.1"))
	f(true)
	g.Locate(netip.MustParseAddr("20.0.0.1"))
	f(false)
}
