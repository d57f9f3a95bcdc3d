// Global, eventual: one client asks each of three regions simultaneously for the whole of a limit
// that they share.
import exec from 'k6/execution';
import { director, each, finish, full, phase, regions, steadily } from './lib.js';
import { atWindow, eventual, flow, late, limit, proof, request, watch, window } from './global.js';

const windows = full ? 5 : 4;
const seconds = windows * window;
export const options = {
  setupTimeout: '120s',
  scenarios: Object.assign(each(steadily(flow, `${seconds}s`)), director),
  thresholds: { http_req_failed: ['rate==0'] },
};
export const setup = atWindow;
export function direct() {
  phase('steady');
  watch(seconds - 1);
}
export default function () {
  request(__ENV.REGION, [eventual], exec.scenario.iterationInTest);
}
export const teardown = finish;
// At 6,000 per minute, the promise is 3%, whatever the bound.
export const handleSummary = proof('one client asks three regions, 80 to 220 ms apart, for the whole of one limit each', ['steady'], [
  late(['steady'], regions.length, { most: full ? 3 : Infinity, least: Math.floor(0.97 * limit * windows) }),
]);
