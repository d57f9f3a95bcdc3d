// Spill: one PoP is asked for more than its origin can serve. DNS steering gives some of its
// client networks to other PoPs, no more than needed, and back when the demand falls.
import { Client, Keys } from 'k6/x/weir';
import { Counter, Rate } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { act, ask, byEdge, byName, director, each, exact, finish, full, lab, network, phase, pops, regions, rule, steadily, strict, summary } from './lib.js';

rule('spill');
const sites = lab.regions.flatMap((r) => r.pops);
const victim = sites[0];
// What the origin behind a PoP serves: 28 requests at a time for each edge, of 400 ms each. With a
// knee of 50, shedding begins at 40 in flight: 28 that are served and 12 that wait.
const workers = 28;
const seconds = 0.4;
const serves = (pop) => (pop.addresses.length * workers) / seconds;
function path(pop) {
  return `/load/spill?wait=${1000 * seconds}ms&lane=${pop.name}&workers=${pop.addresses.length * workers}`;
}

// Each VU asks for two networks in turn, together 160 for each edge. Of fewer, a share is not what
// it should be, by chance. In the overload each asks about as often as its answer expires.
const vus = 80 * victim.addresses.length;
const perVU = 2;
const networks = vus * perVU;
// Half of what an origin serves is never shed, but the machine may stall. After a second of that,
// what came meanwhile and what is in flight may exceed the 40 of each edge: 9 requests of 35 a
// second. That is less than the 1% which thresholds allow in every phase that lasts 26 s.
const [calm, step, settled, back, home] = full ? [60, 60, 300, 60, 60] : [30, 45, 30, 40, 30];
const ends = [calm, step, settled, back, home].map((_, i, all) => all.slice(0, i + 1).reduce((a, b) => a + b));
const phases = ['before', 'step', 'settled', 'after', 'home'];
const usual = 0.5;
const overload = 1.3;

const shed = {};
const away = {};
phases.forEach((p) => {
  shed[p] = new Rate(`shed_${p}`);
  away[p] = new Rate(`away_${p}`);
});
const first = new Rate('shed_at_first');
const elsewhere = new Rate('shed_elsewhere');
const moves = new Counter('moves');
const late = new Counter('moves_settled');
const left = new Counter('left_again');

// What goes elsewhere follows from docs/DNS.md: a PoP over 97% of its capacity gives clients away,
// down to 93%. It measures its capacity to a tenth (pkg/shedder/onset_test.go). So the least that
// goes is what is over 97% of a capacity that is a tenth too high; the most is what is over 93% of one
// that is a tenth too low, and what chance adds where hashes divide so few networks: 2.58 standard
// deviations, for one run in a hundred.
const tenth = 0.1;
const least = 1 - (0.97 * (1 + tenth)) / overload;
const surplus = 1 - (0.93 * (1 - tenth)) / overload;
const most = surplus + 2.58 * Math.sqrt((surplus * (1 - surplus)) / networks);

// A network is seen to have moved when it asks next.
const asks = networks / (overload * serves(victim));
// At most 1% of the fleet's networks move per minute, counting each PoP's alike; two more may be
// on their way.
const pace = Math.floor((0.01 * sites.length * networks * settled) / 60) + 2;

// The other PoPs' own clients ask for a third of what they can serve, at their edges in turn.
const rest = {};
const keys = {};
lab.regions.forEach((r) => {
  rest[r.name] = r.pops.filter((p) => p.name !== victim.name).flatMap((pop) => pop.addresses.map((address) => ({ pop, address })));
  keys[r.name] = new Keys({ kind: 'uniform', n: 3000, seed: 7, cidr: network(r.name) });
});
const besides = {};
regions.filter((r) => rest[r].length > 0).forEach((r) => {
  const rate = Math.round((rest[r].length * serves(victim)) / victim.addresses.length / 3);
  besides[`beside-${r}`] = Object.assign(steadily(rate, `${ends[4]}s`, { exec: 'beside', preAllocatedVUs: 40, maxVUs: 150 }), { env: { REGION: r }, gracefulStop: '5s' });
});

export const options = {
  scenarios: Object.assign({
    networks: { executor: 'constant-vus', vus, duration: `${ends[4]}s`, exec: 'client', gracefulStop: '5s' },
  }, besides, each(steadily(4, `${ends[4]}s`, { exec: 'insist' }), 'insist-'), director),
  thresholds: Object.assign(strict(phases), exact(), {
    shed_before: ['rate<0.01'], shed_at_first: ['rate>0.05'], shed_settled: ['rate<0.03'], shed_after: ['rate<0.01'], shed_home: ['rate<0.01'], shed_elsewhere: ['rate<0.01'],
    away_before: ['rate==0'], away_settled: [`rate>${least.toFixed(3)}`, `rate<${most.toFixed(3)}`], away_home: ['rate==0'], moves_settled: [`count<=${pace}`], left_again: ['count==0'],
  }),
};

