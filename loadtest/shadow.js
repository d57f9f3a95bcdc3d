// The proof that a run can fail: the edges have this rule in shadow, and the script passes
// it off as enforced. The run fails if the oracle does not object.
import { Keys } from 'k6/x/weir';
import exec from 'k6/execution';
import { ask, byEdge, each, finish, network, regions, rule, steadily, summary } from './lib.js';

rule('in-shadow');
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'uniform', n: 3, seed: 9, cidr: network(r) })));
const thresholds = { weir_overadmitted: ['count==0'] };
regions.forEach((r) => (thresholds[`weir_overadmitted{region:${r}}`] = ['count==0']));
export const options = { scenarios: each(steadily(60, '5s')), thresholds };

export default function () {
  const region = __ENV.REGION;
  ask(region, byEdge(region, '/load/shadow', exec.scenario.iterationInTest), keys[region].next().key, 'in-shadow');
}
export const teardown = finish;
export const handleSummary = summary('a rule in shadow passed off as enforced: must be found');
