// The rules: what each does, the document with its faults, who changed it, and changing it.
import { html, signal, computed, untracked, live, resource, repeat, get, post, number, rate, plural, ago, stamp, brief, shell } from './lib.js';
import { Badge, Notice, Failure, Command, Freshness, Waiting, Empty, Loaded, Table, Long, Spark, Act, Lacking, Trouble, ask, regionsOf, lastHour, Counted, Filter, countsBy, wanted } from './parts.js';
import { Try } from './try.js';
import { Rollout, follow } from './rollout.js';
import { historyOf, Changes } from './history.js';
import { LimitedByRule, watchTop } from './top.js';

const status = resource();
const past = historyOf('rules', {
  label: 'History of the rules', regions: () => regionsOf(status), restored: () => { status.load('/rules/status'); load(); },
  acts: (c) => html`<button type="button" class="quiet" onClick=${() => { load(c.version); document.getElementById('edit').scrollIntoView(); }} aria-label=${'Open version ' + c.version + ' in the editor'}>Open</button>`,
});
const series = new Map(); // the last 60 looks, by rule
const matched = new Map(); // when a rule was last seen to decide something, by rule
const limited = new Map(); // what a rule has limited since the page was opened, by rule
let since; // when that was
const hour = resource(); // what Prometheus has, if the console knows one

// uncounted reports that not all edges were asked yet: the definitions come first.
const uncounted = (v) => v.regions.some((r) => r.uncounted);
const feed = live('/rules/events', (v) => {
  if (uncounted(v)) return;
  for (const r of v.rules) {
    const before = limited.get(r.id) ?? { total: since ? 0 : r.total.limited, grown: 0 };
    limited.set(r.id, { total: r.total.limited, grown: before.grown + Math.max(0, r.total.limited - before.total) });
    const s = series.get(r.id) ?? [], all = r.per_second.allowed + r.per_second.limited + r.per_second.shadow_limited;
    s.push(all);
    if (s.length > 60) s.shift();
    series.set(r.id, s);
    if (all > 0) matched.set(r.id, v.at);
  }
  since ??= v.at;
});
const filter = signal('');

export function enter() {
  past.load();
  status.load('/rules/status');
  if (untracked(() => base.value.phase) === 'idle') load();
  const stops = [feed.follow(), follow(ended), repeat(60000, () => hour.load('/rules/hour')), watchTop()];
  return () => stops.forEach((stop) => stop());
}

// ended takes over what a rollout has brought. What was edited here since is made from it, if
// it was begun here.
function ended(v, launched) {
  past.load();
  status.load('/rules/status');
  // A divided fleet has no one document to edit. What nobody wrote on is loaded once it agrees.
  if (base.peek().phase === 'failed' && text.peek() === '') load();
  if (v.state !== 'done' || !launched) return;
  kept.value = launched;
  base.value = { phase: 'ready', version: v.result.version };
  difference.value = null;
}

// added are the rules that the last comparison found new in the document.
const added = () => [...new Set(difference.value?.ok ? difference.value.result.groups.flatMap((g) => (g.difference?.added ?? []).map((r) => r.rule)) : [])];

