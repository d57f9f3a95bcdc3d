// Rolling a document out: on one site first, or in waves of regions. The console runs it, so
// it continues when this page is closed, and is here when it is opened again.
import { html, signal, untracked, live, resource, post, number, share, plural, ago, stamp, shell } from './lib.js';
import { Badge, Notice, Command, Table, Act, ask } from './parts.js';
import { left, look, Unfinished, resume, back } from './unfinished.js';

const feed = live('/rules/rollout/events', (v) => {
  const before = untracked(() => feed.value.result);
  if (before?.state !== v.state || before?.began !== v.began) {
    looked.load('/rules/status');
    look();
  }
  // A quick one is over before it was seen to run.
  if (before && !runs(v) && v.state !== 'none' && (runs(before) || before.began !== v.began)) ends(v, launched);
});
let ends = () => {}, launched; // the document that this page has begun to roll out
const looked = resource(); // which region has what
const how = signal('canary');
const set = { canary: signal(''), bake: signal('5m'), waves: signal('1,rest'), soak: signal('10m'), requests: signal('100') };

const runs = (v) => v?.state === 'running' || v?.state === 'halting';

// follow follows it while a page shows it; after is called when one ends.
export function follow(after) {
  ends = after;
  looked.load('/rules/status');
  look();
  const timer = setInterval(() => {
    if (document.hidden) return;
    if (runs(feed.value.result)) looked.load('/rules/status');
    else look(); // another console, or a regionctl in a shell, may roll something out
  }, 3000);
  const stop = feed.follow();
  return () => { clearInterval(timer); stop(); };
}

// ways are those to roll out, the most careful first.
const ways = {
  shadow: ['Shadow', 'New rules count and refuse nobody. The list above shows what they would refuse.'],
  canary: ['Canary', 'One site runs it first. If its figures stay within the bounds, every region gets it; if not, the site goes back.'],
  waves: ['Waves', 'Groups of regions change one after another, each watched before the next. Outside the bounds, the rollout halts and leaves each region as it is.'],
  everywhere: ['Everywhere', 'All regions at once, after the first one has it.'],
};