export function setup() {
  act('shedder-slow');
  act(`home/${victim.name}/${serves(victim) / victim.addresses.length}`);
  return { began: Date.now() };
}
const since = (data) => (Date.now() - data.began) / 1000;

export function direct(data) {
  phases.forEach((name, i) => {
    sleep(Math.max(0, (i > 0 ? ends[i - 1] : 0) - since(data)));
    phase(name);
    if (name === 'settled') {
      act('agree');
    }
  });
}

// A network asks DNS again when its answer has expired, and takes the edges of the PoP in turn
// meanwhile.
function newNetwork(n) {
  const subnet = `198.${18 + ((n >> 8) & 1)}.${n & 255}`;
  return { key: `${subnet}.7`, turn: n, pop: victim, client: new Client({ region: regions[0], dns: lab.dns, subnet: `${subnet}.0/24`, pops, connectTimeout: '3s', timeout: '10s' }) };
}
const mine = { networks: [], turn: 0 };
export function client(data) {
  if (mine.networks.length === 0) {
    const vu = exec.scenario.iterationInTest % vus; // all begin at once
    for (let i = 0; i < perVU; i++) {
      mine.networks.push(newNetwork(vu * perVU + i));
    }
    mine.next = (Math.random() * vus) / (usual * serves(victim));
  }
  sleep(Math.max(0, mine.next - since(data)));
  const at = since(data);
  const during = ends.findIndex((end) => at < end);
  if (during < 0) {
    return;
  }
  const name = phases[during];
  const load = name === 'step' || name === 'settled' ? overload : usual;
  mine.next = Math.max(mine.next + vus / (load * serves(victim)), at);
  take(mine.networks[mine.turn++ % perVU], name, at);
}
function take(n, name, at) {
  const fresh = !(Date.now() < n.until);
  // Whoever has just moved waits at the new origin in the lane of the old PoP: once.
  const url = fresh ? byName(path(n.pop)) : `http://${n.pop.addresses[++n.turn % n.pop.addresses.length]}:8080${path(n.pop)}`;
  if (fresh) {
    n.until = Date.now() + lab.ttl * 1000;
  }
  const res = n.client.request('GET', url, null, { headers: { 'X-Forwarded-For': n.key }, limits: { spill: n.key }, tags: { name: 'spill' }, expected: [200, 503] });
  if (!res.pop) {
    return;
  }
  if (res.pop !== n.pop.name) {
    n.pop = sites.find((p) => p.name === res.pop);
    moves.add(1);
    late.add(name === 'settled' && at > ends[1] + 2 * asks ? 1 : 0);
    // Until the router knows of less demand, more may leave.
    left.add(n.pop !== victim && at > ends[2] + 20 ? 1 : 0);
  }
  away[name].add(n.pop !== victim);
  if (n.pop !== victim) {
    elsewhere.add(res.shed);
    return;
  }
  shed[name].add(res.shed);
  if (at >= ends[0] + 2 && at < ends[0] + 7) {
    first.add(res.shed);
  }
}
// The other PoPs' own clients.
export function beside() {
  const region = __ENV.REGION;
  const { pop, address } = rest[region][exec.scenario.iterationInTest % rest[region].length];
  const res = ask(region, `http://${address}:8080${path(pop)}`, keys[region].next().key, 'spill', { expected: [200, 503] });
  elsewhere.add(res.shed);
}
// One client of each region persists, so that the limit is proven too. It is not shed: its
// requests are critical.
export function insist() {
  const region = __ENV.REGION;
  ask(region, byEdge(region, '/load/spill', exec.scenario.iterationInTest), network(region, 1).replace('0.0/16', '8.1'), 'spill', { headers: { 'X-Weir-Class': 'critical' } });
}
export function teardown() {
  finish();
  act('home-back');
  act('shedder-back');
}
export function handleSummary(data) {
  const value = (name, of) => (data.metrics[name] ? data.metrics[name].values[of] : 0);
  const percent = (name) => `${(100 * value(name, 'rate')).toFixed(1)}%`;
  const about = `${victim.name} is asked for ${overload} times what it can serve: it shed ${percent('shed_at_first')} at first and ${percent('shed_settled')} once settled, the others ${percent('shed_elsewhere')}; `
    + `${percent('away_settled')} of the requests of ${networks} networks went elsewhere, with ${value('moves', 'count')} moves in all, ${value('moves_settled', 'count')} of them once settled (at most ${pace} in ${settled} s)`;
  return summary(about, { phases })(data);
}
