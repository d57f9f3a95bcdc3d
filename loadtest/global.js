// Shared by the scenarios of limits across regions. One client asks in all of them.
import { sleep } from 'k6';
import { Trend } from 'k6/metrics';
import { act, ask, byEdge, everywhere, full, network, regions, rule, summary } from './lib.js';

// In the long form the limit is 6,000 per minute. In the short form it is 250 in 5 s: a busy machine
// sends 360 requests per second, and the scenarios need several times the limits of two rules.
const named = (mode) => (full ? `${mode}-minute` : mode);
export const eventual = named('eventual');
export const escrow = named('escrow');
const declared = { [eventual]: rule(eventual), [escrow]: rule(escrow) };
export const limit = declared[eventual].limit;
export const window = Number(declared[eventual].window.replace('s', ''));
// The client's rate of requests.
export const flow = limit / window;

const client = network(regions[0]).replace('0.0/16', '9.1');

// request asks under one of these rules, each in turn, at the edges of a region in turn.
export function request(region, ids, turn) {
  const id = ids[turn % ids.length];
  // A region whose store does not answer in time refuses what is in escrow.
  ask(region, byEdge(region, `/load/${id}`, Math.floor(turn / ids.length)), client, id, { expected: [200, 429, 503] });
}

// atWindow waits until a window begins.
export function atWindow() {
  const ms = window * 1000;
  sleep((ms - (Date.now() % ms)) / 1000);
}

// delays holds how soon regions learn of each other's requests, as the edges measure it.
const delays = new Trend('exchange_delay_seconds');
// A reading is valid until the next.
const between = 0.5;

// watch waits this many seconds while reading the delay.
export function watch(seconds, except = '') {
  const end = Date.now() + seconds * 1000;
  for (let left = seconds; left > between; left = (end - Date.now()) / 1000) {
    delays.add(JSON.parse(act(`delay/${except}`)));
    sleep(between);
  }
  sleep(Math.max(0, (end - Date.now()) / 1000));
}

// learned reads the delay between all regions once.
export function learned() {
  return JSON.parse(act('delay/'));
}

// tried reports whether clients sent nearly all their requests. On a busy machine k6 drops some,
// and then how much should have passed is unknown.
const tried = (metrics) => (metrics.dropped_iterations ? metrics.dropped_iterations.values.count : 0) < 0.02 * metrics.iterations.values.count;

const phrase = (n) => String(Math.round(100 * n) / 100);

// late bounds the eventual rule during some phases by what `printed` says for the measured delay
// if clients of all regions demand this many times the limit, plus `more` units.
export function late(phases, times, { more = 0, because = '', most = Infinity, least } = {}) {
  return (metrics) => {
    const delay = metrics.exchange_delay_seconds.values.max + between;
    const kept = (regions.length - 1) * Math.floor(limit / 20 / regions.length);
    const units = Math.min((regions.length - 1) * limit, times * flow * delay + kept) + more;
    const percent = Math.min(most, (100 * units) / limit);
    return {
      rule: eventual, region: everywhere, phases, percent, late: true, least: tried(metrics) ? least : 0,
      why: `Regions hear of each other late. At ${phrase(times)} times the limit, ${phrase(flow)} per second, clients ask for ${phrase(times * flow * delay)} within the ${phrase(delay)} s in which a region learns of a request in another (the largest reading of the edges' weir_global_lag_seconds, two periods of 100 ms, and ${between} s from one reading to the next), and the shares that the other regions keep to themselves are ${kept}.${because}`,
    };
  };
}

// never bounds the rule in escrow: nothing passes beyond the limit, whatever happens. least is
// how much must pass in the first of the phases.
export function never(phases, least) {
  return (metrics) => ({
    rule: escrow, region: everywhere, phases, percent: 0, late: true, least: tried(metrics) ? least : 0,
    why: 'A limit in escrow is divided among the regions as rights that only move, so all together never exceed it.',
  });
}

// proof is summary() with bounds by the measured delay.
export function proof(about, phases, bounds, waits = []) {
  return (data) => summary(about, { phases, bounds: bounds.map((bound) => bound(data.metrics)), waits })(data);
}
