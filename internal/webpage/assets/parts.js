// What pages are made of.
import { html, signal, now, ago, plural, session, needs, foreign } from './lib.js';

const copied = signal('');

// Command shows what does the same in a shell.
export function Command({ text }) {
  if (!text) return null;
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    copied.value = text;
    setTimeout(() => { copied.value = ''; }, 1500);
  };
  return html`<p class="command"><span class="prompt" aria-hidden="true">$</span><code>${text}</code><button type="button" class="quiet" onClick=${copy} aria-label=${'Copy the command ' + text}>${copied.value === text ? 'copied' : 'copy'}</button></p>`;
}

export function Badge({ kind = '', children }) {
  return html`<span class=${'badge ' + kind}>${children}</span>`;
}

// Act is a button of an operation. One who lacks the role cannot press it, nor one who lacks the
// right to all regions that it touches, if these are known; an empty list is all.
export function Act({ op, touches, onClick, disabled, children, ...rest }) {
  const role = needs(op), others = touches ? foreign(op, touches) : [];
  const why = role ? `needs the role ${role}; you are ${session.value.role}` : others.length ? `touches ${others.join(', ')}; you are ${session.value.role}` : undefined;
  return html`<button type="button" ...${rest} onClick=${onClick} disabled=${disabled || why !== undefined} title=${why}>${children}</button>`;
}

// Lacking says what a person may not do on a page, and why. ops are operations, by their names.
export function Lacking({ ops }) {
  const list = Object.entries(ops).filter(([, op]) => needs(op));
  if (list.length === 0) return null;
  const roles = [...new Set(list.map(([, op]) => needs(op)))];
  const mine = session.value.role, bounds = / (for|in) /.test(mine) ? ' without these bounds' : '';
  return html`<p class="lacking dim">You are ${mine.startsWith('reader') ? 'a' : 'an'} ${mine}. ${roles.map((role) => `${list.filter(([, op]) => needs(op) === role).map(([name]) => name).join(', ')}: only for ${role === 'admin' ? 'admins' : role + 's and above'}${bounds}.`).join(' ')}</p>`;
}

// Notice is a state that a person should see: kind is bad, warn, good or info.
export function Notice({ kind = 'info', title, children }) {
  return html`<div class=${'notice ' + kind} role=${kind === 'bad' ? 'alert' : 'status'}><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>`;
}

// Trouble says in a line what is wrong with a part, and the rest to who opens it: the error of one
// region must not push the others off the screen.
export function Trouble({ kind = 'bad', title, text }) {
  return html`<details class=${'notice ' + kind}><summary><strong>${title}</strong></summary><pre class="text">${text}</pre></details>`;
}

// Why is the reason of a state, in one line, and all of it to who opens it.
export function Why({ text }) {
  return text.length > 40 ? html`<details class="why"><summary>${text}</summary>${text}</details>` : html`<div class="why">${text}</div>`;
}

// Failure says why something was not done.
export function Failure({ answer, what = 'This failed' }) {
  const title = { conflict: 'Somebody else was faster', usage: 'This request is not valid', unreachable: 'Some regions do not answer', regions: 'You may not change all these regions' }[answer.reason] ?? what;
  return html`<${Notice} kind="bad" title=${title}><pre class="text">${answer.detail}</pre>${answer.notes?.length > 0 && html`<pre class="text dim">${answer.notes.join('\n')}</pre>`}<//>`;
}

// Outcome is how an action ended.
export function Outcome({ answer, done }) {
  if (!answer) return null;
  if (!answer.ok) return html`<${Failure} answer=${answer} what="Nothing was changed" /><${Regions} answer=${answer} /><${Command} text=${answer.command} />`;
  return html`<${Notice} kind=${answer.incomplete ? 'warn' : 'good'} title=${answer.incomplete ? 'Partly done' : done}>
    ${answer.incomplete && html`<pre class="text">${answer.incomplete}</pre>`}
    ${answer.notes?.length > 0 && html`<details><summary>How it went</summary><pre class="text dim">${answer.notes.join('\n')}</pre></details>`}
  <//>${answer.incomplete && html`<${Regions} answer=${answer} />`}<${Command} text=${answer.command} />`;
}

