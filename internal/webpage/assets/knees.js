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

// field is the value as settings have it.
const field = (s, v) => (timed.test(s.name) ? `${+(v * 1e6).toPrecision(3)}us` : String(+v.toPrecision(3)));

const each = (v) => v.regions.flatMap((r) => r.nodes.flatMap((n) => (n.upstreams ?? []).map((u) => ({ node: n.id, u }))));

// seen keeps what edges said of their candidate lately, so that the page draws a curve and a rate.
const seen = new Map();
export function see(v) {
  const at = Date.now(), gone = new Set(seen.keys());
  for (const { node, u } of each(v)) {
    const c = u.candidates?.find((one) => one.name === name), key = `${node} ${u.name}`;
    if (!c) continue;
    gone.delete(key);
    const shed = { live: (u.classes ?? []).reduce((sum, k) => sum + k.shed_by_level + k.shed_by_cap, 0), trial: Object.values(c.shed ?? {}).reduce((sum, n) => sum + n, 0) };
    const was = seen.get(key), list = was?.list ?? [];
    seen.set(key, { at, shed, list: [...list, { live: u.level, trial: c.level }].slice(-60), pace: was && { live: Math.max(0, shed.live - was.shed.live) / ((at - was.at) / 1000), trial: Math.max(0, shed.trial - was.shed.trial) / ((at - was.at) / 1000) } });
  }
  gone.forEach((key) => seen.delete(key));
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

export function Knees({ v, reload }) {
  const all = each(v), groups = [...new Set(all.map(({ u }) => u.name))];
  if (groups.length === 0) return null;
  const one = groups.includes(group.value) ? group.value : groups[0];
  const signals = (all.find(({ u }) => u.name === one).u.signals ?? []).filter((s) => s.high > 0);
  const settings = signals.flatMap((s) => ['low', 'high'].filter((k) => wanted.value[`${s.name}.${k}`] != null).map((k) => `signals.${s.name}.${k}=${field(s, wanted.value[`${s.name}.${k}`])}`));
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
    ${seen.size > 0 && html`<${Table} label="The candidate and the live settings" head=${['edge, upstream', ['live level', 'n'], 'since opening, at most 3 min', ['live sheds/s', 'n'], ['candidate level', 'n'], 'since opening, at most 3 min', ['would shed/s', 'n']]}>${[...seen].map(([key, c]) => {
      const last = c.list.at(-1);
      return html`<tr><th scope="row">${key}</th><td class="n">${level(last.live)}</td><td><${Spark} values=${c.list.map((p) => p.live)} /></td><td class="n">${rate(c.pace?.live)}</td>
        <td class="n">${level(last.trial)}</td><td><${Spark} values=${c.list.map((p) => p.trial)} bad=${true} /></td><td class="n">${c.pace?.trial > 0 ? html`<${Badge} kind="warn">${rate(c.pace.trial)}<//>` : rate(c.pace?.trial)}</td></tr>`;
    })}<//>`}</section>`;
}
