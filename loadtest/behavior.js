// Behavior: the corpus for judging behavior policies, in every region under the shipped policy,
// each subject at the region's edges in turn. A client that obeys Retry-After is limited as
// without a policy.
import { Behavior, behaviorKinds } from 'k6/x/weir';
import { Counter, Rate } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { act, ask, byEdge, director, each, exact, finish, full, network, phase, regions, rule, send, summary } from './lib.js';

rule('rolling');
const kinds = behaviorKinds();
// The goal gives a subject 200 requests, or its time; in the short form also those with 200
// requests have this long.
const [seconds, within] = full ? [920, Infinity] : [30, 20];

const harmed = new Rate('behavior_harmed'); // requests of benign subjects that the policy refused or delayed
const detected = new Rate('behavior_detected'); // hostile subjects, in time
const judged = new Counter('behavior_judged'); // of them

const thresholds = Object.assign({ weir_overadmitted: ['count==0'], weir_wrongly_refused: ['count==0'], weir_retry_after_error: ['max==0'] }, exact());
for (const region of regions) {
  thresholds[`behavior_harmed{region:${region}}`] = ['rate<=0.0005'];
  thresholds[`behavior_detected{region:${region}}`] = ['rate>=0.95'];
  thresholds[`behavior_judged{region:${region}}`] = ['count>=4'];
}

export const options = {
  setupTimeout: '120s', teardownTimeout: '120s',
  scenarios: Object.assign(
    each({ executor: 'per-vu-iterations', vus: kinds.length, iterations: 1, maxDuration: `${seconds + 30}s` }),
    each({ executor: 'constant-vus', vus: 1, duration: `${seconds}s`, exec: 'obey' }, 'obey-'),
    director),
  thresholds,
};

export function setup() {
  act('policy-enforced');
}
export function direct() {
  phase('corpus');
}

// severe reports whether the policy ranks the client suspicious or worse. A refused request never
// reaches the origin, which returns the tier of the others.
function severe(res) {
  return (res.status === 429 && !res.limited) || /^(suspicious|blocked)/.test(res.headers['X-Behavior-Risk'] || '');
}

// Each VU is a subject; its kind determines what it sends and how it reacts.
export default function () {
  const region = __ENV.REGION;
  const at = exec.scenario.iterationInTest % kinds.length;
  const kind = kinds[at];
  // A kind's share of the region's addresses: no kind has more than 1,000 in one subject.
  const subject = new Behavior({ kind: kind.name, n: 0, cidr: network(region, 2).replace('0.0/16', `${8 * at}.0/21`) });
  const began = Date.now();
  const elapsed = () => (Date.now() - began) / 1000;
  const tags = { region, kind: kind.name };
  const conclude = (inTime) => {
    if (kind.goal) {
      judged.add(1, tags);
      detected.add(inTime, tags);
    }
  };
  let sent = 0;
  let found = false;
  for (;;) {
    const turn = subject.next();
    if (elapsed() + turn.wait > seconds) {
      break;
    }
    sleep(turn.wait);
    const res = send(region, byEdge(region, turn.path, sent), Object.assign({ 'X-Forwarded-For': turn.client }, turn.headers), { name: kind.name });
    subject.answered(res.status, res.retryAfter);
    sent++;
    if (!kind.hostile) {
      harmed.add(severe(res), tags);
    } else if (severe(res) && !found) {
      found = true;
      conclude(sent <= 200 || elapsed() <= kind.within);
    }
  }
  // A subject that has not had its time is not judged.
  if (kind.hostile && !found && (elapsed() >= kind.within || (sent >= 200 && elapsed() >= within))) {
    conclude(false);
  }
}

// obey asks for more than its limit, and waits as long as Retry-After says. Real clients send Accept.
export function obey() {
  const region = __ENV.REGION;
  const res = ask(region, byEdge(region, '/load/rolling', exec.scenario.iterationInTest), network(region).replace('0.0/16', '7.1'), 'rolling', { headers: { Accept: '*/*', 'User-Agent': 'obey' } });
  harmed.add(severe(res), { region });
  sleep(res.status === 429 ? res.retryAfter : 0.02);
}

export function teardown() {
  finish();
  act('policy-back');
}
export const handleSummary = summary('clients benign and hostile, each at several edges, under an enforced policy', { phases: ['corpus'] });