// Regions is what each region has after a change, or without it.
function Regions({ answer }) {
  if (!answer.result?.applied_by) return null;
  return html`<${Table} label="What each region has" head=${['region', '', 'version', ['edges', 'n']]}>${answer.result.regions.map((r) => html`<tr><th scope="row">${r.region}</th>
    <td><${Badge} kind=${{ applied: 'good', 'already there': 'good', 'not changed': '' }[r.result] ?? 'bad'}>${r.result === 'unreachable' ? 'does not answer' : r.result}<//></td>
    <td>${r.active ? html`<code>${r.active}</code>` : r.result === 'unreachable' ? 'what it had' : 'none'}</td><td class="n">${r.edges == null ? '–' : `${r.running} / ${r.edges}`}</td></tr>`)}<//>`;
}

// regionsOf are the regions that a resource has seen.
export const regionsOf = (of) => of.value.answer?.result?.regions ?? [];

// Freshness says how old what a feed showed is.
export function Freshness({ feed }) {
  const f = feed.value;
  if (f.phase === 'loading' && !f.result) return html`<span class="fresh dim">connecting…</span>`;
  const old = f.at && now.value - f.at > 7000;
  if (f.phase === 'failed' || old) return html`<span class="fresh bad"><span class="dot"></span>${f.at ? 'stale, ' + ago(f.at) : 'no data'}</span>`;
  return html`<span class="fresh good"><span class="dot"></span>live</span>`;
}

// Waiting keeps the place of what is on its way, so that nothing jumps.
export function Waiting({ rows = 6, label = 'Loading' }) {
  return html`<div class="waiting" role="status" aria-label=${label}>${Array.from({ length: rows }, () => html`<i></i>`)}</div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p><strong>${title}</strong></p>${children}</div>`;
}

// Incomplete says in a line what is missing, and why to who asks.
export function Incomplete({ text }) {
  const [first, ...rest] = text.split('\n');
  return html`<details class="incomplete"><summary>Incomplete: ${first.replace(/:$/, '')}</summary><pre class="text">${rest.join('\n')}</pre></details>`;
}

// Loaded shows a resource once it is there.
export function Loaded({ of, rows, children }) {
  const r = of.value;
  if (r.phase === 'idle' || (r.phase === 'loading' && !r.answer)) return html`<${Waiting} rows=${rows} />`;
  if (!r.answer.ok) return html`<${Failure} answer=${r.answer} what="This could not be loaded" /><${Command} text=${r.answer.command} />`;
  return html`${r.answer.incomplete && html`<${Incomplete} text=${r.answer.incomplete} />`}${children(r.answer.result, r.answer)}`;
}

// Table scrolls sideways where the window is narrow. widths, in percent, keep the
// columns of one table under those of the next, and in their place while values change.
export function Table({ label, head, widths, rows, children }) {
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><table aria-rowcount=${rows && rows + 1}>${widths && html`<colgroup>${widths.map((w) => html`<col width=${w + '%'} />`)}</colgroup>`}<thead><tr>${head.map((c) => {
    const [text, cls] = [c].flat();
    return html`<th scope="col" class=${cls ?? ''}>${text || html`<span class="unseen">actions</span>`}</th>`;
  })}</tr></thead><tbody>${children}</tbody></table></div>`;
}

const position = signal(0); // of the window, in steps, so that not every pixel draws
for (const event of ['scroll', 'resize']) addEventListener(event, () => { position.value = Math.round((scrollY + innerHeight) / 200); }, { passive: true });

const most = 200; // rows that are drawn however far away they are
const least = 30; // pixels of a row with one line
const heights = new Map(), usual = new Map(), shown = new Map(); // of long tables, by label: each row's height by its id, that of rows not yet drawn, the rows drawn last

// Long is a table with one row, drawn by row, for each of list, whose values have an id. Of a long list
// it draws the rows near the window, and keeps the place of the others. It begins a window above, and
// draws as many of the lowest rows as reach a window below, so that no height leaves a gap in the window.
export function Long({ label, head, list, row }) {
  if (list.length <= most) return html`<${Table} label=${label} head=${head}>${list.map((v) => row(v))}<//>`;
  if (!heights.has(label)) heights.set(label, new Map());
  const known = heights.get(label), body = document.querySelector(`[aria-label="${label}"] tbody`), drawn = body ? [...body.querySelectorAll('tr[aria-rowindex]')] : [];
  drawn.forEach((r, i) => known.set(shown.get(label)[i].id, r.offsetHeight));
  // Another guess would move the rows under the reader.
  if (drawn.length > 0 && !usual.has(label)) usual.set(label, drawn.reduce((sum, r) => sum + r.offsetHeight, 0) / drawn.length);
  const guess = usual.get(label) ?? 40, height = (v) => known.get(v.id) ?? guess, count = Math.ceil((3 * innerHeight + guess) / least);
  const top = position.value >= 0 && body ? -body.getBoundingClientRect().top : 0;
  let first = 0, above = 0;
  while (first < list.length - count && above + height(list[first]) < top - innerHeight) above += height(list[first++]);
  const near = list.slice(first, first + count), below = list.slice(first + count).reduce((sum, v) => sum + height(v), 0);
  shown.set(label, near);
  const gap = (high) => high > 0 && html`<tr aria-hidden="true"><td class="gap" colspan=${head.length} style=${{ height: high + 'px' }}></td></tr>`;
  return html`<${Table} label=${label} head=${head} rows=${list.length}>${gap(above)}${near.map((v, i) => row(v, first + i + 2))}${gap(below)}<//>`;
}

