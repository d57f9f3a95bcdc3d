// HTTP/2 through an edge: many clients, judged, and bursts whose requests share a connection.
// Every answer must have come over HTTP/2. The edge is that of edge-tls.yaml.
import { Client, Keys, oracle } from 'k6/x/weir';
import { check } from 'k6';
import http from 'k6/http';

const url = __ENV.URL || 'https://127.0.0.1:8443';
const judge = oracle({ fresh: true });
judge.rule({ id: 'per-client', key: ['client_ip'], algorithm: 'rolling_window', limit: 10, window: '1s' });

const client = new Client({ region: 'eu-west', http2: true });
const run = Number(__ENV.RUN || Date.now()) % 250;
const keys = new Keys({ kind: 'zipf', n: 200, seed: 1, cidr: `10.${run}.0.0/16` });

export const options = {
  insecureSkipTLSVerify: true, // the certificate is its own authority
  batch: 40,
  batchPerHost: 40,
  scenarios: {
    judged: { executor: 'constant-arrival-rate', rate: 200, timeUnit: '1s', duration: __ENV.DURATION || '10s', preAllocatedVUs: 20, exec: 'judged' },
    bursts: { executor: 'constant-arrival-rate', rate: 5, timeUnit: '1s', duration: __ENV.DURATION || '10s', preAllocatedVUs: 5, exec: 'burst' },
  },
  thresholds: {
    weir_overadmitted: ['count==0'],
    weir_wrongly_refused: ['count==0'],
    weir_retry_after_error: ['max==0'],
    http_req_failed: ['rate==0'],
    checks: ['rate==1'],
  },
};

http.setResponseCallback(http.expectedStatuses(200, 429));

export function judged() {
  const { key } = keys.next();
  const res = client.get(`${url}/judged`, { headers: { 'X-Forwarded-For': key }, limits: { 'per-client': key } });
  check(res, {
    'over HTTP/2': (r) => r.proto === 'HTTP/2.0',
    'says what remains': (r) => r.rateLimit.length > 0 && r.rateLimitError === '',
  });
}

// burst sends 40 requests of one client at once: its limit of 10 passes, and nothing else.
export function burst() {
  const key = `11.${run}.${__VU % 250}.${__ITER % 250}`;
  const all = http.batch([...Array(40).keys()].map((i) => ['GET', `${url}/burst/${i}`, null, { headers: { 'X-Forwarded-For': key }, tags: { name: 'burst' } }]));
  check(all, {
    'over HTTP/2': (list) => list.every((r) => r.proto === 'HTTP/2.0'),
    'ten of a burst pass': (list) => list.filter((r) => r.status === 200).length >= 10,
    'the others are refused': (list) => list.every((r) => r.status === 200 || (r.status === 429 && r.headers['Retry-After'] !== undefined)),
  });
}

export function teardown() {
  judge.finish();
}

export function handleSummary(data) {
  return { stdout: JSON.stringify({ report: judge.report(), requests: data.metrics.http_reqs.values.count }) + '\n' };
}
