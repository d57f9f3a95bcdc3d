// Global flash: demand in all regions jumps to several times the limits that they share.
import exec from 'k6/execution';
import { director, each, finish, full, phase, regions, steadily } from './lib.js';
import { atWindow, escrow, eventual, flow, late, limit, never, proof, request, watch, window } from './global.js';

const times = 3;
const calm = 1.5 * window;
const flash = full ? 2 * window : 1.5 * window;
const seconds = calm + flash;
const phases = ['calm', 'flash'];
const rate = (n) => Math.round((2 * n * flow) / regions.length);
// Virtual users that k6 creates only once they are missing take the processor from the others.
const ready = { preAllocatedVUs: 40 };
export const options = {
  setupTimeout: '120s',
  scenarios: Object.assign(each(steadily(rate(0.2), `${calm}s`), 'calm-'), each(steadily(rate(times), `${flash}s`, Object.assign({ startTime: `${calm}s` }, ready))), director),
  thresholds: { http_req_failed: ['rate==0'] },
};
export const setup = atWindow;
export function direct() {
  const began = Date.now() / 1000;
  phase('calm');
  watch(began + calm - Date.now() / 1000);
  phase('flash');
  watch(began + seconds - 0.5 - Date.now() / 1000);
}
export default function () {
  request(__ENV.REGION, [eventual, escrow], exec.scenario.iterationInTest);
}
export const teardown = finish;
export const handleSummary = proof('all regions are asked at once for three times a limit that they share', phases, [
  late(['calm', 'flash'], times), never(['flash', 'calm'], Math.floor(0.95 * limit)),
]);