export function Page() {
  const f = feed.value;
  return html`<div class="title"><h1 tabindex="-1">Rules</h1><${Freshness} feed=${feed} />
      <${Filter} of=${filter} label="Filter rules" /></div>
    <${Lacking} ops=${{ Apply: 'rules.apply', 'roll out': 'rules.rollout.start', restore: 'rules.rollback', halt: 'rules.rollout.halt' }} />
    ${f.phase === 'failed' && f.problem && html`<${Notice} kind="bad" title=${f.result ? 'What you see is out of date' : 'The rules cannot be shown'}><pre class="text">${f.problem}</pre><//>`}
    ${f.result ? html`<${List} v=${f.result} />` : f.phase !== 'failed' && html`<${Waiting} rows=${6} label="Asking the edges" />`}
    <${Command} text=${shell('rules', 'list', '--watch')} />
    <${LimitedByRule} wanted=${(r) => !filter.value || r.rule.toLowerCase().includes(filter.value)} />
    <${Versions} />
    <${Editor} />
    <${Try} regions=${f.result?.regions.map((r) => r.region) ?? []} document=${text.value} valid=${verdict.value?.ok && verdict.value.result.valid} />
    <${Rollout} document=${text.value} base=${base.value.version} good=${verdict.value?.ok && verdict.value.result.valid && base.value.version !== ''} added=${added()} edit=${(t) => { typed(t); compare(); }} />
    <${past.History} />`;
}

function List({ v }) {
  const waits = uncounted(v), when = (n, write) => (waits ? '…' : write(n));
  const rules = v.rules.filter((r) => wanted(r, filter.value)), h = lastHour(hour);
  return html`${v.regions.filter((r) => r.error).map((r) => html`<${Trouble} kind="warn" title=${r.region + ': its rules are unknown'} text=${r.error} />`)}
    ${v.regions.filter((r) => r.nodes_silent > 0).map((r) => html`<${Notice} kind="warn" title=${`${r.region}: ${plural(r.nodes_silent, 'edge')} of ${r.nodes} did not answer; their counts are missing`} />`)}
    <${Counted} of=${hour} since=${since && `Totals are since ${stamp(since)}, when this page was opened.`} />
    ${v.rules.length === 0 && v.regions.some((r) => !r.error) && html`<${Empty} title="No rules: every request passes"><p class="dim">Write some below and apply them.</p><//>`}
    ${rules.length > 0 && html`<${Long} label="Rules" list=${rules} head=${['rule', 'mode', ['limit', 'n'], 'counts by', ['allowed/s', 'n'], ['limited/s', 'n'], ['shadow/s', 'n'], h ? 'last hour' : 'last 2 min', 'last match', [h ? 'limited in the last hour' : 'limited since opening', 'n']]}
      row=${(r, at) => html`<tr key=${r.id} aria-rowindex=${at}>
        <th scope="row">${r.id}${r.differs && html` <${Badge} kind="warn">differs by region<//>`}${r.description && html`<div class="why">${r.description}</div>`}</th>
        <td><${Badge} kind=${r.mode === 'enforce' ? 'good' : r.mode === 'shadow' ? 'info' : ''}>${r.mode}<//></td>
        <td class="n">${number(r.limit)} <span class="dim">in ${brief(r.window)}</span></td>
        <td><code>${countsBy(r)}</code></td>
        <td class="n">${when(r.per_second.allowed, rate)}</td><td class=${'n' + (r.per_second.limited > 0 ? ' bad' : '')}>${when(r.per_second.limited, rate)}</td><td class="n">${when(r.per_second.shadow_limited, rate)}</td>
        <td><${Spark} values=${h ? h.rules[r.id]?.per_second ?? [] : series.get(r.id) ?? []} bad=${r.per_second.limited > 0} /></td>
        <td>${when(r, lastMatch)}</td>
        <td class="n">${when(h ? h.rules[r.id]?.total.limited ?? 0 : limited.get(r.id)?.grown, number)}</td></tr>`} />`}
    ${rules.length === 0 && v.rules.length > 0 && html`<${Empty} title="No rule matches the filter" />`}`;
}

function lastMatch(r) {
  if (matched.has(r.id)) return ago(matched.get(r.id));
  const t = r.total, h = lastHour(hour), minute = h?.rules[r.id]?.per_second.findLastIndex((n) => n > 0) ?? -1;
  if (minute >= 0) return ago(Date.parse(h.from) + 60000 * (minute + 1));
  return t.allowed + t.limited + t.shadow_limited > 0 ? html`<span class="dim">before this page</span>` : html`<span class="dim">never since start</span>`;
}

function Versions() {
  return html`<section aria-labelledby="versions"><h2 id="versions">Versions</h2><${Loaded} of=${status} rows=${2}>${(v) => html`
    <${Table} label="Versions by region" head=${['region', 'version', 'by', 'since', ['edges', 'n'], 'state']}>${v.regions.map((r) => {
      const there = r.nodes.filter((n) => n.converged).length;
      return html`<tr><th scope="row">${r.region}</th><td><code>${r.pointer?.version ?? '–'}</code></td><td>${r.pointer?.applied_by ?? '–'}</td><td>${r.pointer ? ago(r.pointer.applied_at) : '–'}</td>
        <td class="n">${there} / ${r.nodes.length}</td>
        <td><${Badge} kind=${r.error ? 'bad' : r.converged ? 'good' : 'warn'}>${r.error ? 'unknown' : r.converged ? 'all run it' : r.pointer ? 'not all run it' : 'nothing published'}<//>
        ${Object.entries(r.canaries ?? {}).map(([pop, c]) => html` <${Badge} kind="info">canary ${c.version} on ${pop}<//>`)}
        ${r.nodes.filter((n) => n.refused).map((n) => html`<div class="why bad">${n.id} refused ${n.refused.version}: ${n.refused.errors?.join('; ')}</div>`)}${r.error && html`<div class="why">${r.error}</div>`}</td></tr>`;
    })}<//>`}<//><${Command} text=${shell('rules', 'status')} /></section>`;
}

