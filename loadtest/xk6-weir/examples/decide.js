// A gateway that asks an edge whether its requests may pass (docs/GATEWAYS.md), and clients
// that come to the edge itself: both share one count, so no client gets its limit twice.
import { Client, Keys, oracle } from 'k6/x/weir';
import { check } from 'k6';
import exec from 'k6/execution';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const decide = __ENV.DECIDE || 'http://127.0.0.1:8083';
const judge = oracle({ fresh: true });
judge.rule({ id: 'per-client', key: ['client_ip'], algorithm: 'rolling_window', limit: 10, window: '1s' });

const client = new Client({ region: 'eu-west' });
const run = Number(__ENV.RUN || Date.now()) % 250;
const keys = new Keys({ kind: 'zipf', n: 200, seed: 1, cidr: `10.${run}.0.0/16` });

export const options = {
  scenarios: { asked: { executor: 'constant-arrival-rate', rate: 300, timeUnit: '1s', duration: __ENV.DURATION || '10s', preAllocatedVUs: 20 } },
  thresholds: {
    weir_overadmitted: ['count==0'],
    weir_wrongly_refused: ['count==0'],
    weir_retry_after_error: ['max==0'],
    'http_req_failed{region:eu-west}': ['rate<0.01'],
    checks: ['rate==1'],
  },
};

export default function () {
  const { key } = keys.next();
  const limits = { 'per-client': key };
  if (exec.scenario.iterationInTest % 2) {
    const res = client.get(`${url}/asked`, { headers: { 'X-Forwarded-For': key }, limits, tags: { name: 'through the edge' } });
    check(res, { 'answered by the edge': (r) => r.status === 200 || r.limited });
    return;
  }
  // What Caddy and Traefik send about a request of their client.
  const headers = { 'X-Forwarded-For': key, 'X-Forwarded-Method': 'GET', 'X-Forwarded-Uri': '/asked', 'X-Forwarded-Host': 'shop.example.com' };
  const res = client.get(`${decide}/v1/decide`, { headers, limits, expected: [204, 429], tags: { name: 'asked by a gateway' } });
  check(res, {
    'answered the gateway': (r) => r.status === 204 || r.limited,
    'says what remains': (r) => r.rateLimit.length > 0 && r.rateLimitError === '',
  });
}

export function teardown() {
  judge.finish();
}

export function handleSummary(data) {
  return { stdout: JSON.stringify({ report: judge.report(), requests: data.metrics.http_reqs.values.count }) + '\n' };
}
