// Attacker: in each region one client that never waits, among many that obey. It gets its limit;
// the others are not affected.
import { Keys } from 'k6/x/weir';
import { Counter } from 'k6/metrics';
import exec from 'k6/execution';
import { ask, byEdge, byName, calm, each, finish, full, network, regions, rule, steadily, summary } from './lib.js';

rule('api');
const refused = new Counter('others_refused');
const attackers = new Counter('attackers_refused');
const duration = full ? '5m' : '12s';
const bot = {};
const others = {};
for (const r of regions) {
  bot[r] = new Keys({ kind: 'retrying_bot', policy: 'ignore', n: 1, cidr: network(r), stream: 1 });
  others[r] = new Keys({ kind: 'uniform', n: 5000, seed: 3, cidr: network(r, 1) });
}

export const options = {
  scenarios: Object.assign(each(steadily(100, duration, { exec: 'attack' }), 'attack-'), each(steadily(40, duration), 'others-')),
  thresholds: Object.assign(calm(), { others_refused: ['count==0'], attackers_refused: ['count>0'] }),
};

export function attack() {
  const region = __ENV.REGION;
  const res = ask(region, byEdge(region, '/load/api', exec.scenario.iterationInTest), bot[region].next().key, 'api', { tags: { who: 'attacker' } });
  attackers.add(res.limited ? 1 : 0);
}
export default function () {
  const region = __ENV.REGION;
  const res = ask(region, byName('/load/api'), others[region].next().key, 'api', { tags: { who: 'other' } });
  refused.add(res.status === 200 ? 0 : 1);
}
export const teardown = finish;
export const handleSummary = summary('a client that never waits, at ten times its limit, among 5,000 others');