// Rollout is the section of the rules page. document and base are what the editor has, added the
// ids of the rules that are new in it, edit takes a changed document.
export function Rollout({ document, base, good, added, edit }) {
  const v = feed.value.result, u = left.value, own = v && v.state !== 'none' && (runs(v) || !u || v.state === 'halted');
  const state = own ? v.state : u?.state;
  return html`<section aria-labelledby="roll"><div class="title"><h2 id="roll">Roll out</h2>${state && html`<${Badge} kind=${kinds[state]}>${state}<//>`}</div>
    ${feed.value.phase === 'failed' && feed.value.problem && html`<${Notice} kind="bad" title="The state of the rollout is unknown"><pre class="text">${feed.value.problem}</pre><//>`}
    ${own && html`<${Progress} v=${v} u=${u} />`}
    ${!own && u && html`<${Unfinished} u=${u} after=${again} />`}
    ${v && !runs(v) && u?.state !== 'running' && html`<${Choice} document=${document} base=${base} good=${good} added=${added} edit=${edit} />`}</section>`;
}

const kinds = { running: 'info', halting: 'warn', done: 'good', halted: 'warn', abandoned: 'warn', failed: 'bad' };

// again looks at everything that an action may have changed.
const again = () => { looked.load('/rules/status'); look(); };

function Progress({ v, u }) {
  const said = v.lines.at(-1), regions = looked.value.answer?.ok ? looked.value.answer.result.regions : [];
  const have = (v.result?.regions ?? []).filter((r) => r.result === 'applied').map((r) => r.region);
  const title = runs(v) ? said ?? 'starting…' : v.state === 'done' ? 'Every edge that could be asked runs it' : v.state === 'halted' ? 'Halted' : 'Failed';
  return html`<div class="rollout">
    <p class="dim">${v.by}${v.inputs.message ? ': ' + v.inputs.message : / --resume$/.test(v.command) && v.lines[0] ? ' ' + v.lines[0] : ''} · <span title=${stamp(v.began)}>began ${ago(v.began)}</span>${v.ended && !runs(v) && html`, <span title=${stamp(v.ended)}>ended ${ago(v.ended)}</span>`}</p>
    <${Notice} kind=${kinds[v.state]} title=${title}>${v.detail && html`<pre class="text">${v.detail}</pre>`}<//>
    ${regions.length > 0 && (runs(v) || v.state === 'halted') && html`<${Regions} regions=${regions} v=${v} />`}
    ${v.result?.canary && html`<p>${v.result.canary.pop}: ${traffic(v.result.canary.canary)}; the others ${traffic(v.result.canary.others)}</p>`}
    ${v.lines.length > 0 && html`<details><summary>${plural(v.lines.length, 'line')} of output</summary><pre class="text dim log" tabindex="0">${v.lines.join('\n')}</pre></details>`}
    <div class="buttons">
      ${runs(v) && html`<${Act} op="rules.rollout.halt" touches=${(v.inputs.region ?? '').split(',').filter((r) => r)} class="danger" disabled=${v.state === 'halting'} onClick=${() => halt(v)}>Halt…<//>`}
      ${v.state === 'halted' && u && html`<${Act} op="rules.rollout.resume" class="primary" onClick=${() => resume(u, again)}>Resume…<//><${Act} op="rules.undo" class="danger" onClick=${() => back(u, again)}>Roll back…<//>`}
      ${v.state === 'done' && have.length > 0 && html`<${Act} op="rules.undo" class="danger" onClick=${() => undo(have, v.result.version)}>Roll back…<//>`}
    </div>
    <${Command} text=${v.command} /></div>`;
}

const traffic = (t) => `${number(t.requests)} requests, limited ${share(t.requests ? t.limited / t.requests : 0)}`;

// Regions are how far it is.
function Regions({ regions, v }) {
  return html`<${Table} label="How far it is" head=${['region', 'version', ['edges', 'n'], '', 'state']}>${regions.map((r) => {
    const has = r.pointer && Date.parse(r.pointer.applied_at) >= Date.parse(v.began);
    const there = has ? r.nodes.filter((n) => n.converged).length : 0, most = Math.max(1, r.nodes.length);
    return html`<tr><th scope="row">${r.region}</th><td><code>${r.pointer?.version ?? '–'}</code> ${r.pointer && html`<span class="dim">${ago(r.pointer.applied_at)}</span>`}</td><td class="n">${there} / ${r.nodes.length}</td>
      <td><progress value=${there} max=${most} aria-label=${`${r.region}: ${there} of ${r.nodes.length} edges`}></progress></td>
      <td>${r.error ? html`<${Badge} kind="bad">unknown<//>` : html`<${Badge} kind=${!has ? '' : r.converged ? 'good' : 'warn'}>${!has ? 'as before' : r.converged ? 'changed' : 'on its way'}<//>`}${Object.entries(r.canaries ?? {}).map(([pop, c]) => html` <${Badge} kind="info">canary ${c.version} on ${pop}<//>`)}</td></tr>`;
  })}<//>`;
}

function Choice({ document, base, good, added, edit }) {
  const sites = [...new Set((looked.value.answer?.ok ? looked.value.answer.result.regions : []).flatMap((r) => r.nodes.map((n) => n.pop)))].filter(Boolean).sort();
  const site = set.canary.value || sites[0] || '';
  const way = how.value;
  const field = (name, label, s, size, pattern) => html`<label class="field"><span>${label}</span><input name=${name} value=${s.value} size=${size} pattern=${pattern} autocomplete="off" onInput=${(e) => { s.value = e.target.value.trim(); }} /></label>`;
  return html`<form onSubmit=${(e) => { e.preventDefault(); start(document, base, site, added, edit); }}>
    <fieldset class="ways"><legend class="unseen">How</legend>${Object.entries(ways).map(([name, [title, about]]) => html`<label class=${'way' + (way === name ? ' chosen' : '')}>
      <input type="radio" name="how" value=${name} checked=${way === name} onChange=${() => { how.value = name; }} /><span><b>${title}</b><span class="why">${about}</span></span></label>`)}</fieldset>
    <div class="inline row">
      ${way === 'canary' && html`<label class="field"><span>Site</span><select name="site" value=${site} onChange=${(e) => { set.canary.value = e.target.value; }}>${sites.map((s) => html`<option value=${s}>${s}</option>`)}</select></label>
        ${field('bake', 'Watched for', set.bake, 6, '([0-9]+(ms|s|m|h))+')}`}
      ${way === 'waves' && html`${field('waves', 'Regions in each wave', set.waves, 12, '([0-9]+,)*([0-9]+|rest)')}${field('soak', 'Each watched for', set.soak, 6, '([0-9]+(ms|s|m|h))+')}`}
      ${(way === 'canary' || way === 'waves') && field('requests', 'Requests to judge by', set.requests, 8, '[0-9]{1,5}')}
      ${way === 'shadow' && (added.length ? html`<p class="dim">New here: ${added.slice(0, 100).map((id) => html`<code>${id}</code> `)}${added.length > 100 && `and ${plural(added.length - 100, 'more rule')}`}</p>` : html`<p class="dim">Compare first: no rule is known to be new here. In shadow mode, a rule that refuses today would stop refusing; add a copy under another id instead.</p>`)}
      <span class="right"><${Act} op="rules.rollout.start" type="submit" class="primary" disabled=${!good || (way === 'canary' && !site) || (way === 'shadow' && !added.length)}>Roll out…<//></span>
    </div></form>`;
}