// The editor. base is the version that its text was made from.
const base = signal({ phase: 'idle', version: '' });
const text = signal(''), kept = signal('');
const lines = computed(() => text.value.split('\n')), longest = computed(() => lines.value.reduce((n, l) => Math.max(n, (/[^ -~]/.test(l) ? 2 : 1) * l.length), 0)); // other characters may be wide
const seen = signal(0); // the first line near the editor's window
const lineHeight = 19.5, step = 20;
const verdict = signal(null), difference = signal(null);
let pause, asking = 0;

const example = 'rules:\n  - id: per-client\n    key: [client_ip]\n    algorithm: sliding_window\n    limit: 100\n    window: 1m\n    mode: shadow\n';

async function load(version) {
  base.value = { ...untracked(() => base.value), phase: 'loading' };
  const answer = await get('/rules/document', { version });
  if (answer.ok) {
    text.value = answer.result.document;
    if (!version) kept.value = text.value;
    base.value = { phase: 'ready', version: version ? untracked(() => base.value.version) || version : answer.result.pointer.version };
  } else if (/no rules are active/.test(answer.detail)) {
    text.value = example;
    base.value = { phase: 'ready', version: 'none' };
  } else base.value = { phase: 'failed', version: '', answer };
  difference.value = null;
  validate();
}

async function validate() {
  const mine = ++asking;
  const answer = await post('/rules/validate', { document: untracked(() => text.value) });
  if (mine === asking) verdict.value = answer;
}

function typed(value) {
  text.value = value;
  difference.value = null;
  clearTimeout(pause);
  pause = setTimeout(validate, 300);
}

function jump(line) {
  const area = document.getElementById('document'), all = lines.value;
  const at = all.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(at, at + (all[line - 1]?.length ?? 0));
}

