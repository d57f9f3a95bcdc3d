// Flash crowd: within seconds traffic grows fivefold, most of it from a few clients.
import { Keys } from 'k6/x/weir';
import exec from 'k6/execution';
import { ask, byEdge, calm, each, finish, full, network, regions, rule, summary } from './lib.js';

rule('api');
const t = full ? { start: '60s', ramp: '10s', hold: '120s', decay: '60s' } : { start: '3s', ramp: '1s', hold: '5s', decay: '2s' };
const keys = {};
regions.forEach((r) => (keys[r] = new Keys(Object.assign({ kind: 'flash_crowd', n: 2000, hot: 3, seed: 2, cidr: network(r) }, t))));

export const options = {
  scenarios: each((region) => ({ executor: 'ramping-arrival-rate', startRate: 40, timeUnit: '1s', stages: keys[region].stages(40, full ? '5m' : '14s', full ? 60 : 14) })),
  thresholds: calm(),
};

export default function () {
  const region = __ENV.REGION;
  ask(region, byEdge(region, '/load/api', exec.scenario.iterationInTest), keys[region].next().key, 'api');
}
export const teardown = finish;
export const handleSummary = summary('five times the traffic, most of it of three clients a region');
