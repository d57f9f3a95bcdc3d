// Rules swap: one limit is halved under load and restored, in all regions. It holds before and
// after; other rules are not affected.
import { Keys } from 'k6/x/weir';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { act, ask, byEdge, director, each, exact, finish, full, judge, network, phase, regions, rule, steadily, strict, summary } from './lib.js';

rule('api');
const swapped = rule('rolling');
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'zipf', n: 30, seed: 8, cidr: network(r) })));
const phases = ['before', 'halved', 'restored'];
const [calm, between, after] = full ? [60, 60, 60] : [4, 9, 9];
// How long regionctl waits at most, plus a window and requests in flight.
const change = 120;
const settle = 5;

export const options = {
  scenarios: Object.assign(each(steadily(120, `${calm + between + after + 4}s`)), director),
  // The changed rule is not judged while the change settles; all others always are.
  thresholds: Object.assign(strict(phases), exact(), { weir_overadmitted: ['count==0'], weir_wrongly_refused: ['count==0'], http_req_failed: ['rate==0'] }),
};

export function direct() {
  phase('before');
  sleep(calm);
  swap('halved', Object.assign({}, swapped, { limit: swapped.limit / 2 }), 'rules-halved');
  sleep(between);
  swap('restored', swapped, 'rules');
}
function swap(name, to, action) {
  judge.replace(to, `${change}s`);
  phase(name);
  act(action);
  judge.replace(to, `${settle}s`);
}
export default function () {
  const region = __ENV.REGION;
  const n = exec.scenario.iterationInTest;
  const limit = n % 2 ? 'api' : 'rolling';
  ask(region, byEdge(region, `/load/${limit}`, Math.floor(n / 2)), keys[region].next().key, limit);
}
export const teardown = finish;
export const handleSummary = summary('a limit is halved and restored, by regionctl, under load', { phases, waits: [
  { metric: 'rules', seconds: settle, why: `regionctl ends once every edge runs the rules. Until then, and for ${settle} s more, the changed rule is not judged; the others are.` },
] });
