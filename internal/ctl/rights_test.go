package ctl

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// Calling Consul's whole API directly, a token can do what the manual says and nothing else.
func TestRightsOfTokens(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: "eu-west", ACL: true})
	kinds := []string{"rules", "shedder", "policy", "topology", "drain", "clients", "acts"}
	var keys []string
	for _, kind := range kinds {
		for _, key := range []string{"current", "versions/v", "signatures/v", "history/2026/11/x", "head", "lock", "canary/ams1"} {
			keys = append(keys, "weir/"+kind+"/"+key)
		}
	}
	keys = append(keys, "weir/spill", "weir/region", "weir/new", "weir/rulesx", "other")
	for _, key := range keys {
		server.Set(t, key, []byte("kept"))
	}
	require.NoError(t, server.Client().Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "weir-edge-1", Name: "weir-edge"}))
	require.Eventually(t, func() bool { // the agent tells the catalog later
		list, _, err := server.Client().Health().Service("weir-edge", "", false, nil)
		return err == nil && len(list) == 1
	}, patience, tick)
	below := func(prefixes ...string) func(string) bool {
		return func(key string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
		}
	}
	for role, may := range map[string]struct {
		read, write     func(key string) bool
		sees, registers bool // edges
	}{
		"weir-regionctl": {
			below("weir/rules/", "weir/shedder/", "weir/policy/", "weir/clients/", "weir/topology/", "weir/drain/", "weir/acts/", "weir/region"),
			below("weir/rules/", "weir/shedder/", "weir/policy/", "weir/clients/", "weir/topology/", "weir/drain/", "weir/acts/", "weir/region"), true, false,
		},
		"weir-author": {below("weir/"), below("weir/rules/"), true, false},
		"weir-reader": {below("weir/"), below(), true, false},
		"weir-lists":  {below("weir/clients/", "weir/region"), below("weir/clients/"), false, false},
		"weir-dns":    {below("weir/topology/", "weir/drain/", "weir/spill"), below("weir/spill"), true, false},
		"weir-edge":   {below("weir/rules/", "weir/shedder/", "weir/policy/", "weir/clients/", "weir/topology/"), below(), true, true},
	} {
		t.Run(role, func(t *testing.T) {
			_, secret := server.NewToken(t, testenv.Policy(t, role))
			c, err := api.NewClient(&api.Config{Address: server.Addr(), Token: secret})
			require.NoError(t, err)
			denied := func(err error) bool {
				if err != nil {
					require.Contains(t, err.Error(), "response code: 403 (", "%v", err)
				}
				return err != nil
			}
			for _, key := range keys {
				pair, _, err := c.KV().Get(key, nil)
				if seen := !denied(err) && pair != nil; seen != may.read(key) {
					t.Errorf("%s: reads: %t", key, seen)
				}
				_, err = c.KV().Put(&api.KVPair{Key: key, Value: []byte("mine")}, nil)
				if written := !denied(err); written != may.write(key) {
					t.Errorf("%s: writes: %t", key, written)
				}
				_, _, _, err = c.KV().Txn(api.KVTxnOps{{Verb: api.KVSet, Key: key, Value: []byte("mine")}}, nil)
				if !may.write(key) {
					require.Equal(t, []byte("kept"), server.Stored(t, key), "%s: %v", key, err)
				}
				_, err = c.KV().Delete(key, nil)
				if removed := !denied(err); removed != may.write(key) {
					t.Errorf("%s: removes: %t", key, removed)
				}
				server.Set(t, key, []byte("kept"))
			}
			_, err = c.KV().DeleteTree("weir/", nil)
			require.True(t, denied(err), "removes everything")

			err = c.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: role, Name: "weir-edge"})
			require.Equal(t, may.registers, !denied(err), "registers an edge")
			err = c.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: role + "-other", Name: "other"})
			require.True(t, denied(err), "registers another service")
			_, err = c.Catalog().Register(&api.CatalogRegistration{Node: "evil", Address: "192.0.2.1"}, nil)
			require.True(t, denied(err), "adds a node")
			list, _, err := c.Health().Service("weir-edge", "", false, nil)
			require.Equal(t, may.sees, !denied(err) && len(list) > 0, "sees edges")
			for _, path := range []string{"/v1/acl/tokens", "/v1/acl/policies", "/v1/operator/raft/configuration", "/v1/snapshot"} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr()+path, nil)
				require.NoError(t, err)
				request.Header.Set("X-Consul-Token", secret)
				answer, err := http.DefaultClient.Do(request)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, http.StatusForbidden, answer.StatusCode, path)
			}
			_, _, err = c.Session().Create(&api.SessionEntry{Name: "x"}, nil)
			require.True(t, denied(err), "makes a session")
			_, _, err = c.Event().Fire(&api.UserEvent{Name: "x"}, nil)
			require.True(t, denied(err), "fires an event")
			_, _, err = c.ACL().TokenCreate(&api.ACLToken{}, nil)
			require.True(t, denied(err), "makes a token")
		})
	}
}
