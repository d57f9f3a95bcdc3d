// Global, escrow: one client asks three regions for 1.5, 1 and 0.5 times a limit that they divide.
import exec from 'k6/execution';
import { director, each, finish, full, phase, steadily } from './lib.js';
import { atWindow, escrow, flow, limit, never, proof, request, window } from './global.js';
import { sleep } from 'k6';

const windows = full ? 5 : 4;
const seconds = windows * window;
export const options = {
  setupTimeout: '120s',
  scenarios: Object.assign(each((region, i) => steadily(Math.round(flow * (1.5 - i / 2)), `${seconds}s`)), director),
  thresholds: { http_req_failed: ['rate==0'] },
};
export const setup = atWindow;
export function direct() {
  phase('steady');
  sleep(seconds - 1);
}
export default function () {
  request(__ENV.REGION, [escrow], exec.scenario.iterationInTest);
}
export const teardown = finish;
export const handleSummary = proof('one client asks three regions for a limit in escrow, unevenly, and for three times as much as there is', ['steady'], [
  never(['steady'], Math.floor(0.97 * limit * windows)),
]);
