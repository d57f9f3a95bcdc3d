// Steady: five algorithms, three regions, half of the requests by name and half to the
// region's edges in turn. No violation is allowed.
import { Keys } from 'k6/x/weir';
import exec from 'k6/execution';
import { ask, byEdge, byName, calm, each, finish, full, network, regions, rule, steadily, summary } from './lib.js';

const algorithms = ['rolling', 'sliding', 'fixed', 'bucket', 'leaky'];
algorithms.forEach(rule);
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'zipf', n: 6, seed: 1, cidr: network(r) })));

export const options = { scenarios: each(steadily(full ? 240 : 180, full ? '5m' : '12s')), thresholds: calm() };

export default function () {
  const region = __ENV.REGION;
  const n = exec.scenario.iterationInTest;
  const limit = algorithms[n % algorithms.length];
  const path = `/load/${limit}`;
  ask(region, n % 2 ? byName(path) : byEdge(region, path, Math.floor(n / 2)), keys[region].next().key, limit);
}
export const teardown = finish;
export const handleSummary = summary('five algorithms, many clients');
