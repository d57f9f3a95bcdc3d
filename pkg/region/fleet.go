package region

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Fleet is the content of a fleet file: all regions, and how to reach each one's Consul.
type Fleet struct {
	Regions []FleetRegion `yaml:"regions" json:"regions"` // changes lock and change the first before all others
	// KeepVersions is how many versions of each kind of document a change keeps in each
	// region: at least 10, or 0 for all; absent: 200.
	KeepVersions *int `yaml:"keep_versions" json:"keep_versions,omitempty"`
}

// LeastVersions is the smallest KeepVersions: an operator must be able to roll back.
const LeastVersions = 10

// FleetRegion is one region of a fleet file.
type FleetRegion struct {
	Name   string        `yaml:"name" json:"name"`     // as in node.region of its edges
	Consul consul.Config `yaml:"consul" json:"consul"` // how to reach its Consul
	// AdminTokenFile is the file that holds the token of the edges' admin listeners.
	AdminTokenFile string `yaml:"admin_token_file" json:"admin_token_file,omitempty"`
	// AdminNetworks are where the token may go; over TLS, it also needs admin_tls.ca_file.
	AdminNetworks []netip.Prefix `yaml:"admin_networks" json:"admin_networks,omitempty"`
	// AdminTLS is how to verify admin listeners that use TLS; absent: by the system's authorities.
	AdminTLS *certs.Client `yaml:"admin_tls" json:"admin_tls,omitempty"`
}

// LoadFleet reads and validates a fleet file. Its error names every fault with its path. Relative
// paths are resolved against the fleet file's directory.
func LoadFleet(file string) (*Fleet, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read fleet file: %w", err)
	}
	f := &Fleet{}
	root, faults := field.Load(data, f, &field.Form{MaxBytes: 1 << 20, Empty: "name at least one region under regions", Lenient: true, Aliases: true, Exponents: true})
	if faults == nil {
		for i := range f.Regions {
			f.Regions[i].resolvePaths(filepath.Dir(file))
		}
		faults = root.Locate(f.validate())
	}
	if faults != nil {
		return nil, faults.In(file)
	}
	return f, nil
}

// resolvePaths resolves relative paths against the fleet file's directory.
func (r *FleetRegion) resolvePaths(folder string) {
	names := []*string{&r.AdminTokenFile, &r.Consul.TokenFile}
	for _, t := range []*certs.Client{r.Consul.TLS, r.AdminTLS} {
		if t != nil {
			names = append(names, &t.CAFile, &t.CertFile, &t.KeyFile)
		}
	}
	for _, name := range names {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(folder, *name)
		}
	}
}

func (f *Fleet) validate() (all field.Errors) {
	if len(f.Regions) == 0 {
		all.Add("regions", "must name at least one, as in [{name: eu-west, consul: {addr: \"127.0.0.1:8500\"}}]")
	}
	if n := f.KeepVersions; n != nil && *n != 0 && *n < LeastVersions {
		all.Add("keep_versions", "must be 0, which keeps all, or at least %d (got %d)", LeastVersions, *n)
	}
	type location struct{ addr, datacenter, prefix string }
	names, locations := map[string]int{}, map[location]int{}
	for i := range f.Regions {
		r := &f.Regions[i]
		at := fmt.Sprintf("regions[%d]", i)
		if err := consul.CheckName(r.Name); err != nil {
			all.Add(at+".name", "%v", err)
		} else if first, twice := names[r.Name]; twice {
			all.Add(at+".name", "%s is already the name of regions[%d]; give each its own", r.Name, first)
		} else {
			names[r.Name] = i
		}
		all.Take(at+".consul", r.Consul.Validate())
		_, addr := r.Consul.Endpoint()
		p := location{addr, r.Consul.Datacenter, cmp.Or(r.Consul.Prefix, consul.DefaultPrefix)}
		if first, twice := locations[p]; twice {
			all.Add(at+".consul", "is the same as that of regions[%d]; correct addr or datacenter, or remove one of them", first)
		} else {
			locations[p] = i
		}
		all.File(at+".admin_token_file", r.AdminTokenFile)
		if r.AdminTokenFile != "" && len(r.AdminNetworks) == 0 {
			all.Add(at+".admin_networks", "is required with admin_token_file: list the networks of the edges' admin listeners, as [10.1.0.0/16]; the token is sent nowhere else")
		}
		all.Take(at+".admin_tls", r.AdminTLS.Validate())
	}
	return all
}

// Select returns the named regions in file order, or all of them if names is empty.
func (f *Fleet) Select(names []string) ([]FleetRegion, error) {
	if len(names) == 0 {
		return slices.Clone(f.Regions), nil
	}
	known := make([]string, len(f.Regions))
	var chosen []FleetRegion
	for i, r := range f.Regions {
		known[i] = r.Name
		if slices.Contains(names, r.Name) {
			chosen = append(chosen, r)
		}
	}
	var wrong []error
	for _, name := range names {
		if !slices.Contains(known, name) {
			wrong = append(wrong, fmt.Errorf("no region %q in the fleet file%s", name, cmp.Or(field.Suggest(name, known...), "; it has "+strings.Join(known, ", "))))
		}
	}
	return chosen, errors.Join(wrong...)
}
