// Shedder step: four times the traffic from one second to the next. Critical requests
// pass, the least important are shed first, and afterwards nothing is.
import { Keys } from 'k6/x/weir';
import { Counter, Rate } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { act, ask, byEdge, director, each, exact, finish, full, network, phase, regions, rule, steadily, strict, summary } from './lib.js';

rule('api');
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'uniform', n: 3000, seed: 5, cidr: network(r) })));
const classes = ['test', 'read', 'write', 'critical'];
const shed = {};
classes.forEach((c) => (shed[c] = new Rate(`shed_${c}`)));
const late = new Counter('shed_after');
const inStep = new Counter('shed_in_step');
const phases = ['before', 'step', 'after'];
const [calm, step, after] = full ? [60, 120, 60] : [5, 10, 10];

// 20 requests per second of 300 ms each are 1.5 in flight at each of four edges, 80 are 6.
export const options = {
  scenarios: Object.assign(each({
    executor: 'ramping-arrival-rate', startRate: 20, timeUnit: '1s', preAllocatedVUs: 30,
    stages: [
      { duration: `${calm}s`, target: 20 }, { duration: '0s', target: 80 }, { duration: `${step}s`, target: 80 },
      { duration: '0s', target: 20 }, { duration: `${after}s`, target: 20 },
    ],
  }), each(steadily(14, `${calm + step + after}s`, { exec: 'insist' }), 'insist-'), director),
  thresholds: Object.assign(strict(phases), exact(), {
    weir_overadmitted: ['count==0'], weir_wrongly_refused: ['count==0'],
    shed_critical: ['rate==0'], shed_in_step: ['count>0'], shed_after: ['count==0'], 'http_req_duration{expected_response:true}': ['p(95)<1500'],
    http_req_failed: ['rate==0'],
  }),
};

export function setup() {
  act('shedder-tight');
  return { began: Date.now() };
}
export function direct() {
  phase('before');
  sleep(calm);
  phase('step');
  sleep(step + 4);
  phase('after');
}
export default function (data) {
  const region = __ENV.REGION;
  const n = exec.scenario.iterationInTest;
  const kind = n % 20 < 2 ? 'critical' : n % 20 < 5 ? 'write' : n % 20 < 15 ? 'read' : 'test';
  const began = (Date.now() - data.began) / 1000;
  const more = { method: kind === 'write' ? 'POST' : 'GET', tags: { class: kind }, expected: [200, 429, 503] };
  if (kind === 'critical' || kind === 'test') {
    more.headers = { 'X-Weir-Class': kind };
  }
  const res = ask(region, byEdge(region, '/load/api?wait=300ms', n), keys[region].next().key, 'api', more);
  shed[kind].add(res.shed);
  if (res.shed && began > calm + step + 5) {
    late.add(1);
  } else if (res.shed && began > calm && began < calm + step) {
    inStep.add(1);
  }
}
// One client per region persists: its requests are critical, so only its limit stops it.
export function insist() {
  const region = __ENV.REGION;
  const more = { headers: { 'X-Weir-Class': 'critical' }, tags: { class: 'critical' } };
  const res = ask(region, byEdge(region, '/load/api', exec.scenario.iterationInTest), network(region, 1).replace('0.0/16', '7.1'), 'api', more);
  shed.critical.add(res.shed);
}
export function teardown() {
  finish();
  act('shedder-back');
}
export const handleSummary = summary('four times the traffic from one second to the next, knees of 0 and 5 in flight', { phases });
