package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that passes everything: over-admissions show which requests the oracle counts
// together.
func TestCounted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	// f returns how many of the requests exceed a limit of 1.
	f := func(beyond float64, rule string, requests ...string) {
		t.Helper()
		v := newVU(t, `
			const judge = weir.oracle({ fresh: true });
			judge.rule(Object.assign({ id: 'a', limit: 1, window: '1h' }, `+rule+`));
			const c = new weir.Client({ region: 'eu' });
			const ask = (key, method, path, headers) => c.request(method || 'GET', '`+s.URL+`' + (path || '/'), null,
				{ headers: Object.assign({ 'X-Forwarded-For': key }, headers), limits: { a: key } });`)
		for _, r := range requests {
			v.do(t, fmt.Sprintf("ask(%s)", r))
		}
		got, _ := v.sum("weir_overadmitted")
		require.Equal(t, beyond, got)
	}
	f(0, `{ key: ['client_ip'] }`, `'203.0.113.1'`, `'203.0.113.2'`)
	f(1, `{ key: ['client_ip'] }`, `'2001:db8::1'`, `'2001:db8::2'`)
	f(0, `{ key: ['client_ip/128'] }`, `'2001:db8::1'`, `'2001:db8::2'`)
	f(1, `{ key: ['client_ip/56'] }`, `'2001:db8:0:1::1'`, `'2001:db8:0:2::2'`)
	f(1, `{ key: ['client_net'] }`, `'203.0.113.1'`, `'203.0.113.2'`)
	f(0, `{ key: ['client_net/31/48'] }`, `'203.0.113.1'`, `'203.0.113.2'`)
	f(0, `{ key: ['client_ip', 'path'] }`, `'a'`, `'b'`)

	two := []string{`'203.0.113.1', 'POST', '/api/x', { 'X-Monitor': '1' }`, `'203.0.113.1', 'POST', '/api/x', { 'X-Monitor': '1' }`}
	not := func(beyond float64, not string) {
		t.Helper()
		f(beyond, `{ key: ['client_ip'], match: { paths: ['/api/*'], not: `+not+` } }`, two...)
	}
	not(0, `{ methods: ['POST'], hosts: ['127.0.0.1'], paths: ['/api/*'], headers: { 'x-monitor': '1' }, clients: ['203.0.113.0/24'] }`)
	not(0, `{ clients: ['203.0.113.1'] }`)
	not(1, `{ clients: ['203.0.113.2'] }`)
	not(1, `{ methods: ['GET'], clients: ['203.0.113.0/24'] }`)
	not(1, `{ paths: ['/api'] }`)
	not(1, `{ hosts: ['*.example.com'] }`)
	not(1, `{ headers: { 'X-Monitor': '2' } }`)

	v := newVU(t, `
		weir.oracle().rule({ id: 'a', key: ['client_ip'], limit: 1, window: '1h', match: { not: { clients: ['203.0.113.1'] } } });
		const c = new weir.Client();`)
	_, err := v.VU.Runtime().RunString(`c.get('` + s.URL + `', { limits: { a: 'x' } })`)
	require.ErrorContains(t, err, "limits.a: the rule exempts clients, and a request tells its client by X-Forwarded-For only")
	_, err = v.VU.Runtime().RunString(`weir.oracle().rule({ id: 'b', limit: 1, window: '1h', match: { not: { path: ['/x'] } } })`)
	require.ErrorContains(t, err, `rule "b": match.not: json: unknown field "path"`)
}
