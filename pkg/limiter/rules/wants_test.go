package rules_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func TestWants(t *testing.T) {
	for rule, want := range map[string]string{
		"key: [client_ip]":                         "",
		"key: [host, path, method]":                "",
		"match: {paths: [/orders]}, key: []":       "path=/orders",
		"key: ['header:x-tenant', 'cookie:sid']":   "header=X-Tenant:…, cookie=sid=…",
		"key: ['query:user', tier]":                "path=…?user=…, tier=…",
		"key: ['header:X-Tenant'], missing: limit": "",
		"match: {clients: [10.0.0.0/8], hosts: [a.example], methods: [POST, PUT, PATCH, DELETE], headers: {x-tenant: secret}}, key: ['header:x-tenant']": "client=10.0.0.0/8, host=a.example, method=POST or PUT or PATCH or …, header=X-Tenant:…",
		"match: {not: {paths: [/a]}}, key: []":                        "nothing that match.not exempts",
		"domain: edge, descriptors: [{key: user}], key: [descriptor]": "domain=edge, entry=KEY=… of its descriptors",
	} {
		set, err := rules.Load([]byte("rules: [{id: a, limit: 1, window: 1s, " + rule + "}]"))
		require.NoError(t, err, rule)
		require.Equal(t, want, strings.Join(set.Rules()[0].RequiredParams(), ", "), rule)
	}
}