function Editor() {
  const b = base.value, v = verdict.value, all = lines.value;
  const first = Math.min(seen.value, all.length - 1), near = all.slice(first, first + Math.ceil(innerHeight / lineHeight) + 3 * step);
  const place = { paddingTop: 8 + first * lineHeight + 'px' };
  const nothing = b.phase === 'failed' && !text.value; // there is no document to check
  const faults = v?.ok && !v.result.valid && !nothing ? v.result.errors : [];
  const byLine = Map.groupBy(faults, (e) => e.line ?? 0);
  return html`<section aria-labelledby="edit"><div class="title"><h2 id="edit">Document</h2>
      ${b.version && html`<span class="dim">made from <code>${b.version}</code>${text.value !== kept.value && b.version !== 'none' ? ', edited' : ''}</span>`}</div>
    ${b.phase === 'failed' && /different active versions/.test(b.answer.detail) && html`<${Notice} kind="warn" title="The regions run different versions">Open the one to edit in the history below, or load the active version once they agree.<//>`}
    ${b.phase === 'failed' && !/different active versions/.test(b.answer.detail) && html`<${Failure} answer=${b.answer} what="The document could not be loaded" />`}
    ${b.phase === 'loading' && !text.value ? html`<${Waiting} rows=${8} />` : html`
    <div class="editor" onScroll=${(e) => { seen.value = Math.max(0, Math.floor(e.target.scrollTop / lineHeight / step) - 1) * step; }}>
      <pre class="gutter" aria-hidden="true" style=${{ ...place, minWidth: `calc(${String(all.length).length}ch + 24px)` }}>${near.map((_, i) => html`<span class=${byLine.has(first + i + 1) ? 'bad' : ''}>${first + i + 1}</span>`)}</pre>
      <div class="stack" style=${{ minWidth: `calc(${longest.value}ch + 24px)`, minHeight: 16 + all.length * lineHeight + 'px' }}>
        <pre class="lens" aria-hidden="true" style=${place}>${near.map((line, i) => html`<span>${line || ' '}${byLine.has(first + i + 1) && html`<em>   ← ${byLine.get(first + i + 1)[0].message}</em>`}</span>`)}</pre>
        <textarea id="document" aria-label="Rule document, YAML" aria-describedby="verdict" spellcheck=${false} autocomplete="off" autocapitalize="off" wrap="off" value=${text.value}
          onInput=${(e) => typed(e.target.value)}></textarea>
      </div>
    </div>
    <div id="verdict" aria-live="polite">
      ${v && !v.ok && html`<${Failure} answer=${v} what="The document could not be checked" />`}
      ${v?.ok && v.result.valid && html`<p class="good verdict">Good: ${plural(v.result.rules, 'rule')}, version <code>${v.result.version}</code></p>`}
      ${v?.ok && v.result.warnings?.map((w) => html`<p class="warn verdict">${w}</p>`)}
      ${faults.length > 0 && html`<ul class="faults">${faults.map((e) => html`<li><button type="button" class="link" onClick=${() => jump(e.line ?? 1)}>line ${e.line ?? '?'}</button> ${e.path && html`<code>${e.path}</code>`} ${e.message}</li>`)}</ul>`}
    </div>
    <div class="buttons">
      <button type="button" class="quiet" onClick=${() => load()}>Load the active version</button>
      <button type="button" onClick=${compare} disabled=${faults.length > 0}>Compare</button>
      <${Act} op="rules.apply" class="primary" onClick=${apply} disabled=${!v?.ok || !v.result.valid}>Apply…<//>
    </div>`}
    <${Difference} /></section>`;
}

async function compare() {
  difference.value = 'loading';
  difference.value = await post('/rules/diff', { document: text.value });
}

function Difference() {
  const d = difference.value;
  if (!d) return null;
  if (d === 'loading') return html`<${Waiting} rows=${3} label="Comparing" />`;
  if (!d.ok) return html`<${Failure} answer=${d} what="This could not be compared" />`;
  return html`<div class="difference">${d.incomplete && html`<${Notice} kind="warn" title="Incomplete"><pre class="text">${d.incomplete}</pre><//>`}
    ${d.notes?.length > 0 && html`<${Notice} kind="warn" title="Before you apply"><pre class="text">${d.notes.join('\n')}</pre><//>`}
    ${d.result.groups.map((g) => html`<h3>${g.regions.join(', ')} <span class="dim">${g.running[g.regions[0]] ? 'runs ' + g.running[g.regions[0]].version : 'has no rules yet'}</span></h3><${InRegions} g=${g} />`)}<${Command} text=${d.command} /></div>`;
}

function InRegions({ g }) {
  if (g.unreadable) return html`<p class="bad">${g.unreadable}</p>`;
  return g.same || !g.difference ? html`<p class="dim">Has this version already.</p>` : html`<${Changes} d=${g.difference} />`;
}

function apply() {
  const document = text.value, from = base.value.version;
  compare();
  ask({
    title: 'Apply this document everywhere?', regions: regionsOf(status), text: 'The first region switches, then all others, under a lock; then the console waits for every edge. The difference is on the page behind this.', verb: 'Apply', done: 'Every edge runs it',
    fields: [{ name: 'message', label: 'Why (for the history)', required: true, hint: 'halve the login limit, INC-1234' }],
    command: (v) => shell('rules', 'apply', 'rules.yaml', '--message', v.message || '…', '--if-version', from, v.partial && '--partial'),
    act: (v) => post('/rules/apply', { document, message: v.message, if_version: from, partial: v.partial }),
    after: (answer) => {
      past.load();
      status.load('/rules/status');
      if (answer.ok && !answer.incomplete) {
        kept.value = document;
        base.value = { phase: 'ready', version: answer.result.version };
        difference.value = null;
      }
    },
  });
}
