// Command geodata writes the GeoIP databases that tests read. Its library writes the form of
// GeoLite2 City, and stays out of weir's own graph.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

func main() {
	root := flag.String("root", "..", "the `FOLDER` of weir's module")
	flag.Parse()
	if err := write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "geodata:", err)
		os.Exit(1)
	}
}

func located(lat, lon float64) mmdbtype.Map {
	return mmdbtype.Map{"location": mmdbtype.Map{"latitude": mmdbtype.Float64(lat), "longitude": mmdbtype.Float64(lon)}}
}

func write(root string) error {
	utrecht, frankfurt := located(52.09, 5.12), located(50.0, 8.6)
	named := located(52.09, 5.12)
	named["names"] = mmdbtype.Slice{mmdbtype.Map{"en": mmdbtype.String("x")}}
	for name, records := range map[string]map[string]mmdbtype.Map{
		"pkg/region/testdata/four.mmdb": {"198.51.100.0/24": utrecht, "100.1.0.0/16": frankfurt},
		"pkg/region/testdata/six.mmdb": {
			"198.51.100.0/24": named, "198.51.96.0/22": frankfurt, "2001:db8::/32": frankfurt,
			"100.1.0.0/16": {"country": mmdbtype.Map{"iso_code": mmdbtype.String("NL")}},
			"100.2.0.0/16": {"location": mmdbtype.Map{"latitude": mmdbtype.Float64(1)}},
			"100.3.0.0/16": {"location": mmdbtype.Map{"latitude": mmdbtype.String("north"), "longitude": mmdbtype.String("east")}},
			"100.4.0.0/16": located(1000, 0),
		},
		"internal/router/testdata/latitude-1.mmdb": row(1),
		"internal/router/testdata/latitude-2.mmdb": row(2),
		"internal/router/testdata/latitude-3.mmdb": row(3),
	} {
		version := 6
		if filepath.Base(name) == "four.mmdb" {
			version = 4
		}
		// The time is fixed, so that the files change only with what they hold.
		w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-City", IPVersion: version, IncludeReservedNetworks: true, BuildEpoch: 1})
		if err != nil {
			return err
		}
		for network, record := range records {
			_, prefix, err := net.ParseCIDR(network)
			if err != nil {
				return err
			}
			if err := w.Insert(prefix, record); err != nil {
				return err
			}
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			return err
		}
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// row locates each of 100 networks at this latitude.
func row(latitude float64) map[string]mmdbtype.Map {
	records := map[string]mmdbtype.Map{}
	for i := range 100 {
		records[fmt.Sprintf("20.0.%d.0/24", i)] = located(latitude, float64(i))
	}
	return records
}
