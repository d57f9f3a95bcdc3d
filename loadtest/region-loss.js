// Region loss: every process of a region is killed. The DNS router stops naming the region, its
// clients move to the next one, and limits hold there; then it returns.
import { Keys } from 'k6/x/weir';
import { Counter, Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { act, ask, byName, director, each, exact, finish, full, lab, network, phase, regions, rule, steadily, strict, summary } from './lib.js';

const api = rule('api');
const victim = regions[0];
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'zipf', n: 60, seed: 6, cidr: network(r) })));
const elsewhere = new Counter('answered_elsewhere');
const home = new Counter('answered_at_home_again');
const took = new Trend('failed_seconds_after_loss');
const [calm, away, after] = full ? [60, 120, 120] : [5, 10, 8];
const heal = 25; // most of the time that the region takes to return

const share = Math.ceil(api.limit / lab.nodes);
const phases = ['before', 'loss', 'recovery', 'after'];
// The router confirms the loss with a second check and asks another region about the edges that
// it knew from the lost Consul (docs/OPERATIONS.md); then the client's cached answer must expire.
const leave = lab.ttl + 5;
const bounds = [{
  rule: 'api', region: victim, phases: ['loss', 'recovery'], percent: (100 * lab.nodes * share) / api.limit,
  why: `Before its Redis Cluster is whole again, each of the region's ${lab.nodes} edges counts on its own against ceil(${api.limit} / ${lab.nodes}) = ${share}: ${lab.nodes} × ${share} = ${lab.nodes * share} in a window in addition to the ${api.limit} that Redis has admitted. The lab tells its edges how many share a store: one that has to count them takes the whole limit until Consul has named the others. A request refused at one edge may still have room in the region. The other regions have a bound of 0 throughout.`,
}];

const thresholds = Object.assign(strict(['before', 'after']), exact(regions.slice(1)), {
  // Requests may fail until the router notices the loss and the client's cached answer expires.
  failed_seconds_after_loss: [`max<${leave}`],
  answered_elsewhere: ['count>0'], answered_at_home_again: ['count>0'],
});
export const options = { scenarios: Object.assign(each(steadily(60, `${calm + away + heal + after}s`)), director), thresholds };

export function setup() {
  return { began: Date.now() };
}
export function direct() {
  const began = Date.now();
  phase('before');
  sleep(calm);
  phase('loss');
  act(`kill/${victim}/*`);
  sleep(away);
  phase('recovery');
  act('heal');
  sleep(Math.max(6, calm + away + heal - (Date.now() - began) / 1000));
  phase('after');
}
export default function (data) {
  const region = __ENV.REGION;
  const res = ask(region, byName('/load/api'), keys[region].next().key, 'api');
  const since = (Date.now() - data.began) / 1000 - calm;
  if (region !== victim) {
    return;
  }
  if ((res.status === 0 || res.status >= 500) && since > 0) {
    took.add(Math.min(since, 1e6));
  }
  if (res.status > 0) {
    elsewhere.add(res.region !== victim ? 1 : 0);
    home.add(res.region === victim && since > away + heal ? 1 : 0);
  }
}
export const teardown = finish;
export const handleSummary = summary(`all processes of ${victim} are killed, and started again`, { phases, bounds, waits: [
  { metric: 'failed_seconds_after_loss', seconds: leave, why: `An answer names the edges of one PoP, so its clients fail until the router has noticed the loss (5 s at most, though the Consul that knew of the edges is gone too) and their cached answer has expired after its TTL of ${lab.ttl} s. None of their requests fails later, not even while the region comes back.` },
] });
