// A steady load of many clients, judged: nothing may pass beyond the rule, and nothing
// may be refused without a cause.
import { Client, Keys, oracle } from 'k6/x/weir';
import { check } from 'k6';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const judge = oracle({ fresh: true }); // these clients are new
judge.rule({ id: 'per-client', key: ['client_ip'], algorithm: 'rolling_window', limit: 10, window: '1s' });

const client = new Client({ region: 'eu-west' });
// Every run has its own clients, so that the store knows none of them.
const run = Number(__ENV.RUN || Date.now()) % 250;
const keys = new Keys({ kind: 'zipf', n: 200, seed: 1, cidr: `10.${run}.0.0/16` });

export const options = {
  scenarios: { steady: { executor: 'constant-arrival-rate', rate: 300, timeUnit: '1s', duration: __ENV.DURATION || '10s', preAllocatedVUs: 20 } },
  thresholds: {
    weir_overadmitted: ['count==0'],
    weir_wrongly_refused: ['count==0'],
    weir_retry_after_error: ['max==0'],
    'http_req_failed{region:eu-west}': ['rate<0.01'],
  },
};

export default function () {
  const { key } = keys.next();
  const res = client.get(`${url}/steady`, { headers: { 'X-Forwarded-For': key }, limits: { 'per-client': key } });
  check(res, {
    'answered': (r) => r.status === 200 || r.status === 429,
    'says what remains': (r) => r.rateLimit.length > 0 && r.rateLimitError === '',
  });
}

export function teardown() {
  judge.finish();
}

export function handleSummary(data) {
  return { stdout: JSON.stringify({ report: judge.report(), requests: data.metrics.http_reqs.values.count }) + '\n' };
}
