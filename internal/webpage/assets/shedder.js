// How busy the edges are, what they shed and why; other settings, temporarily or until the next change.
import { html, signal, resource, repeat, post, number, rate, level, plural, stamp, ago, shell } from './lib.js';
import { Knees, see, unit, idOf } from './knees.js';
import { Badge, Notice, Loaded, Empty, Table, Command, Meter, Act, Lacking, Trouble, ask, regionsOf, lastHour, Counted } from './parts.js';

const alive = resource(), settings = resource(), history = resource();
const hour = resource(); // what Prometheus has, if the console knows one
const assignments = signal(''), lasts = signal('1h');

export function enter() {
  settings.load('/shedder');
  history.load('/shedder/history', { lines: '10' });
  const stops = [repeat(60000, () => hour.load('/shedder/hour')), repeat(3000, async () => { const answer = await alive.load('/shedder/live'); if (answer.ok) see(answer.result); })];
  return () => stops.forEach((stop) => stop());
}

const reload = () => { alive.load('/shedder/live'); settings.load('/shedder'); history.load('/shedder/history', { lines: '10' }); };

export function Page() {
  const regions = regionsOf(alive), off = regions.filter((r) => r.nodes.some((n) => n.off)), all = off.length > 0 && regions.every((r) => r.nodes.every((n) => n.off));
  return html`<div class="title"><h1 tabindex="-1">Shedder</h1>${alive.value.at && html`<span class="fresh dim">asked ${ago(alive.value.at)}</span>`}
      <span class="right">${off.length > 0 && html`<${Act} op="shedder.undo" class="primary" onClick=${() => end(off.flatMap((r) => r.nodes.filter((n) => n.off).map((n) => n.version)))}>End temporary settings…<//>`} ${!all && html`<${Act} op="shedder.off" class="danger" onClick=${kill}>Kill switch…<//>`}</span></div>
    <${Lacking} ops=${{ 'Kill switch': 'shedder.off', 'end temporary settings': 'shedder.undo', 'change settings': 'shedder.set' }} />
    ${off.length > 0 && html`<${Notice} kind="warn" title=${state(regions)} />`}
    <${Counted} of=${hour} since="Sheds count since each edge started, and charts begin when this page was opened." />
    <${Loaded} of=${alive} rows=${6}>${(v) => v.regions.map((r) => html`<${Region} r=${r} />`)}<//>
    <${Command} text=${shell('shedder', 'show', '--live')} />${alive.value.answer?.ok && html`<${Knees} v=${alive.value.answer.result} hour=${lastHour(hour)} reload=${reload} />`}<${Settings} /><${History} />`;
}

// state says in which regions the kill switch is on.
function state(regions) {
  const names = (list) => list.map((r) => r.region).join(', '), off = regions.filter((r) => r.nodes.some((n) => n.off)), away = regions.filter((r) => r.error);
  const sheds = regions.filter((r) => !off.includes(r) && !away.includes(r));
  return [`Shedding is off in ${names(off)}`, sheds.length > 0 && `${names(sheds)} ${sheds.length > 1 ? 'shed' : 'sheds'}`, away.length > 0 && `${names(away)} ${away.length > 1 ? 'do' : 'does'} not answer`].filter(Boolean).join('; ');
}

function Region({ r }) {
  const h = lastHour(hour);
  return html`<section aria-labelledby=${'shed-' + r.region}><h2 id=${'shed-' + r.region}>${r.region} <${Badge} kind=${r.error ? 'bad' : r.converged ? 'good' : 'warn'}>${r.error ? 'unknown' : r.converged ? 'all run the same' : 'edges differ'}<//></h2>
    ${r.error && html`<${Trouble} title="Its edges cannot be asked" text=${r.error} />`}
    ${r.nodes.length === 0 && !r.error && html`<${Empty} title="No edge is registered" />`}
    ${r.nodes.length > 0 && html`<${Table} label=${'Shedders of ' + r.region} head=${columns(h && 'in the last hour')} widths=${widths}>
      ${r.nodes.map((n) => html`<${Node} key=${n.id} n=${h ? counted(h, r.region, n) : n} />`)}<//>`}</section>`;
}

export const columns = (when) => ['edge, upstream', ['level', 'n'], ['utilization', 'n'], 'signals: value between its knees', ['demand/s', 'n'], ['served/s', 'n'], 'shed ' + (when || 'since the edge started'), 'candidates would have shed'];

export const widths = [15, 7, 9, 34, 8, 8, 9, 10];

export function Node({ n }) {
  if (!n.upstreams?.length) return html`<tr><th scope="row">${n.id}</th><td colspan="7" class="dim">${n.admin_error || 'it does not report its shedder'}</td></tr>`;
  return n.upstreams.map((u) => html`<tr>
    <th scope="row">${n.id}<div class="why">${u.name}, <code>${n.version}</code></div></th>
    <td class=${'n' + (u.level > 0 ? ' bad' : '')}>${level(u.level)}</td><td class="n">${level(u.utilization)}<div class="why">${u.winner || 'no signal'}</div></td>
    <td>${u.signals?.map((s) => html`<div class="signal"><span>${s.name}</span>${s.problem ? html`<span class="dim">${s.problem}</span>` : html`<${Meter} value=${s.value} low=${s.low} high=${s.high} label=${`${s.name}: ${unit(s, s.value)}, knees ${unit(s, s.low)} and ${unit(s, s.high)}`} /><span class="n">${unit(s, s.value)} <span class="dim">/ ${unit(s, s.high)}</span></span>`}</div>`)}</td>
    <td class="n">${rate(u.demand)}</td><td class="n">${rate(u.served)}</td>
    <td>${shed(u)}</td>
    <td>${u.candidates?.length ? u.candidates.map((c) => html`<div>${c.name}: level ${level(c.level)}</div>`) : html`<span class="dim">none</span>`}</td></tr>`);
}

// counted is an edge with what Prometheus counted of each class, or no classes if it does not know the edge.
const counted = (h, region, n) => ({ ...n, upstreams: n.upstreams?.map((u) => {
  const past = h.upstreams[idOf(region, n.id, u.name)]?.shed;
  return { ...u, classes: past && [...new Set([...(u.classes ?? []).map((c) => c.name), ...Object.keys(past)])].map((name) => ({ name, ...past[name] })) };
}) });

function shed(u) {
  if (!u.classes) return '–';
  const list = u.classes.filter((c) => c.shed_by_level + c.shed_by_cap >= 0.5);
  return list.length ? list.map((c) => html`<div>${c.name}: <b>${number(c.shed_by_level + c.shed_by_cap)}</b>${c.shed_by_cap >= 0.5 && html` <span class="dim">(${number(c.shed_by_cap)} by cap)</span>`}</div>`) : html`<span class="dim">nothing</span>`;
}

function kill() {
  ask({
    title: 'Switch the load shedder off?', regions: regionsOf(alive), text: 'No edge sheds anything until then; then the previous settings return, even without Consul. Limits keep working.', verb: 'Switch off', danger: true, done: 'The shedder is off',
    fields: [{ name: 'for', label: 'For how long', value: '1h', required: true }, { name: 'message', label: 'Why (for the history)', required: true, hint: 'INC-1234' }],
    command: (v) => shell('shedder', 'set', 'enabled=false', '--for', v.for, '--message', v.message || '…', v.partial && '--partial'),
    act: (v) => post('/shedder/off', { for: v.for, message: v.message, partial: v.partial }), after: reload,
  });
}

function end(versions) {
  const of = [...new Set(versions)];
  ask({
    title: 'End the temporary settings?', regions: regionsOf(alive), text: 'The previous settings return immediately.', verb: 'End them', done: 'They have ended',
    command: () => shell('undo', 'shedder', of.flatMap((v) => ['--of', v])), act: () => post('/shedder/undo', { of }), after: reload,
  });
}

function change(e) {
  e.preventDefault();
  const list = assignments.value.split(/\s+/).filter(Boolean);
  ask({
    title: `Change ${plural(list.length, 'setting')}?`, regions: regionsOf(alive), text: lasts.value ? `For ${lasts.value}; then the previous settings return.` : 'Until the next change.', verb: 'Change', danger: true, done: 'Every edge runs them',
    fields: [{ name: 'message', label: 'Why (for the history)', required: true, hint: 'the origin was moved, CHG-12' }],
    command: (v) => shell('shedder', 'set', list, lasts.value ? ['--for', lasts.value] : [], '--message', v.message || '…', v.partial && '--partial'),
    act: (v) => post('/shedder/set', { settings: list, ...(lasts.value && { for: lasts.value }), message: v.message, partial: v.partial }), after: reload,
  });
}

function Settings() {
  return html`<section aria-labelledby="settings"><h2 id="settings">Settings</h2>
    <form class="inline" onSubmit=${change}>
      <label class="field widest"><span>FIELD=VALUE, several separated by spaces; a candidate runs alongside the live settings and sheds nothing</span><input required value=${assignments.value} placeholder="signals.inflight.high=400 candidates.stricter.target=0.6" autocomplete="off" onInput=${(e) => { assignments.value = e.target.value; }} /></label>
      <label class="field"><span>For how long (empty: until the next change)</span><input value=${lasts.value} size="8" autocomplete="off" placeholder="1h" pattern="([0-9]+(ms|s|m|h))*" onInput=${(e) => { lasts.value = e.target.value.trim(); }} /></label>
      <${Act} op="shedder.set" type="submit" class="primary">Change…<//></form>
    <${Loaded} of=${settings} rows=${3}>${(list) => (list.length === 0 ? html`<${Empty} title="Nothing is published"><p class="dim">Each edge follows its own configuration.</p><//>` : list.map((s) => html`
      <details><summary>${s.regions.join(', ')}: ${s.in_force ? html`<code>${s.in_force.version}</code>` : 'each edge follows its own configuration'}${s.pointers[s.regions[0]]?.expires_at && html` <span class="dim">until ${stamp(s.pointers[s.regions[0]].expires_at)}</span>`}</summary>
        <pre class="document">${s.document || s.error || 'no document'}</pre></details>`))}<//><${Command} text=${shell('shedder', 'show')} /></section>`;
}

function History() {
  return html`<section aria-labelledby="changes"><h2 id="changes">Changes</h2><${Loaded} of=${history} rows=${3}>${(list) => (list.length === 0 ? html`<${Empty} title="No changes yet" />` : html`
    <${Table} label="Changes of the settings" head=${['when', 'who', 'version', 'until', 'regions', 'why']}>${list.map((c) => html`<tr><td><span title=${stamp(c.applied_at)}>${ago(c.applied_at)}</span></td><td>${c.applied_by}</td>
      <td><code>${c.version}</code>${c.current.length > 0 && html` <${Badge} kind="good">active<//>`}</td><td>${c.expires_at ? stamp(c.expires_at) : '–'}</td><td>${c.regions.join(', ')}</td><td>${c.message ?? '–'}</td></tr>`)}<//>`)}<//>
    <${Command} text=${shell('shedder', 'history')} /></section>`;
}
