// Try a document on traffic: who would have been limited, next to the active document.
import { html, signal, post, upload, number, plural, stamp, brief, bytes, shell } from './lib.js';
import { Badge, Notice, Failure, Command, Table, Empty } from './parts.js';

const choice = signal({ source: 'nodes', region: '', file: null });
const run = signal({ phase: 'idle' });
let current = 0, cancelUpload;

// Try is the section below the editor: regions are their names, document the text to try.
export function Try({ regions, document, valid }) {
  const c = choice.value, r = run.value, region = c.region || regions[0] || '';
  const set = (part) => { choice.value = { ...choice.peek(), ...part }; };
  const ready = valid && region && (c.source === 'nodes' || c.file);
  // Keys keep Try and Cancel two buttons: a click on one that turns into the other would also submit.
  const stale = r.phase === 'done' && r.document !== document;
  return html`<section aria-labelledby="try"><h2 id="try">Try it on traffic</h2>
    <p class="dim">Replays traffic against the document above and the active one, and shows who would have been limited. Nothing is changed.</p>
    <form class="inline" onSubmit=${(e) => { e.preventDefault(); start(document, region); }}>
      <fieldset class="choice"><legend>Traffic</legend>
        <label><input type="radio" name="source" value="nodes" checked=${c.source === 'nodes'} onChange=${() => set({ source: 'nodes' })} /> the last minutes, from the edges</label>
        <label><input type="radio" name="source" value="log" checked=${c.source === 'log'} onChange=${() => set({ source: 'log' })} /> an access log</label>
      </fieldset>
      <label class="field"><span>${c.source === 'nodes' ? 'Region' : 'Compared with the rules of'}</span><select name="region" value=${region} onChange=${(e) => set({ region: e.target.value })}>${regions.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      ${c.source === 'log' && html`<label class="field"><span>Log, plain or gzip</span><input type="file" name="log" onChange=${(e) => set({ file: e.target.files[0] ?? null })} /></label>`}
      ${r.phase === 'running' ? html`<button key="cancel" type="button" onClick=${cancel}>Cancel</button>` : html`<button key="try" type="submit" class="primary" disabled=${!ready}>Try</button>`}
    </form>
    ${!valid && html`<p class="dim">${document.trim() ? 'Correct the document first.' : 'Load a document first.'}</p>`}
    ${r.phase === 'idle' && html`<${Command} text=${commandOf(c.source, region)} />`}
    <div aria-live="polite">
      ${r.phase === 'running' && html`<${Progress} r=${r} />`}
      ${r.phase === 'cancelled' && html`<${Notice} title="Cancelled"><p>Nothing was changed.</p><//>`}
      ${stale && html`<${Notice} kind="warn" title="The document was edited since; try it again" />`}
      ${r.phase === 'done' && (r.answer.ok ? html`<${Result} a=${r.answer} />` : html`<${Failed} a=${r.answer} source=${r.source} />`)}
    </div></section>`;
}

const commandOf = (source, region) => (source === 'nodes' ? shell('rules', 'test', '--from-nodes', 'rules.yaml', '--region', region) : shell('rules', 'test', 'rules.yaml', 'access.log', '--region', region));

async function start(document, region) {
  const { source, file } = choice.peek(), mine = ++current;
  run.value = { phase: 'running', source, sent: 0, total: source === 'log' ? file.size : 0 };
  let answer;
  if (source === 'nodes') answer = await post('/rules/test/recent', { document, region: [region] });
  else {
    // As a text, the document would get other line ends, and so another version.
    const u = upload('/rules/test', { region, document: new Blob([document]), log: file }, (sent, total) => { if (mine === current) run.value = { ...run.peek(), sent, total }; });
    cancelUpload = u.cancel;
    answer = await u.done;
  }
  if (mine === current && answer) run.value = { phase: 'done', answer, source, document };
}

function cancel() {
  current++;
  cancelUpload?.();
  run.value = { phase: 'cancelled' };
}

function Progress({ r }) {
  if (r.source === 'nodes') return html`<p role="status">Asking the edges, and replaying…</p>`;
  const all = r.total > 0 && r.sent >= r.total;
  return html`<p role="status">${all ? 'Read; the last lines are being decided…' : `${bytes(r.sent)} of ${bytes(r.total)} read`}</p><progress aria-label="How much of the log is read" max=${r.total || 1} value=${r.sent}></progress>`;
}

function Failed({ a, source }) {
  const off = source === 'nodes' && /recent\.keep/.test(a.detail ?? '');
  return html`${off
    ? html`<${Empty} title="The edges keep no requests"><p class="dim">With <code>recent: {keep: 10000}</code> in their configuration, each keeps its latest requests in memory, without secrets. Until then, try a log.</p><//>`
    : html`<${Failure} answer=${a} what="This could not be tried" />`}<${Command} text=${a.command} />`;
}

const percent = (n, of) => (of ? ((100 * n) / of).toFixed(2) + '%' : '–');

function Result({ a }) {
  const r = a.result, before = r.running, after = r.candidate, ch = r.changes;
  const rules = merged(before, after);
  return html`<div class="tried">
    <h3>${plural(r.requests, 'request')} <span class="dim">from ${stamp(r.from)} to ${stamp(r.to)}${r.sample && `, of ${plural(r.sample.edges, 'edge')} of ${r.sample.region}`}</span></h3>
    ${a.incomplete && html`<${Notice} kind="warn" title="Incomplete"><pre class="text">${a.incomplete}</pre><//>`}
    <${Table} label="Verdicts" head=${['verdict', ...(before ? [[`active, ${before.version}`, 'n'], ['share', 'n']] : []), [`tried, ${after.version}`, 'n'], ['share', 'n']]}>
      ${[['passed', 'passed'], ['limited, 429', 'limited'], ['bad request, 400', 'bad_requests']].filter(([, f]) => f !== 'bad_requests' || after[f] || before?.[f]).map(([name, f]) => html`<tr><th scope="row">${name}</th>
        ${before && html`<td class="n">${number(before[f])}</td><td class="n dim">${percent(before[f], r.requests)}</td>`}<td class=${'n' + (f !== 'passed' && after[f] > (before?.[f] ?? 0) ? ' bad' : '')}>${number(after[f])}</td><td class="n dim">${percent(after[f], r.requests)}</td></tr>`)}<//>
    ${ch && (ch.newly_limited.requests + ch.no_longer_limited.requests === 0
      ? html`<${Notice} title="No request would be decided differently" />`
      : html`<div class="pair"><${Group} title="Newly limited" g=${ch.newly_limited} kind="bad" /><${Group} title="No longer limited" g=${ch.no_longer_limited} kind="good" /></div>`)}
    ${rules.length > 0 && html`<${Table} label="By rule" head=${['rule', 'mode', ['counted', 'n'], ...(before ? [['limited now', 'n']] : []), ['would be limited', 'n'], ['in shadow', 'n'], ['clients', 'n'], 'most limited']}>${rules.map((x) => html`<tr>
      <th scope="row">${x.rule}</th><td><${Badge} kind=${x.after?.mode === 'enforce' ? 'good' : x.after?.mode === 'shadow' ? 'info' : ''}>${x.after?.mode ?? 'removed'}<//></td>
      <td class="n">${number(x.after?.checks)}</td>${before && html`<td class="n">${x.before ? number(x.before.limited) : html`<span class="dim">new</span>`}</td>`}
      <td class=${'n' + ((x.after?.limited ?? 0) > (x.before?.limited ?? 0) ? ' bad' : '')}>${number(x.after?.limited)}</td><td class="n">${number(x.after?.shadow_limited)}</td><td class="n">${number(x.after?.clients)}</td>
      <td><${Most} o=${x.after} /></td></tr>`)}<//>`}
    ${r.notes?.length > 0 && html`<ul class="plain dim">${r.notes.map((n) => html`<li>${n}</li>`)}</ul>`}
    ${r.skipped > 0 && html`<details><summary>${plural(r.skipped, 'line')} could not be read</summary><ul class="plain">${r.skips.map((s) => html`<li>line ${s.line}: ${s.reason}</li>`)}</ul></details>`}
    <${Command} text=${a.command} /></div>`;
}

// merged are the rules of both documents, those with most effect first.
function merged(before, after) {
  const byID = new Map(after.rules.map((o) => [o.rule, { rule: o.rule, after: o }]));
  for (const o of before?.rules ?? []) byID.set(o.rule, { ...(byID.get(o.rule) ?? { rule: o.rule }), before: o });
  const effect = (x) => [x.after, x.before].reduce((n, o) => n + (o ? o.limited + o.shadow_limited : 0), 0);
  return [...byID.values()].sort((a, b) => effect(b) - effect(a)).slice(0, 100);
}

const shown = 3;

function Who({ client }) {
  return client.includes('/') ? html`<code>${client}</code>` : html`<a href=${'/client?client=' + encodeURIComponent(client)} target="_blank" rel="noopener"><code>${client}</code></a>`;
}

function Most({ o }) {
  if (!o?.first) return html`<span class="dim">–</span>`;
  const keys = o.keys?.map((k) => [html`<code class="long" title=${k.key}>${k.key.match(/\{(.*)\}/)?.[1] ?? k.key}</code>`, k.requests]);
  const list = keys ?? o.top.map((c) => [html`<${Who} client=${c.client} />`, c.requests]);
  return html`${list.slice(0, shown).map(([who, n]) => html`<div>${who} <span class="dim">${number(n)}</span></div>`)}${list.length > shown && html`<details><summary>${number(list.length - shown)} more</summary>${list.slice(shown).map(([who, n]) => html`<div>${who} <span class="dim">${number(n)}</span></div>`)}</details>`}`;
}

function Group({ title, g, kind }) {
  if (!g.requests) return null;
  return html`<div><h3>${title}: <span class=${kind}>${plural(g.requests, 'request')}</span> <span class="dim">of ${plural(g.clients, 'client')}</span></h3>
    <${Table} label=${title} head=${['client', ['requests', 'n'], '']} widths=${[20, 14, 66]}>${g.top.map((c) => html`<tr><th scope="row"><${Who} client=${c.client} /></th><td class="n">${number(c.requests)}</td><td></td></tr>`)}<//>
    ${g.first && html`<p class="dim small">The first: ${stamp(g.first.time)}, ${g.first.client}, ${g.first.method} ${g.first.host ?? ''}${g.first.path}, by ${g.first.rule} (${number(g.first.limit)}${g.first.window ? ' in ' + brief(g.first.window) : ' at once'})</p>`}</div>`;
}
