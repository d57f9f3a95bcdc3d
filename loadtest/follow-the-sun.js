// Follow the sun: all demand, twice the limit, moves from one region to the next in the middle of
// a window.
import { sleep } from 'k6';
import exec from 'k6/execution';
import { director, each, finish, phase, regions, steadily } from './lib.js';
import { atWindow, escrow, eventual, flow, late, limit, never, proof, request, watch, window } from './global.js';

const times = 2;
const stay = 1.5 * window; // at least one whole window
// Demand on the only busy region, which must get nearly the whole limit.
const least = Math.floor(0.95 * limit);
export const options = {
  setupTimeout: '120s',
  scenarios: Object.assign(each((region, i) => steadily(2 * times * flow, `${stay}s`, { startTime: `${i * stay}s` })), director),
  thresholds: { http_req_failed: ['rate==0'] },
};
export const setup = atWindow;
export function direct() {
  const began = Date.now();
  regions.forEach((region, i) => {
    sleep(Math.max(0, (began + i * stay * 1000 - Date.now()) / 1000));
    phase(region);
    watch(began / 1000 + (i + 1) * stay - Date.now() / 1000 - 0.5);
  });
}
export default function () {
  request(__ENV.REGION, [eventual, escrow], exec.scenario.iterationInTest);
}
export const teardown = finish;
export const handleSummary = proof('all demand moves from region to region', regions, [
  ...regions.map((region) => late([region], times, { least })), ...regions.map((region) => never([region], least)),
]);
