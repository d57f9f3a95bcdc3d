// Leases: one big tenant at two edges of a region until its limit is used up, and tenants of the
// other regions that reach theirs repeatedly. What passes is exact, although almost no decision
// calls Redis.
import { Keys } from 'k6/x/weir';
import { sleep } from 'k6';
import { Trend } from 'k6/metrics';
import exec from 'k6/execution';
import { act, ask, byEdge, calm, director, each, finish, network, regions, rule, steadily, summary } from './lib.js';

const tenant = rule('tenant');
rule('leased');
const home = regions[0];
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'uniform', n: 1, seed: 9, cidr: network(r) })));
const calls = new Trend('calls_a_decision');

// The tenant's requests per second, and how long to measure them once its key is hot. A third of the
// time remains for refusals.
const rate = 800;
const warm = 3;
const measured = tenant.burst / rate - warm - 1;
const duration = `${Math.ceil(1.3 * (tenant.burst / rate))}s`;

export const options = {
  scenarios: Object.assign(each((region) => steadily(region === home ? rate : 130, duration)), director),
  thresholds: Object.assign(calm(), { calls_a_decision: ['max<=0.01'] }),
};

export function direct() {
  sleep(warm);
  const before = JSON.parse(act(`calls/${home}`));
  sleep(measured);
  const after = JSON.parse(act(`calls/${home}`));
  calls.add((after.calls - before.calls) / (after.decisions - before.decisions));
}
export default function () {
  const region = __ENV.REGION;
  const limit = region === home ? 'tenant' : 'leased';
  ask(region, byEdge(region, `/load/${limit}`, exec.scenario.iterationInTest % 2), keys[region].next().key, limit);
}
export const teardown = finish;
export const handleSummary = summary('one big tenant, allowed, costs Redis at most a call in a hundred decisions; leased limits are exact');
