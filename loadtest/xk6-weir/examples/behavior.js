// The corpus of clients, benign and hostile, that behavior policies are judged on, against an edge
// that enforces one. Each VU is a subject; its kind decides what it sends, and how it reacts.
import { Client, Behavior, behaviorKinds } from 'k6/x/weir';
import { Counter, Rate } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const seconds = Number(__ENV.SECONDS || 70);
const within = Number(__ENV.WITHIN || 1e9); // seconds in which a subject with 200 requests must be detected, if less than the goal
const each = Number(__ENV.EACH || 1); // subjects of each kind
const run = Number(__ENV.RUN || Date.now()) % 8;
const kinds = behaviorKinds();
const client = new Client({ timeout: '10s' });

const harmed = new Rate('behavior_harmed'); // requests of benign subjects that the policy refused or delayed
const detected = new Rate('behavior_detected'); // hostile subjects, in time
const judged = new Counter('behavior_judged'); // of them
const requests = new Counter('behavior_requests');

export const options = {
  scenarios: { corpus: { executor: 'per-vu-iterations', vus: kinds.length * each, iterations: 1, maxDuration: `${seconds + 30}s` } },
  thresholds: { behavior_harmed: ['rate<=0.0005'], behavior_detected: ['rate>=0.95'], behavior_judged: ['count>=4'] },
};

// Whatever the origin answers is no failure here.
const expected = [];
for (let status = 200; status < 600; status++) {
  expected.push(status);
}

// severe reports whether the policy holds the client to be suspicious, or worse. A request that
// it refuses never reaches the origin, which names the tier of the others.
function severe(res) {
  return (res.status === 429 && !res.limited) || /^(suspicious|blocked)/.test(res.headers['X-Behavior-Risk'] || '');
}

export default function () {
  const i = exec.vu.idInTest - 1;
  const at = i % kinds.length;
  const kind = kinds[at];
  const subject = new Behavior({ kind: kind.name, n: Math.floor(i / kinds.length), cidr: `10.${run * 30 + at}.0.0/16` });
  const began = Date.now();
  const elapsed = () => (Date.now() - began) / 1000;
  let sent = 0;
  let found = false;
  for (;;) {
    const turn = subject.next();
    if (elapsed() + turn.wait > seconds) {
      break;
    }
    sleep(turn.wait);
    const headers = Object.assign({ 'X-Forwarded-For': turn.client }, turn.headers);
    const res = client.get(url + turn.path, { headers, expected, tags: { name: kind.name } });
    subject.answered(res.status, res.retryAfter);
    sent++;
    if (!kind.hostile) {
      harmed.add(severe(res), { kind: kind.name });
    } else if (severe(res) && !found) {
      found = true;
      conclude(kind, sent <= 200 || elapsed() <= kind.within);
    }
  }
  requests.add(sent, { kind: kind.name });
  // One that has not had its time is not judged.
  if (kind.hostile && !found && (elapsed() >= kind.within || (sent >= 200 && elapsed() >= within))) {
    conclude(kind, false);
  }
}

function conclude(kind, inTime) {
  if (kind.goal) {
    judged.add(1);
    detected.add(inTime, { kind: kind.name });
  }
}
