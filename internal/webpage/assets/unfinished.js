// A rollout that is not finished. Another console began it, or this one before its restart, or
// regionctl in a shell. The regions keep its record.
import { html, signal, get, post, plural, ago, stamp, shell } from './lib.js';
import { Badge, Notice, Command, Table, Act, ask } from './parts.js';

// left is that rollout, null if there is none.
export const left = signal(null);
let last = 0;

// look asks the regions for it. What was seen stays if they cannot be asked.
export async function look() {
  const mine = ++last, answer = await get('/rules/rollout/unfinished');
  if (mine === last && answer.ok && (answer.result.rollout || !answer.incomplete)) left.value = answer.result.rollout;
}

const states = { done: ['good', 'changed'], waiting: ['', 'as before'], changed: ['warn', 'changed by somebody else'], unknown: ['bad', 'unknown'] };

// done counts the waves whose regions all have the version.
const done = (u) => u.waves.filter((w) => w.every((r) => r.state === 'done')).length;

export function Unfinished({ u, after }) {
  const far = u.canary ? `canary on ${u.canary}` : `${done(u)} of ${plural(u.waves.length, 'wave')} done`;
  const title = { running: `In progress elsewhere: ${far}`, halted: `Halted: ${far}`, abandoned: `Abandoned: ${far}` }[u.state];
  return html`<div class="rollout">
    <p class="dim">${u.by}${u.message ? ': ' + u.message : ''} · <span title=${stamp(u.began_at)}>began ${ago(u.began_at)}</span></p>
    <${Notice} kind=${u.state === 'running' ? 'info' : 'warn'} title=${title}>
      ${u.state === 'abandoned' && html`The process that ran it is gone: it renewed its record last <span title=${stamp(u.seen_at)}>${ago(u.seen_at)}</span>. Each region keeps what it has until somebody resumes the rollout or rolls it back.`}
      ${u.state === 'running' && html`Another console, or regionctl in a shell, runs it. It can be halted there.`}
      ${u.why && html`<pre class="text">${u.why}</pre>`}
      ${u.canary && u.state !== 'running' && html`<p>${u.canary_until ? html`The edges of ${u.canary} run the canary until ${stamp(u.canary_until)}.` : html`The canary has ended; every edge runs what its region has.`}</p>`}<//>
    <${Table} label="How far the unfinished rollout is" head=${[u.canary ? '' : 'wave', 'region', 'version', 'applied by', 'state'].filter((c) => c)}>${u.waves.flatMap((wave, i) => wave.map((r) => html`<tr>
      ${!u.canary && html`<td>${i + 1}</td>`}<th scope="row">${r.region}</th><td><code>${r.version ?? '–'}</code></td><td>${r.by ?? '–'}</td><td><${Badge} kind=${states[r.state][0]}>${states[r.state][1]}<//></td></tr>`))}<//>
    ${u.state !== 'running' && html`<div class="buttons">
      <${Act} op="rules.rollout.resume" class="primary" onClick=${() => resume(u, after)}>Resume…<//>
      <${Act} op="rules.undo" class="danger" onClick=${() => back(u, after)}>Roll back…<//></div>`}
    <${Command} text="regionctl rules rollout" /></div>`;
}

export function resume(u, after) {
  ask({
    title: 'Resume the rollout?', verb: 'Resume', done: 'The rollout continues',
    text: u.canary ? 'The trial starts again, with the same document and flags, in your name.' : 'It continues with the same document and flags, in your name. Regions that have the version keep it and are watched again before the next wave.',
    command: () => u.resume, act: () => post('/rules/rollout/resume'), after,
  });
}

export function back(u, after) {
  const regions = u.waves.flat().filter((r) => r.state === 'done').map((r) => r.region);
  ask({
    title: regions.length ? `Roll back ${regions.join(', ')}?` : `End the canary on ${u.canary}?`, verb: 'Roll back', danger: true, done: 'The regions run what they ran before the rollout',
    text: regions.length ? 'What these regions had before the rollout is applied again.' : 'The edges of the site follow the active version again.',
    regions: u.waves.flat().map((r) => ({ region: r.region, error: r.state === 'unknown' })),
    command: () => shell('undo', 'rules', '--of', u.version), act: () => post('/rules/undo', { of: [u.version] }), after,
  });
}
