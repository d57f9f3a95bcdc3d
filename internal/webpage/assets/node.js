// The page of a node alone: what its own API says, and the little that it can change.
import { html, render, signal, effect, number, rate, level, brief, ago, stamp } from './lib.js';
import { Badge, Notice, Command, Freshness, Waiting, Empty, Table, Long, Dialog, Filter, countsBy, wanted, ask } from './parts.js';
import { Explained } from './client.js';
import { Node as Upstreams, columns, widths } from './shedder.js';

const every = 2000;
const feed = signal({ phase: 'loading', result: null, at: 0 });
const filter = signal('');

// call asks the node. Its answer always has ok; a failure has a detail that says what to do.
async function call(path, options) {
  try {
    const response = await fetch(path, options), text = await response.text();
    const body = /json/.test(response.headers.get('Content-Type')) && text ? JSON.parse(text) : { text };
    return { ...body, ok: response.ok };
  } catch (e) {
    return { ok: false, detail: `The node does not answer: ${e.message}. Is it still running? This page keeps trying.` };
  }
}

// count adds up the samples of a metric by the value of a label.
function count(text, metric, label, wanted = () => true) {
  const sums = {};
  for (const [, labels, value] of text.matchAll(new RegExp(`^${metric}{(.*)} (\\S+)$`, 'gm'))) {
    const of = Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, v]) => [name, v]));
    if (wanted(of)) sums[of[label]] = (sums[of[label]] ?? 0) + +value;
  }
  return sums;
}

const total = (sums) => Object.values(sums).reduce((a, b) => a + b, 0);

async function look() {
  const [ready, rules, shedder, policy, clients, metrics] = await Promise.all(['/readyz', '/v1/rules', '/v1/shedder?brief', '/v1/policy', '/v1/clients', '/metrics'].map((path) => call(path)));
  const before = feed.value.result, at = Date.now();
  if (!metrics.ok || !rules.ok) {
    feed.value = { ...feed.value, phase: 'failed', problem: metrics.detail ?? rules.detail };
    return;
  }
  const counts = {
    requests: total(count(metrics.text, 'weir_requests_total', 'code_class')),
    allowed: count(metrics.text, 'weir_decisions_total', 'rule', (l) => l.outcome === 'allowed'),
    limited: count(metrics.text, 'weir_decisions_total', 'rule', (l) => l.outcome === 'limited'),
    shadow: count(metrics.text, 'weir_decisions_total', 'rule', (l) => l.outcome === 'shadow_limited'),
  };
  const since = before && (at - feed.value.at) / 1000;
  const pace = (of) => (before ? Math.max(0, (of(counts) ?? 0) - (of(before.counts) ?? 0)) / since : null);
  feed.value = { phase: 'ready', at, result: { ready, rules, shedder, policy, clients, counts, pace: { requests: pace((c) => c.requests), limited: pace((c) => total(c.limited)), of: Object.fromEntries(rules.rules.map((r) => [r.id, pace((c) => (c.allowed[r.id] ?? 0) + (c.limited[r.id] ?? 0) + (c.shadow[r.id] ?? 0))])) } } };
}

function Tile({ name, value, kind, note }) {
  return html`<div class="tile"><dt>${name}</dt><dd>${value}${note && html` <${Badge} kind=${kind}>${note}<//>`}</dd></div>`;
}

