// Shared by the scenarios. The runner passes the lab in LAB and serves a script's requests at
// CONTROL: faults, their ends, other rules.
import { Client, oracle } from 'k6/x/weir';
import http from 'k6/http';

if (!__ENV.LAB) {
  throw new Error('run the scenarios by make loadtest, or bin/loadtest-run -only NAME');
}
export const lab = JSON.parse(__ENV.LAB);
export const regions = lab.regions.map((r) => r.name);
export const full = __ENV.FORM === 'full';

const known = [].concat(...['./rules.json', './rules-global.json'].map((file) => JSON.parse(open(file)).rules));
export const judge = oracle({ fresh: true });

// everywhere is the oracle's region for rules that regions share.
export const everywhere = 'everywhere';

// rule declares a rule of the documents to the oracle, with the options that only the oracle needs.
export function rule(id, more = {}) {
  const found = Object.assign({}, known.find((r) => r.id === id), more);
  judge.rule(found);
  return found;
}

export const pops = {};
for (const r of lab.regions) {
  for (const pop of r.pops) {
    for (const address of pop.addresses) {
      pops[address] = { region: r.name, pop: pop.name };
    }
  }
}
const clients = {};
const edges = {};
for (const r of lab.regions) {
  // On a busy machine the first SYN may be lost, and the next follows after a second. Dead edges
  // refuse connections immediately.
  clients[r.name] = new Client({ region: r.name, dns: lab.dns, subnet: r.subnet, pops, connectTimeout: '3s', timeout: '5s' });
  edges[r.name] = [].concat(...r.pops.map((pop) => pop.addresses));
}

// network returns a region's client addresses, which no recent run used.
export function network(region, part = 0) {
  return `10.${(Number(__ENV.RUN) + 40 * part + regions.indexOf(region)) % 250}.0.0/16`;
}

// byName is the zone's URL, resolved by the DNS router; byEdge is that of the region's edges in
// turn, as a load balancer in front of them would choose.
export function byName(path) {
  return `http://${lab.zone}:8080${path}`;
}
export function byEdge(region, path, turn) {
  return `http://${edges[region][turn % edges[region].length]}:8080${path}`;
}

export function edgesOf(region) {
  return edges[region].length;
}

// ask sends one client's request and tells the oracle which rule counts it.
export function ask(region, url, key, limit, more = {}) {
  const headers = Object.assign({ 'X-Forwarded-For': key }, more.headers);
  return clients[region].request(more.method || 'GET', url, null, {
    headers, limits: { [limit]: key }, tags: Object.assign({ name: limit }, more.tags), expected: more.expected || [200, 429],
  });
}

// send sends a request that the oracle does not judge; no answer of the origin is a failure.
const anything = Array.from({ length: 400 }, (_, i) => 200 + i);
export function send(region, url, headers, tags) {
  return clients[region].get(url, { headers, tags, expected: anything });
}

// each makes a scenario for every region, with REGION in its environment.
export function each(options, prefix = '') {
  const all = {};
  regions.forEach((region, i) => {
    const own = typeof options === 'function' ? options(region, i) : options;
    const vus = /arrival-rate/.test(own.executor) ? { preAllocatedVUs: 12, maxVUs: 100 } : {};
    all[prefix + region] = Object.assign(vus, { gracefulStop: '5s' }, own, { env: Object.assign({ REGION: region }, own.env) });
  });
  return all;
}
export function steadily(rate, duration, more = {}) {
  return Object.assign({ executor: 'constant-arrival-rate', rate, timeUnit: '1s', duration }, more);
}

// director is the scenario that names the phases and requests faults.
export const director = { director: { executor: 'shared-iterations', vus: 1, iterations: 1, maxDuration: '10m', exec: 'direct' } };

// act requests an action from the runner, waits for its end, and returns the answer.
export function act(what) {
  const res = http.post(`${__ENV.CONTROL}/${what}`, null, { timeout: '120s', tags: { name: 'control' } });
  if (res.status !== 200) {
    throw new Error(`${what}: ${res.body || res.error}`);
  }
  return res.body;
}
// phase names what begins now, for the oracle and the report.
export function phase(name) {
  judge.phase(name);
  act(`phase/${name}`);
}

// strict are the thresholds for phases that allow no violation.
export function strict(phases) {
  const all = {};
  for (const name of phases) {
    all[`weir_overadmitted{phase:${name}}`] = ['count==0'];
    all[`weir_wrongly_refused{phase:${name}}`] = ['count==0'];
    all[`weir_retry_after_error{phase:${name}}`] = ['max==0'];
  }
  return all;
}
// exact are the thresholds for regions that never allow a violation.
export function exact(which = regions) {
  const all = {};
  for (const region of which) {
    all[`http_req_failed{region:${region}}`] = ['rate==0'];
    all[`weir_overadmitted{region:${region}}`] = ['count==0'];
    all[`weir_wrongly_refused{region:${region}}`] = ['count==0'];
  }
  return all;
}
// calm are the thresholds for a scenario without a fault.
export function calm() {
  const all = Object.assign({ weir_overadmitted: ['count==0'], weir_wrongly_refused: ['count==0'], weir_retry_after_error: ['max==0'] }, exact());
  for (const region of regions) {
    all[`http_req_duration{region:${region}}`] = ['p(95)<1000'];
  }
  return all;
}

export function finish() {
  judge.finish();
}

// summary writes what the runner judges and reports. phases lists every phase that must occur.
// bounds says how far a rule may be exceeded in each phase of a fault; unlisted bounds are 0.
export function summary(about, { phases = [], bounds = [], waits = [] } = {}) {
  return (data) => {
    const metrics = {};
    for (const [name, m] of Object.entries(data.metrics)) {
      metrics[name] = { values: m.values, thresholds: m.thresholds };
    }
    const found = { about, phases, bounds, waits, report: judge.report(), metrics, seconds: data.state.testRunDurationMs / 1000 };
    return { [__ENV.OUT]: JSON.stringify(found) };
  };
}