// Filter is the field that narrows a list; of is the signal with what it wants.
export function Filter({ of, label, hint = 'Filter…' }) {
  return html`<input class="filter" type="search" aria-label=${label} placeholder=${hint} value=${of.value} onInput=${(e) => { of.value = e.target.value.trim().toLowerCase(); }} />`;
}

// countsBy is what a rule counts by, and wanted reports whether the filter of rules wants it.
export const countsBy = (r) => r.key?.join(', ') || 'all requests';
export const wanted = (r, filter) => [r.id, r.description, r.mode, countsBy(r)].join(' ').toLowerCase().includes(filter);

// some draws the first of a list, and says how many others there are.
export const some = (list, draw) => html`${list.slice(0, most).map(draw)}${list.length > most && html`<li class="dim">… and ${plural(list.length - most, 'more')}</li>`}`;

// lastHour is what Prometheus has, of a resource; null without one.
export const lastHour = (of) => (of.value.answer?.ok && of.value.answer.result.configured ? of.value.answer.result : null);

// Counted says since when a page counts that lacks the last hour, and why it does.
export function Counted({ of, since }) {
  const answer = of.value.answer, failed = answer && !answer.ok;
  return html`${failed && html`<${Trouble} kind="warn" title="Prometheus does not tell of the last hour" text=${answer.detail} />`}
    ${!lastHour(of) && since && html`<p class="dim">${since}${!failed && html` A console with <code>--prometheus URL</code> shows the last hour.`}</p>`}`;
}

// Spark draws the last values of something.
export function Spark({ values, bad }) {
  const width = 72, height = 18, most = Math.max(1e-9, ...values);
  const points = values.map((v, i) => `${(width * (i + 60 - values.length)) / 59},${(height - 1.5 - (height - 3) * (v / most)).toFixed(1)}`).join(' ');
  return html`<svg class=${'spark ' + (bad ? 'bad' : '')} width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true"><polyline points=${points} /></svg>`;
}

// Meter draws a value against its two knees: below low nothing is shed, at high all may be.
export function Meter({ value, low, high, label }) {
  const width = 120, most = Math.max(high * 1.25, value, 1e-9), x = (v) => (width * Math.min(v, most)) / most;
  return html`<svg class=${'meter ' + (value >= high ? 'bad' : value > low ? 'warn' : '')} width=${width} height="12" viewBox=${`0 0 ${width} 12`} role="img" aria-label=${label}>
    <rect class="track" x="0" y="3" width=${width} height="6" rx="3" /><rect class="fill" x="0" y="3" width=${x(value)} height="6" rx="3" />
    ${low > 0 && html`<line x1=${x(low)} x2=${x(low)} y1="0" y2="12" />`}${high > 0 && html`<line x1=${x(high)} x2=${x(high)} y1="0" y2="12" />`}</svg>`;
}

