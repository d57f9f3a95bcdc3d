package region

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Fleet is a fleet file: all regions, and how to reach each one's Consul.
type Fleet struct {
	Regions []FleetRegion `yaml:"regions" json:"regions"`
}

// FleetRegion is one region of a fleet file.
type FleetRegion struct {
	Name   string       `yaml:"name" json:"name"`
	Consul ConsulConfig `yaml:"consul" json:"consul"`
	// AdminTokenFile holds the token of the edges' admin listeners.
	AdminTokenFile string `yaml:"admin_token_file" json:"admin_token_file,omitempty"`
}

// LoadFleet reads and checks a fleet file. Its error names every fault with its
// path, such as regions[1].consul.addr. A file that it names by a relative path
// is looked for beside the fleet file.
func LoadFleet(file string) (*Fleet, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read fleet file: %w", err)
	}
	f, err := parseFleet(data, filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

func parseFleet(data []byte, folder string) (*Fleet, error) {
	f := &Fleet{}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict(), yaml.DisallowUnknownField())
	if err := dec.Decode(f); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty; name at least one region under regions")
	} else if err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if dec.Decode(&yaml.MapSlice{}) != io.EOF {
		return nil, errors.New("holds a second document after ---; remove that")
	}
	for i := range f.Regions {
		f.Regions[i].beside(folder)
	}
	return f, f.validate()
}

// beside resolves relative paths.
func (r *FleetRegion) beside(folder string) {
	names := []*string{&r.AdminTokenFile, &r.Consul.TokenFile}
	if t := r.Consul.TLS; t != nil {
		names = append(names, &t.CAFile, &t.CertFile, &t.KeyFile)
	}
	for _, name := range names {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(folder, *name)
		}
	}
}

func (f *Fleet) validate() error {
	all := &faults{}
	if len(f.Regions) == 0 {
		all.add("regions", "must name at least one, as in [{name: eu-west, consul: {addr: \"127.0.0.1:8500\"}}]")
	}
	type place struct{ addr, datacenter, prefix string }
	names, places := map[string]int{}, map[place]int{}
	for i := range f.Regions {
		r := &f.Regions[i]
		at := fmt.Sprintf("regions[%d]", i)
		if err := CheckName(r.Name); err != nil {
			all.add(at+".name", "%v", err)
		} else if first, twice := names[r.Name]; twice {
			all.add(at+".name", "%s is the name of regions[%d] already; give each its own", r.Name, first)
		} else {
			names[r.Name] = i
		}
		if err := r.Consul.ValidateAt(at + ".consul"); err != nil {
			all.list = append(all.list, err)
		}
		_, addr := r.Consul.address()
		p := place{addr, r.Consul.Datacenter, cmp.Or(r.Consul.Prefix, DefaultPrefix)}
		if first, twice := places[p]; twice {
			all.add(at+".consul", "is the same as that of regions[%d]; correct addr or datacenter, or remove one of them", first)
		} else {
			places[p] = i
		}
		all.file(at+".admin_token_file", r.AdminTokenFile)
	}
	return errors.Join(all.list...)
}

// Select returns the named regions in the order of the file, or all of them if
// none is named.
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
			wrong = append(wrong, fmt.Errorf("no region %q in the fleet file; it has %s", name, strings.Join(known, ", ")))
		}
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	return chosen, nil
}
