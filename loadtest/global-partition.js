// Global, partition: one client asks all regions for limits that they share while one region is
// cut off from the others and joined again.
import { sleep } from 'k6';
import { Trend } from 'k6/metrics';
import exec from 'k6/execution';
import { act, director, each, finish, full, phase, regions, steadily } from './lib.js';
import { atWindow, escrow, eventual, flow, late, learned, limit, never, proof, request, watch, window } from './global.js';

const victim = regions[2];
// In windows. The cut begins with a window, and the window after it includes what passed in its
// middle. Healing takes its maximum, or there would be no demand afterwards.
const [before, cut, healing, after] = full ? [1, 0.5, 1.5, 1] : [1, 2, 4, 1];
const times = 1.8; // the demand of all regions, for each of the limits
const phases = ['before', 'cut', 'healing', 'after'];
const healed = new Trend('healed_after_seconds');
const patience = 20;
const own = (times / regions.length) * limit;

export const options = {
  setupTimeout: '120s',
  scenarios: Object.assign(each(steadily(Math.round((2 * times * flow) / regions.length), `${(before + cut + healing + after) * window}s`)), director),
  thresholds: { http_req_failed: ['rate==0'], healed_after_seconds: [`max<${patience}`] },
};
export const setup = atWindow;
export function direct() {
  const began = Date.now();
  const until = (windows, except) => watch(began / 1000 + windows * window - Date.now() / 1000, except);
  phase('before');
  until(before);
  phase('cut');
  act(`cut/${victim}`);
  until(before + cut, victim);
  act(`join/${victim}`);
  const joined = Date.now();
  phase('healing');
  while (learned() > 1.5 && Date.now() - joined < patience * 1000) {
    sleep(0.05);
  }
  healed.add((Date.now() - joined) / 1000);
  until(before + cut + healing, victim);
  phase('after');
  until(before + cut + healing + after - 0.2);
}
export default function () {
  request(__ENV.REGION, [eventual, escrow], exec.scenario.iterationInTest);
}
export const teardown = finish;
export const handleSummary = proof(`${victim} is cut off from the other regions, and joined again`, phases, [
  late(['before'], times),
  late(['cut', 'healing'], times, {
    more: own,
    because: ` ${victim} asks for ${Math.round(own)} more in a window, which the others do not learn of: it measures against a third of the limit after 5 s without word from another region.`,
  }),
  late(['after'], times),
  never(['before', 'healing', 'after'], Math.floor(0.9 * limit * before)),
  // In each window the others have two thirds of the limit, and the victim the rest for its clients.
  never(['cut'], Math.floor(0.9 * limit * Math.floor(cut))),
], [
  { metric: 'healed_after_seconds', seconds: patience, why: 'A call that hung in the cut ends after 2 s, and a node that did not answer is tried again after a pause of up to 5 s. Then one exchange tells all that has changed.' },
]);
