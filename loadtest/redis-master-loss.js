// Redis master loss: one of three masters in the first region is killed, and its replica
// takes its place. Clients are spread over all edges, the worst case for counting apart.
import { Counter } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { act, ask, byEdge, director, each, finish, full, lab, network, phase, regions, rule, steadily, strict, summary } from './lib.js';

const api = rule('api');
const victim = regions[0];
const [calm, away, settle, after] = full ? [60, 60, 20, 60] : [5, 8, 10, 6];
const failed = new Counter('failed');
const share = Math.ceil(api.limit / lab.nodes);
const phases = ['fault', 'recovery'];
const bounds = [{
  rule: 'api', region: victim, phases, fallback: true, least: Math.floor(0.8 * 12 * (api.limit / 2) * away), percent: (100 * lab.nodes * share) / api.limit,
  why: `While the master is away each of the region's ${lab.nodes} edges counts its keys by itself against ceil(limit / nodes) = ceil(${api.limit} / ${lab.nodes}) = ${share}: at most ${lab.nodes} × ${share} = ${lab.nodes * share} in a window, beside the ${api.limit} that Redis had admitted just before or admits just after. So one window holds at most ${api.limit + lab.nodes * share}. Charges that the master had not yet sent to its replica would come on top. A client that uses one edge alone is refused at ${share}: wrongly by the region's count, rightly by the edge's. These twelve clients ask all edges in turn, and so must be given nearly what they may have: at least 80 % of 12 × ${api.limit / 2} a second over the fault. Two of three masters stay, and their keys, like the other regions, have a bound of 0.`,
}];
const thresholds = Object.assign(strict(['before', 'after']), { failed: ['count==0'] });
for (const r of regions.slice(1)) {
  thresholds[`weir_overadmitted{region:${r}}`] = ['count==0'];
  thresholds[`weir_wrongly_refused{region:${r}}`] = ['count==0'];
}
export const options = { scenarios: Object.assign(each(steadily(180, `${calm + away + settle + after}s`)), director), thresholds };

export function direct() {
  const began = Date.now();
  phase('before');
  sleep(calm);
  phase('fault');
  act(`kill-master/${victim}`);
  sleep(away);
  phase('recovery');
  act('heal');
  sleep(Math.max(5, calm + away + settle - (Date.now() - began) / 1000));
  phase('after');
}
export default function () {
  const region = __ENV.REGION;
  const n = exec.scenario.iterationInTest;
  // Twelve clients, each with more than the limit, by every edge in turn.
  const client = n % 12;
  const key = network(region).replace('0.0/16', `7.${client + 1}`);
  const res = ask(region, byEdge(region, '/load/api', Math.floor(n / 12) + client), key, 'api');
  failed.add(res.status === 200 || res.status === 429 ? 0 : 1);
}
export const teardown = finish;
export const handleSummary = summary(`a Redis master of ${victim} is killed, its replica takes over, it comes back`, bounds);
