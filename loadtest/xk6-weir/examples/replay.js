// Replays an access log: each request once and on time, by as many VUs as needed.
import { Client, Keys } from 'k6/x/weir';
import exec from 'k6/execution';
import { sleep } from 'k6';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const keys = new Keys({ kind: 'replay', log: open(__ENV.LOG || './access.log'), speed: Number(__ENV.SPEED || 1) });
const client = new Client({ region: 'eu-west' });

export const options = { scenarios: { replay: { executor: 'per-vu-iterations', vus: 5, iterations: 1000000, maxDuration: __ENV.DURATION || '1h' } } };

export default function () {
  const turn = keys.next();
  if (turn.done) {
    exec.test.abort('the log has ended');
  }
  sleep(turn.wait);
  client.request(turn.method, url + turn.path, null, { headers: { 'X-Forwarded-For': turn.key }, tags: { name: 'replay' } });
}