// The dialog: one question at a time, about one action.
export const asked = signal(null);

// ask opens it: title, text, fields [{name, label, value, required, hint, kind}], command(values),
// act(values), danger, verb, done. regions [{region, error}] are for an action that can continue
// without some: values.partial says so.
export function ask(question) {
  const regions = question.regions ?? [], there = regions.filter((r) => !r.error).map((r) => r.region), away = regions.filter((r) => r.error).map((r) => r.region);
  const partial = away.length > 0 && there.length > 0;
  asked.value = { values: { ...Object.fromEntries((question.fields ?? []).map((f) => [f.name, f.value ?? ''])), partial }, there, away, phase: 'asking', ...question };
  queueMicrotask(() => {
    const d = document.querySelector('dialog');
    if (d && !d.open) d.showModal();
  });
}

export function Dialog() {
  const q = asked.value;
  if (!q) return null;
  const close = () => { document.querySelector('dialog')?.close(); };
  const set = (name, value) => { asked.value = { ...asked.value, values: { ...asked.value.values, [name]: value } }; };
  const act = async (e, more) => {
    e.preventDefault();
    asked.value = { ...asked.value, values: { ...asked.value.values, ...more }, phase: 'acting' };
    const answer = await (more ? q.answer.again(more) : q.act(asked.value.values));
    asked.value = { ...asked.value, phase: 'done', answer };
    q.after?.(answer);
  };
  const rest = q.phase === 'done' && q.regions && q.answer.reason === 'unreachable' && !q.values.partial && (q.answer.result?.regions ?? []).filter((r) => r.result !== 'unreachable').map((r) => r.region);
  const permitted = q.phase === 'done' && q.answer.reason === 'regions' && q.answer.regions;
  // Its close event comes later than the close: by then the next question may be open.
  return html`<dialog onClose=${(e) => { if (!e.target.open) asked.value = null; }} aria-labelledby="question">
    <form onSubmit=${act}>
      <h2 id="question">${q.title}</h2>
      ${q.phase !== 'done' && html`${q.text && html`<p>${q.text}</p>`}
        ${(q.fields ?? []).map((f) => html`<label class=${f.kind === 'check' ? 'check' : 'field'}>
          ${f.kind === 'check'
            ? html`<input type="checkbox" checked=${q.values[f.name]} onChange=${(e) => set(f.name, e.target.checked)} /> ${f.label}`
            : html`<span>${f.label}</span><input name=${f.name} value=${q.values[f.name]} required=${f.required} maxlength="500" autocomplete="off" placeholder=${f.hint ?? ''} onInput=${(e) => set(f.name, e.target.value)} />`}
        </label>`)}
        ${q.away.length > 0 && html`<${Notice} kind="warn" title=${`${q.away.join(', ')} ${q.away.length > 1 ? 'do' : 'does'} not answer`}>${q.values.partial && `This continues with ${q.there.join(', ')}.`}<//>`}
        <${Command} text=${q.command(q.values)} />`}
      ${q.phase === 'done' && html`<${Outcome} answer=${q.answer} done=${q.done} />`}
      <div class="buttons">
        ${q.phase === 'done' ? html`<button type="button" onClick=${close} autofocus>Close</button>
          ${rest && html`<button type="button" class="danger" onClick=${(e) => act(e, { partial: true })}>Continue ${rest.length > 0 ? 'with ' + rest.join(', ') : 'without them'}</button>`}
          ${permitted && html`<button type="button" class="danger" onClick=${(e) => act(e, { region: permitted })}>${q.verb} in ${permitted.join(', ')}</button>`}` : html`
          <button type="button" class="quiet" onClick=${close} disabled=${q.phase === 'acting'}>Cancel</button>
          <button type="submit" class=${q.danger ? 'danger' : 'primary'} disabled=${q.phase === 'acting'}>${q.phase === 'acting' ? 'Working…' : q.values.partial && q.there.length > 0 ? `${q.verb} in ${q.there.join(', ')}` : q.verb}</button>`}
      </div>
    </form>
  </dialog>`;
}