function View({ v }) {
  const faults = Object.entries(v.ready).filter(([name, text]) => !['ok', 'status', 'rules_version'].includes(name) && text !== 'ok');
  const rules = v.rules.rules.filter((r) => wanted(r, filter.value));
  const highest = Math.max(0, ...(v.shedder.upstreams ?? []).map((u) => u.level));
  return html`<dl class="tiles">
      <${Tile} name="state" value=${v.ready.status ?? 'unknown'} />
      <${Tile} name="rules" value=${number(v.rules.rules.length)} />
      <${Tile} name="requests per second" value=${rate(v.pace.requests)} />
      <${Tile} name="limited per second" value=${rate(v.pace.limited)} />
      <${Tile} name="shed level" value=${level(highest)} note=${highest > 0 && 'overloaded'} kind="bad" />
      <${Tile} name="blocked by hand" value=${number(v.clients.blocks ?? 0)} />
    </dl>
    ${faults.length > 0 && html`<${Notice} kind="warn" title="Some checks of this node fail"><ul class="plain">${faults.map(([name, text]) => html`<li>${name.replaceAll('_', ' ')}: ${text}</li>`)}</ul><//>`}
    <section aria-labelledby="rules"><div class="title"><h2 id="rules">Rules <span class="dim small"><code>${v.rules.version}</code> from ${v.rules.source}, <span title=${stamp(v.rules.since)}>${ago(v.rules.since)}</span></span></h2><${Filter} of=${filter} label="Filter rules" /></div>
      ${v.rules.refused && html`<${Notice} kind="bad" title="A newer document was refused, and this one kept"><pre class="text">${v.rules.refused.errors?.join('\n')}</pre><//>`}
      ${rules.length === 0 ? html`<${Empty} title=${v.rules.rules.length === 0 ? 'There are no rules' : 'No rule matches the filter'} />` : html`<${Long} label="Rules" list=${rules} head=${['rule', 'mode', 'counts by', ['limit', 'n'], ['decisions/s', 'n'], ['in shadow', 'n'], ['allowed since start', 'n'], ['limited', 'n']]} row=${(r, at) => html`<tr key=${r.id} aria-rowindex=${at}>
        <th scope="row">${r.id}${r.description && html`<div class="why">${r.description}</div>`}</th><td><${Badge} kind=${r.mode === 'enforce' ? 'good' : 'info'}>${r.mode}<//></td>
        <td>${countsBy(r)}<div class="why">${r.algorithm.replaceAll('_', ' ')}</div></td>
        <td class="n">${number(r.limit)} <span class="dim">in ${brief(r.window)}</span></td><td class="n">${rate(v.pace.of[r.id])}</td><td class="n">${number(v.counts.shadow[r.id] ?? 0)}</td>
        <td class="n">${number(v.counts.allowed[r.id] ?? 0)}</td><td class="n">${number(v.counts.limited[r.id] ?? 0)}</td></tr>`} />`}
      <${Command} text=${curl('/v1/rules')} /></section>
    <section aria-labelledby="shedder"><div class="title"><h2 id="shedder">Shedder <span class="dim small"><code>${v.shedder.version}</code>${v.shedder.expires_at && ` until ${stamp(v.shedder.expires_at)}`}</span></h2>
        <span class="right">${v.shedder.expires_at ? html`<button type="button" class="primary" onClick=${end}>End temporary settings…</button>` : html`<button type="button" class="danger" onClick=${kill}>Kill switch…</button>`}</span></div>
      <${Table} label="The shedder" head=${columns()} widths=${widths}><${Upstreams} n=${{ id: v.rules.node, version: v.shedder.version, upstreams: v.shedder.upstreams }} /><//>
      <${Command} text=${curl('/v1/shedder')} /></section>
    <section aria-labelledby="policy"><h2 id="policy">Behavior</h2><p>${v.policy.version ? html`Clients are evaluated by policy <code>${v.policy.version}</code>, in mode <b>${v.policy.mode}</b>.` : html`<span class="dim">No behavior policy: clients are not evaluated.</span>`}</p></section>`;
}

const curl = (path, ...options) => ['curl', ...options, `'${location.origin}${path}'`].join(' ');

// The client in question, and what the node says of its next request.
const form = signal({ client: '', path: '/', method: 'GET' }), told = signal(null);
const asked = () => new URLSearchParams(Object.entries(form.peek()).map(([name, v]) => [name, v.trim()]));

async function explain() {
  const query = asked();
  history.replaceState(null, '', '/?' + query);
  told.value = { query, answer: await call('/v1/explain?' + query) };
}

function Client({ node }) {
  const f = form.value, t = told.value, set = (name) => (e) => { form.value = { ...form.value, [name]: e.target.value }; };
  return html`<section aria-labelledby="client"><h2 id="client">Why is a client refused?</h2>
    <form class="inline" onSubmit=${(e) => { e.preventDefault(); explain(); }}>
      <label class="field wide"><span>Address</span><input name="client" required pattern="[0-9A-Fa-f.:]+" title="an IPv4 or IPv6 address" placeholder="203.0.113.7" autocomplete="off" value=${f.client} onInput=${set('client')} /></label>
      <label class="field"><span>Method</span><input name="method" value=${f.method} size="6" autocomplete="off" onInput=${set('method')} /></label>
      <label class="field wide"><span>Path</span><input name="path" value=${f.path} pattern="/[^?#\\s]*" title="begins with /, without a query" autocomplete="off" onInput=${set('path')} /></label>
      <button type="submit" class="primary">Explain</button></form>
    ${t && (t.answer.ok ? html`<${Explained} e=${{ ...t.answer, region: 'The next request', node }} reset=${reset} />` : html`<${Notice} kind="bad" title="This cannot be explained"><pre class="text">${t.answer.detail}</pre><//>`)}
    ${t && html`<${Command} text=${curl('/v1/explain?' + t.query)} />`}</section>`;
}

function reset(r) {
  const query = new URLSearchParams([['rule', r.rule], ...told.value.query]);
  ask({
    title: `Reset ${r.rule} for ${query.get('client')}?`, text: 'The node forgets this counter. The client is served again immediately.', verb: 'Reset', danger: true, done: 'The counter is reset',
    command: () => curl('/v1/limits?' + query, '-X DELETE'), act: () => call('/v1/limits?' + query, { method: 'DELETE' }), after: explain,
  });
}

function kill() {
  const path = (v) => '/v1/shedder?' + new URLSearchParams({ for: v.for });
  ask({
    title: 'Switch the load shedder of this node off?', text: 'It sheds nothing until then; then the previous settings return. Limits keep working.', verb: 'Switch off', danger: true, done: 'The shedder is off',
    fields: [{ name: 'for', label: 'For how long', value: '15m', required: true }],
    command: (v) => curl(path(v), '-X PUT', "-d 'enabled: false'"), act: (v) => call(path(v), { method: 'PUT', body: 'enabled: false' }), after: look,
  });
}

function end() {
  ask({ title: 'End the temporary settings?', text: 'The previous settings return immediately.', verb: 'End them', done: 'They have ended', command: () => curl('/v1/shedder', '-X DELETE'), act: () => call('/v1/shedder', { method: 'DELETE' }), after: look });
}

function App() {
  const f = feed.value;
  return html`<a class="skip" href="#main">Skip to the page</a>
    <header><a class="brand" href="/"><img src="/assets/icon.svg" width="22" height="22" alt="" />weir</a></header>
    <main id="main"><div class="title"><h1 tabindex="-1">${f.result ? 'Edge ' + f.result.rules.node : 'Edge'}</h1><${Freshness} feed=${feed} /></div>
      ${f.phase === 'failed' && f.problem && html`<${Notice} kind="bad" title=${f.result ? 'What you see is out of date' : 'The node cannot be shown'}><pre class="text">${f.problem}</pre><//>`}
      ${f.result ? html`<${View} v=${f.result} /><${Client} node=${f.result.rules.node} />` : f.phase !== 'failed' && html`<${Waiting} rows=${9} label="Looking at the node" />`}</main>
    <footer class="dim">one node; <code>regionctl console</code> shows a fleet · <a href="/v1">API</a> · <a href="/metrics">metrics</a></footer>
    <${Dialog} />`;
}

const q = new URLSearchParams(location.search);
if (q.get('client')) {
  form.value = { ...form.value, ...Object.fromEntries(Object.keys(form.value).filter((name) => q.get(name)).map((name) => [name, q.get(name)])) };
  explain();
}
const root = document.getElementById('app');
root.textContent = '';
effect(() => render(html`<${App} />`, root));
look();
setInterval(() => { if (!document.hidden) look(); }, every);
