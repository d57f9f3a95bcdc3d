// Zipf tail: few clients with very many requests, very many clients with few.
import { Keys } from 'k6/x/weir';
import exec from 'k6/execution';
import { ask, byEdge, calm, each, finish, full, network, regions, rule, steadily, summary } from './lib.js';

rule('api');
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'zipf', exponent: 1.1, n: 20000, seed: 4, cidr: network(r) })));

export const options = { scenarios: each(steadily(full ? 300 : 150, full ? '5m' : '12s')), thresholds: calm() };

export default function () {
  const region = __ENV.REGION;
  ask(region, byEdge(region, '/load/api', exec.scenario.iterationInTest), keys[region].next().key, 'api');
}
export const teardown = finish;
export const handleSummary = summary('20,000 clients a region by Zipf (1.1)');
