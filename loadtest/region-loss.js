// Region loss: all of a region is killed. The DNS router stops naming it, its clients go
// to the next one, and limits hold there; then it comes back.
import { Keys } from 'k6/x/weir';
import { Counter, Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { act, ask, byName, director, each, finish, full, lab, network, phase, regions, rule, steadily, strict, summary } from './lib.js';

const api = rule('api');
const victim = regions[0];
const keys = {};
regions.forEach((r) => (keys[r] = new Keys({ kind: 'zipf', n: 60, seed: 6, cidr: network(r) })));
const elsewhere = new Counter('answered_elsewhere');
const home = new Counter('answered_at_home_again');
const took = new Trend('failed_seconds_after_loss');
const [calm, away, after] = full ? [60, 120, 120] : [5, 10, 8];
const heal = 25; // most of what the region takes to come back

const share = Math.ceil(api.limit / lab.nodes);
const phases = ['loss', 'recovery'];
const bounds = [{
  rule: 'api', region: victim, phases, percent: (100 * lab.nodes * share) / api.limit,
  why: `Before its Redis Cluster is whole again, each of the region's ${lab.nodes} edges counts by itself against ceil(${api.limit} / ${lab.nodes}) = ${share}: ${lab.nodes} × ${share} = ${lab.nodes * share} in a window beside the ${api.limit} that Redis has admitted. A request refused at one edge may still have room in the region. The other regions have a bound of 0 throughout.`,
}];

const thresholds = Object.assign(strict(['before', 'after']), {
  // Requests may fail until the loss is noticed and what the client knows of the DNS is too old.
  failed_seconds_after_loss: [`max<${lab.ttl + 8}`],
  answered_elsewhere: ['count>0'], answered_at_home_again: ['count>0'],
});
for (const r of regions.slice(1)) {
  thresholds[`weir_overadmitted{region:${r}}`] = ['count==0'];
  thresholds[`weir_wrongly_refused{region:${r}}`] = ['count==0'];
  thresholds[`http_req_failed{region:${r}}`] = ['rate==0'];
}
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
export const handleSummary = summary(`all processes of ${victim} are killed, and started again`, bounds, [
  { metric: 'failed_seconds_after_loss', seconds: lab.ttl + 8, why: `An answer names the edges of one PoP, so its clients fail until the router has noticed the loss (8 s at most: the Consul that knew of the edges is gone too) and the answer that they have is older than its TTL of ${lab.ttl} s. No request of theirs fails later, also not while the region comes back.` },
]);
