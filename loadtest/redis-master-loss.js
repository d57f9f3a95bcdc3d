// Redis master loss: one of three masters in the first region is killed, and its replica takes
// over. Clients use all edges in turn, the worst case while edges count separately. Clients of
// the other masters must not notice.
import { Counter } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { act, ask, byEdge, director, each, exact, finish, full, judge, lab, network, phase, regions, rule, steadily, strict, summary } from './lib.js';

const api = rule('api');
// For the oracle, clients of the surviving masters have a rule of their own with bound 0.
const staying = 'api-staying-masters';
judge.rule(Object.assign({}, api, { id: staying, as: 'api' }));
const victim = regions[0];
// The replica takes over within seconds; the dead master returns when the machine has time.
const [calm, away, settle, after] = full ? [60, 60, 20, 60] : [5, 8, 15, 16];
const failed = new Counter('failed');
const share = Math.ceil(api.limit / lab.nodes);
const phases = ['before', 'fault', 'recovery', 'after'];
const clients = 12;
const lost = 4; // of them, those whose master is killed
const rate = 180;
// Such a client exceeds its limit in each window of the fault, and must get the limit, less a tenth
// for requests that wait while the replica takes over.
const least = Math.floor(0.9 * lost * api.limit * Math.floor(away / Number(api.window.replace('s', ''))));
const bounds = [{
  rule: 'api', region: victim, phases: ['fault', 'recovery'], fallback: true, least, percent: (100 * lab.nodes * share) / api.limit,
  why: `These are ${lost} clients whose keys the killed master had. While it is unreachable, each of the region's ${lab.nodes} edges counts them on its own against ceil(limit / nodes) = ceil(${api.limit} / ${lab.nodes}) = ${share}: at most ${lab.nodes} × ${share} = ${lab.nodes * share} in a window, in addition to the ${api.limit} that Redis had admitted just before or admits just after. So one window holds at most ${api.limit + lab.nodes * share}. Charges that the master had not yet sent to its replica would come on top. A client that uses one edge alone is refused at ${share}: wrongly by the region's count, rightly by the edge's. These ask all edges in turn, ${rate / clients} times per second each, so that each edge hears of more than its share: what the bound allows they must get, ${lost} × ${api.limit} in each window of ${api.window}, less a tenth for requests that wait while the replica takes over. The ${clients - lost} clients of the two surviving masters (rule ${staying}) and the other regions have a bound of 0.`,
}];
const thresholds = Object.assign(strict(['before', 'after']), exact(regions.slice(1)), {
  failed: ['count==0'],
  [`weir_overadmitted{rule:${staying}}`]: ['count==0'],
  [`weir_wrongly_refused{rule:${staying}}`]: ['count==0'],
  [`weir_retry_after_error{rule:${staying}}`]: ['max==0'],
  [`http_req_failed{region:${victim}}`]: ['rate==0'],
});
export const options = { scenarios: Object.assign(each(steadily(rate, `${calm + away + settle + after}s`)), director), thresholds };

// slot returns the slot of a hash tag in Redis Cluster: its CRC16 (XMODEM).
function slot(tag) {
  let crc = 0;
  for (const c of tag) {
    crc ^= c.charCodeAt(0) << 8;
    for (let bit = 0; bit < 8; bit++) {
      crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
  }
  return crc % 16384;
}

// The runner chooses the master and reports its slots. A client's address is the hash tag of its
// keys, so it determines whether the client loses its master.
export function setup() {
  const { slots } = JSON.parse(act(`choose-master/${victim}`));
  const [its, others] = [[], []];
  for (let i = 1; i < 250; i++) {
    const key = network(victim).replace('0.0/16', `7.${i}`);
    (slots.some(([from, to]) => from <= slot(key) && slot(key) <= to) ? its : others).push(key);
  }
  return its.slice(0, lost).concat(others.slice(0, clients - lost));
}
export function direct() {
  phase('before');
  sleep(calm);
  phase('fault');
  act(`kill-master/${victim}`);
  sleep(away);
  phase('recovery');
  act('heal');
  sleep(5);
  phase('after'); // for what is left
}
export default function (chosen) {
  const region = __ENV.REGION;
  const n = exec.scenario.iterationInTest;
  // Each client sends more than the limit, to every edge in turn.
  const client = n % clients;
  const home = region === victim;
  const key = home ? chosen[client] : network(region).replace('0.0/16', `7.${client + 1}`);
  const res = ask(region, byEdge(region, '/load/api', Math.floor(n / clients) + client), key, home && client >= lost ? staying : 'api');
  failed.add(res.status === 200 || res.status === 429 ? 0 : 1);
}
export const teardown = finish;
export const handleSummary = summary(`a Redis master of ${victim} is killed, its replica takes over, it comes back`, { phases, bounds });