// flags are what a way adds to the command, and to the request.
function flags(way, site) {
  const min = set.requests.value || '100';
  if (way === 'canary') return { canary: site, bake: set.bake.value || '5m', min_requests: min };
  if (way === 'waves') return { waves: set.waves.value, soak: set.soak.value || '10m', min_requests: min };
  return {};
}

function start(document, base, site, added, edit) {
  const way = how.value, more = flags(way, site);
  let text = document;
  if (way === 'shadow') {
    text = withMode(document, new Set(added), 'shadow');
    edit(text);
  }
  const from = base;
  ask({
    title: { shadow: 'Apply the new rules in shadow mode?', canary: `Try this document on ${site} first?`, waves: 'Apply this document in waves?', everywhere: 'Apply this document everywhere?' }[way],
    text: ways[way][1] + ' It continues when this page is closed, until somebody halts it.', verb: 'Roll out', done: 'The rollout has begun',
    fields: [{ name: 'message', label: 'Why (for the history)', required: true, hint: 'halve the login limit, INC-1234' }],
    command: (v) => shell('rules', 'apply', 'rules.yaml', Object.entries(more).flatMap(([name, value]) => ['--' + name.replace('_', '-'), value]), '--message', v.message || '…', '--if-version', from),
    act: (v) => {
      launched = text;
      return post('/rules/rollout/start', { document: text, message: v.message, if_version: from, ...more });
    },
  });
}

function halt(v) {
  ask({
    title: 'Halt the rollout?', text: 'The canary ends. Regions that are changed stay so until you resume or roll back. Ctrl-C does the same where the command runs.', verb: 'Halt', danger: true, done: 'The rollout is halting',
    command: () => v.command + '  # Ctrl-C', act: () => post('/rules/rollout/halt'),
  });
}

function undo(regions, of) {
  ask({
    title: `Roll back ${regions.join(', ')}?`, text: 'What these regions had before is applied to them again.', verb: 'Roll back', danger: true, done: 'They have what they had',
    command: () => shell('undo', 'rules', '--of', of, regions.flatMap((r) => ['--region', r])), act: () => post('/rules/undo', { of: [of], region: regions }),
    after: again,
  });
}

// withMode sets the mode of rules in the text of a document, which keeps its comments. A rule
// that it does not find it leaves alone: the page compares again before anything is applied.
export function withMode(text, ids, mode) {
  const lines = text.split('\n'), top = lines.findIndex((l) => /^rules:/.test(l));
  const first = lines.findIndex((l, i) => i > top && /^\s*- /.test(l));
  if (first < 0) return text;
  const indent = lines[first].match(/^\s*/)[0], begins = (l) => l.startsWith(indent + '- ');
  const out = lines.slice(0, first);
  let from = first;
  while (begins(lines[from] ?? '')) {
    let to = from + 1;
    while (to < lines.length && !begins(lines[to]) && !/^[\w"']/.test(lines[to])) to++;
    const item = lines.slice(from, to), found = item.join('\n').match(/(?:^|[\s{,-])id:\s*(["']?)([^"',}\s]+)\1/);
    if (ids.has(found?.[2])) {
      if (/^\s*- \{/.test(item[0])) {
        const flow = item.join('\n'), end = flow.lastIndexOf('}');
        const has = /([{,]\s*)mode:\s*["']?\w+["']?/;
        item.splice(0, item.length, has.test(flow) ? flow.replace(has, `$1mode: ${mode}`) : flow.slice(0, end) + `, mode: ${mode}` + flow.slice(end));
      } else {
        const inner = ' '.repeat(item[0].match(/^\s*-\s+/)[0].length), at = item.findIndex((l, i) => i > 0 && l.startsWith(inner + 'mode:'));
        if (at > 0) item[at] = `${inner}mode: ${mode}`;
        else if (/^\s*- mode:/.test(item[0])) item[0] = `${indent}- mode: ${mode}`;
        else item.splice(1, 0, `${inner}mode: ${mode}`);
      }
    }
    out.push(...item);
    from = to;
  }
  return [...out, ...lines.slice(from)].join('\n');
}
