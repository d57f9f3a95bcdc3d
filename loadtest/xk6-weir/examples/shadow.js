// What a broken limiter looks like: the edge has this rule in shadow, and the script
// passes it off as enforced. The thresholds fail, and k6 exits with status 99.
import { Client, oracle } from 'k6/x/weir';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const judge = oracle({ fresh: true });
judge.rule({ id: 'in-shadow', key: ['header:X-Api-Key'], algorithm: 'token_bucket', limit: 5, window: '1s', burst: 5 });

const client = new Client({ region: 'eu-west' });

export const options = {
  vus: 2,
  duration: __ENV.DURATION || '5s',
  thresholds: { 'weir_overadmitted{region:eu-west,rule:in-shadow}': ['count==0'] },
};

export default function () {
  const key = `shadow-${__ENV.RUN || 0}`;
  client.get(`${url}/shadow`, {
    headers: { 'X-Api-Key': key, 'X-Forwarded-For': `10.251.${__VU}.${__ITER % 250}` },
    limits: { 'in-shadow': key },
  });
}

export function teardown() {
  judge.finish();
}

export function handleSummary() {
  return { stdout: JSON.stringify({ report: judge.report() }) + '\n' };
}
