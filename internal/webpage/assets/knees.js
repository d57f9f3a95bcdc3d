// Other knees than the live ones: sliders that write a candidate, what it would shed, and the
// step from there to everybody.
import { html, signal, post, number, rate, level, plural, shell } from './lib.js';
import { Badge, Command, Table, Act, Spark, ask } from './parts.js';

const name = 'trial'; // of the candidate
const timed = /wait|latency/;
const wanted = signal({}); // by signal and knee, what a person has set
const group = signal('');

// unit writes a signal's value: times are in seconds.
export const unit = (s, v) => (timed.test(s.name) ? (v * 1000).toFixed(v < 0.01 ? 2 : 0) + ' ms' : v < 10 && v % 1 ? v.toFixed(2) : number(v));

// idOf is the name of an edge's upstream group in the last hour.
export const idOf = (region, node, upstream) => `${region}/${node}/${upstream}`;

// field is the value as settings have it.
const field = (s, v) => (timed.test(s.name) ? `${+(v * 1e6).toPrecision(3)}us` : String(+v.toPrecision(3)));

const each = (v) => v.regions.flatMap((r) => r.nodes.flatMap((n) => (n.upstreams ?? []).map((u) => ({ id: idOf(r.region, n.id, u.name), label: `${n.id} ${u.name}`, u }))));

// seen keeps what edges said of their candidate lately, so that the page draws a curve and a rate.
const seen = new Map();
export function see(v) {
  const at = Date.now(), gone = new Set(seen.keys());
  for (const { id, label, u } of each(v)) {
    const c = u.candidates?.find((one) => one.name === name);
    if (!c) continue;
    gone.delete(id);
    const shed = { live: (u.classes ?? []).reduce((sum, k) => sum + k.shed_by_level + k.shed_by_cap, 0), trial: Object.values(c.shed ?? {}).reduce((sum, n) => sum + n, 0) };
    const was = seen.get(id), grown = (k) => Math.max(0, shed[k] - was.shed[k]) / ((at - was.at) / 1000), pace = was && { live: grown('live'), trial: grown('trial') };
    seen.set(id, { at, label, level: { live: u.level, trial: c.level }, shed, pace, list: [...(was?.list ?? []), ...(pace ? [pace] : [])].slice(-60) });
  }
  gone.forEach((id) => seen.delete(id));
}

function Slider({ s, knee }) {
  const at = `${s.name}.${knee}`, live = s[knee], now = wanted.value[at] ?? live, most = Math.max(2 * s.high, 1e-6);
  const set = (e) => {
    const next = { ...wanted.value, [at]: +e.target.value };
    if (Math.abs(next[at] - live) < most / 1000) delete next[at];
    wanted.value = next;
  };
  return html`<label class="field slider"><span>${s.name} ${knee} <b>${unit(s, now)}</b>${wanted.value[at] != null && html` instead of ${unit(s, live)}`}</span>
    <input type="range" name=${at} min="0" max=${most} step=${most / 200} value=${now} onInput=${set} /></label>`;
}

export function Knees({ v, hour, reload }) {
  const all = each(v), groups = [...new Set(all.map(({ u }) => u.name))];
  if (groups.length === 0) return null;
  const one = groups.includes(group.value) ? group.value : groups[0];
  const signals = (all.find(({ u }) => u.name === one).u.signals ?? []).filter((s) => s.high > 0);
  const settings = signals.flatMap((s) => ['low', 'high'].filter((k) => wanted.value[`${s.name}.${k}`] != null).map((k) => `signals.${s.name}.${k}=${field(s, wanted.value[`${s.name}.${k}`])}`));
  const chart = hour ? 'last hour' : 'since opening, at most 3 min';
  const propose = (live) => {
    const list = settings.map((text) => (live ? text : `candidates.${name}.${text}`));
    ask({
      regions: v.regions, title: live ? 'Shed by these knees?' : 'Run these knees alongside the live ones?', danger: live,
      text: live ? 'Every edge sheds by them immediately.' : 'The candidate sees what the live settings see, and sheds nothing. It counts what it would have shed.',
      verb: live ? 'Shed by them' : 'Run them', done: live ? 'Every edge sheds by them' : 'Every edge runs the candidate',
      fields: [{ name: 'for', label: 'For how long (empty: until the next change)', value: '1h' }, { name: 'message', label: 'Why (for the history)', required: true, hint: 'sheds too late, CHG-12' }],
      command: (f) => shell('shedder', 'set', list, f.for ? ['--for', f.for] : [], '--message', f.message || '…', f.partial && '--partial'),
      act: (f) => post('/shedder/set', { settings: list, ...(f.for && { for: f.for }), message: f.message, partial: f.partial }), after: reload,
    });
  };
  return html`<section aria-labelledby="knees"><h2 id="knees">Move the knees</h2>
    <p class="dim">Run other knees as a candidate alongside the live ones; it counts what it would have shed. Then shed by them. A candidate applies to all upstream groups.</p>
    ${groups.length > 1 && html`<label class="field"><span>Live values of</span><select value=${one} onChange=${(e) => { group.value = e.target.value; wanted.value = {}; }}>${groups.map((g) => html`<option>${g}</option>`)}</select></label>`}
    <div class="sliders">${signals.map((s) => html`<${Slider} key=${s.name + 'low'} s=${s} knee="low" /><${Slider} key=${s.name + 'high'} s=${s} knee="high" />`)}</div>
    <p class="buttons"><button type="button" class="quiet" disabled=${settings.length === 0} onClick=${() => { wanted.value = {}; }}>Reset the sliders</button>
      <${Act} op="shedder.set" disabled=${settings.length === 0} onClick=${() => propose(false)}>Run as a candidate…<//>
      <${Act} op="shedder.set" class="primary" disabled=${settings.length === 0} onClick=${() => propose(true)}>Shed by them…<//></p>
    ${settings.length > 0 && html`<p class="dim">${plural(settings.length, 'knee')} changed.</p><${Command} text=${shell('shedder', 'set', settings.map((text) => `candidates.${name}.${text}`))} />`}
    ${seen.size > 0 && html`<${Table} label="The candidate and the live settings" head=${['edge, upstream', ['live level', 'n'], ['live sheds/s', 'n'], chart, ['candidate level', 'n'], ['would shed/s', 'n'], chart]}>${[...seen].map(([id, c]) => {
      const past = hour?.upstreams[id];
      return html`<tr><th scope="row">${c.label}</th><td class="n">${level(c.level.live)}</td><td class="n">${rate(c.pace?.live)}</td><td><${Spark} values=${hour ? past?.per_second ?? [] : c.list.map((p) => p.live)} /></td>
        <td class="n">${level(c.level.trial)}</td><td class="n">${c.pace?.trial > 0 ? html`<${Badge} kind="warn">${rate(c.pace.trial)}<//>` : rate(c.pace?.trial)}</td><td><${Spark} values=${hour ? past?.candidates[name] ?? [] : c.list.map((p) => p.trial)} bad=${true} /></td></tr>`;
    })}<//>`}</section>`;
}
