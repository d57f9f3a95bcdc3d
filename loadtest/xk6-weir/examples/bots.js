// Bots that return, among a crowd: some obey Retry-After, some return early.
import { Client, Keys, oracle } from 'k6/x/weir';
import { sleep } from 'k6';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const judge = oracle({ fresh: true });
judge.rule({ id: 'per-client', key: ['client_ip'], algorithm: 'rolling_window', limit: 10, window: '1s' });

const client = new Client({ region: 'us-east' });
const run = Number(__ENV.RUN || Date.now()) % 250;
const obey = new Keys({ kind: 'retrying_bot', policy: 'obey', n: 1000, cidr: `10.${run}.0.0/17` });
const early = new Keys({ kind: 'retrying_bot', policy: 'early', early: 0.3, n: 1000, cidr: `10.${run}.128.0/17` });
const crowd = new Keys({ kind: 'flash_crowd', start: '1s', ramp: '1s', hold: '1s', decay: '1s', hot: 3, n: 500, cidr: `11.${run}.0.0/16` });

export const options = {
  scenarios: {
    obey: { executor: 'constant-vus', vus: 2, duration: __ENV.DURATION || '10s', exec: 'bot', env: { POLICY: 'obey' } },
    early: { executor: 'constant-vus', vus: 2, duration: __ENV.DURATION || '10s', exec: 'bot', env: { POLICY: 'early' } },
    crowd: { executor: 'ramping-arrival-rate', exec: 'one', preAllocatedVUs: 20, stages: crowd.stages(50, __ENV.DURATION || '10s', 8) },
  },
  thresholds: { weir_overadmitted: ['count==0'], weir_wrongly_refused: ['count==0'], weir_retry_after_error: ['max==0'] },
};

function ask(key) {
  return client.get(`${url}/bots`, { headers: { 'X-Forwarded-For': key }, limits: { 'per-client': key } });
}

export function bot() {
  const keys = __ENV.POLICY === 'obey' ? obey : early;
  const turn = keys.next();
  sleep(turn.wait);
  const res = ask(turn.key);
  keys.answered(res.status, res.retryAfter);
}

export function one() {
  ask(crowd.next().key);
}

export function teardown() {
  judge.finish();
}
