// Reports: clients ask for twice their limit at two edges of a region, under rules by which each
// node decides from what it knows. The excess is at most the demand on the edges during the
// delay; the oracle counts it, and edges measure it themselves.
import { Keys } from 'k6/x/weir';
import { sleep } from 'k6';
import { Trend } from 'k6/metrics';
import exec from 'k6/execution';
import { act, ask, byEdge, calm, director, each, edgesOf, finish, full, network, regions, rule, steadily, summary } from './lib.js';

// Twice 100 ms and the lab's store.timeout.
const delay = '1200ms';
const limits = ['reported', 'debt'];
limits.forEach((id) => rule(id, { delay, nodes: edgesOf(regions[0]) }));
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'uniform', n: 1, seed: 11, cidr: network(r) })));
const overshoot = new Trend('overshoot_ratio');
const bound = new Trend('overshoot_of_bound');
const seconds = full ? 120 : 24;

export const options = {
  scenarios: Object.assign(each(steadily(100, `${seconds}s`)), director),
  thresholds: Object.assign(calm(), { overshoot_of_bound: ['max<=1'], overshoot_ratio: ['max>=0'] }),
};

export function direct() {
  sleep(seconds - 1);
  regions.forEach((region) => {
    const found = JSON.parse(act(`overshoot/${region}`));
    overshoot.add(found.overshoot);
    bound.add(found.overshoot / found.bound);
  });
}
export default function () {
  const region = __ENV.REGION;
  const turn = exec.scenario.iterationInTest;
  const limit = limits[turn % 2];
  ask(region, byEdge(region, `/load/${limit}`, Math.floor(turn / 2) % 2), keys[region].next().key, limit);
}
export const teardown = finish;
export const handleSummary = summary('clients at twice a reported limit exceed it by no more than edges are asked for in the delay');
