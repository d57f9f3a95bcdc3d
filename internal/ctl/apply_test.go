package ctl

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// Most tests of commands share two Consuls, each test with its own keys.
func TestFleet(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"lost answer":     testLostAnswer,
		"look is bounded": testLookIsBounded,
	})
}

// inFleets runs tests with two Consuls, each test with its own keys.
func inFleets(t *testing.T, tests map[string]func(*testing.T, *testFleet)) {
	names := []string{"eu-west", "us-east"}
	consuls := map[string]*testenv.Consul{}
	for _, name := range names {
		consuls[name] = testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: name})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFleet(t, "test"+time.Now().Format("150405.000000000"), names, consuls))
		})
	}
}

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}
