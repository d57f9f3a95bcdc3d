package config

import (
	_ "embed"
	"net/netip"

	"github.com/weir-edge/weir/internal/shedding"
)

// SampleRules are the rules of -dev.
//
//go:embed sample-rules.yaml
var SampleRules string

//go:embed sample-shedder.yaml
var sampleShedder []byte

// Dev is the configuration of -dev: memory store and the built-in origin at
// that address. This machine is a trusted proxy, so that one person can play many clients.
func Dev(origin string) *Config {
	c := Defaults()
	c.Store.Kind = "memory"
	c.TrustedProxies = []string{"127.0.0.0/8"}
	c.Trusted = []netip.Prefix{netip.MustParsePrefix(c.TrustedProxies[0])}
	settings, err := shedding.Parse(sampleShedder)
	if err != nil {
		panic(err) // it is embedded, and a test parses it
	}
	settings.Version = shedding.VersionConfig
	c.Shedder.Document = settings
	c.Upstreams = []Upstream{{URL: "http://" + origin}}
	c.Server.MaxConnections = 1000 // with few open files allowed, the default would greet with a warning
	c.Shutdown.Delay = 0
	c.LegacyHeaders = true
	c.Log.Level = "info"
	return &c
}
