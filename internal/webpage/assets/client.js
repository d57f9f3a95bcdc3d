// Why is somebody refused, what have they left, and a new beginning for them.
import { html, signal, resource, post, number, plural, brief, shell } from './lib.js';
import { ByHand, Listed, Lately, lookByHand } from './byhand.js';
import { BySecret, lookByKey } from './secret.js';
import { Badge, Loaded, Empty, Table, Command, Act, Lacking, Trouble, ask } from './parts.js';

const fields = { client: '', method: 'GET', host: '', path: '/' };
const form = signal(fields), explained = resource(), inspected = resource();
const at = signal(null); // the request that the answers are about

export function enter() {
  const q = new URLSearchParams(location.search);
  lookByKey(q.get('client') ? '' : q.get('key') ?? '');
  if (!q.get('client')) {
    at.value = null;
    lookByHand(null);
  }
  else {
    form.value = Object.fromEntries(Object.entries(fields).map(([name, usual]) => [name, q.get(name) ?? usual]));
    look(false);
  }
}

function look(push = true) {
  const f = Object.fromEntries(Object.entries(form.peek()).map(([name, v]) => [name, v.trim()]));
  at.value = f;
  lookByKey('');
  if (push) history.replaceState(null, '', '/client?' + new URLSearchParams(Object.entries(f).filter(([name, v]) => v && (name === 'client' || v !== fields[name]))));
  explained.load('/limits/explain', f);
  inspected.load('/limits', { key: f.client });
  lookByHand(f.client);
}

export function Page() {
  const f = form.value, set = (name) => (e) => { form.value = { ...form.value, [name]: e.target.value }; };
  return html`<div class="title"><h1 tabindex="-1">Client</h1><span class="dim">Which rules decide, and what is left. Asking charges nothing.</span></div>
    <${Lacking} ops=${{ Reset: 'limits.reset', 'block and allow': 'clients.block' }} />
    <form class="inline" onSubmit=${(e) => { e.preventDefault(); look(); }}>
      <label class="field wide"><span>Address</span><input name="client" required pattern="[0-9A-Fa-f.:]+" title="an IPv4 or IPv6 address" placeholder="203.0.113.7" autocomplete="off" inputmode="text" value=${f.client} onInput=${set('client')} /></label>
      <label class="field"><span>Method</span><input name="method" value=${f.method} size="6" autocomplete="off" onInput=${set('method')} /></label>
      <label class="field"><span>Host</span><input name="host" value=${f.host} placeholder="any" autocomplete="off" onInput=${set('host')} /></label>
      <label class="field wide"><span>Path</span><input name="path" value=${f.path} pattern="/[^?#\\s]*" title="begins with /, without a query" autocomplete="off" onInput=${set('path')} /></label>
      <button type="submit" class="primary">Explain</button>
    </form>
    ${!at.value ? html`<${Empty} title="Whose requests?"><p class="dim">Enter an address to see which rules would decide its next request in each region, and why it is refused.</p><//>` : html`
      <${ByHand} client=${at.value.client} after=${() => look(false)} />
      <section aria-labelledby="explained"><h2 id="explained">The next request</h2><${Loaded} of=${explained} rows=${4}>${(list, answer) => html`<${Verdicts} list=${list} />${refusalsFirst(list).map((e, i, all) => (all.slice(0, i).some((before) => before.verdict === e.verdict) && !e.error ? html`<details><summary>${e.region}: the same</summary><${Explained} e=${e} reset=${reset} /></details>` : html`<${Explained} e=${e} reset=${reset} />`))}<${Command} text=${answer.command} />`}<//></section>
      <section aria-labelledby="inspected"><h2 id="inspected">All rules that count this address</h2><${Loaded} of=${inspected} rows=${3}>${(list, answer) => html`${list.map((r) => html`<${Inspected} r=${r} />`)}<${Command} text=${answer.command} />`}<//></section>
      <${Lately} client=${at.value.client} />`}
    <${BySecret} asked=${() => { at.value = null; lookByHand(null); }} Inspected=${Inspected} />
    <${Listed} open=${(client) => { form.value = { ...fields, client }; look(); scrollTo(0, 0); }} />`;
}

const passes = (e) => e.verdict.startsWith('pass');

// refusalsFirst puts regions that refuse before the others.
const refusalsFirst = (list) => list.toSorted((a, b) => (a.error ? 1 : passes(a) ? 2 : 0) - (b.error ? 1 : passes(b) ? 2 : 0));

// Verdicts is what all regions say together.
function Verdicts({ list }) {
  const asked = list.filter((e) => !e.error), refuse = asked.filter((e) => !passes(e));
  if (asked.length < 2) return null;
  const [kind, text] = refuse.length ? ['bad', `refused in ${refuse.length} of ${plural(asked.length, 'region')}`] : ['good', `passes in all ${asked.length} regions`];
  return html`<p><${Badge} kind=${kind}>${text}<//>${refuse.length > 0 && refuse.length < asked.length && html` ${refuse.map((e) => e.region).join(', ')}`}${asked.length < list.length && html` <span class="dim">${list.length - asked.length} could not be asked</span>`}</p>`;
}

export function Explained({ e, reset }) {
  if (e.error) return html`<${Trouble} kind="warn" title=${e.region + ' could not be asked'} text=${e.error} />`;
  return html`<h3>${e.region} <${Badge} kind=${passes(e) ? 'good' : 'bad'}>${e.verdict}<//>${e.retry_after && html` <span class="dim">retry after ${brief(e.retry_after)}</span>`}${' '}
      <span class="dim small">edge ${e.node}, rules ${e.rules_version}${e.upstream && `, upstream ${e.upstream} as ${e.class}`}</span></h3>
    ${e.listed && html`<p><b>${e.listed.network}</b> is listed: <${Badge} kind=${e.listed.action === 'block' ? 'bad' : 'good'}>${e.listed.action}<//> by ${e.listed.by}: ${e.listed.reason}${e.listed.action === 'allow' && html`. <span class="dim">The behavior policy does not evaluate it meanwhile.</span>`}</p>`}
    ${e.behavior && html`<${Behavior} c=${e.behavior} />`}
    ${e.rules?.length > 0 ? html`<${Decisions} rules=${e.rules} reset=${reset} label=${'Rules of the next request in ' + e.region} />` : html`<p class="dim">No rule counts this request.</p>`}
    ${e.other_methods?.map((o) => html`<p class="dim">Rule ${o.rule} would count it as ${o.methods.join(' or ')}.</p>`)}`;
}

function Behavior({ c }) {
  if (c.exempt) return html`<p class="dim">The behavior policy exempts it.</p>`;
  return html`<p>Tier <b>${c.tier}</b>, score ${Math.floor(c.score)} <span class="dim">(${c.mode}, policy ${c.policy_version})</span>${c.limits > 0 && c.limits < 1 && `, limits × ${c.limits}`}${c.delay && `, delayed by ${brief(c.delay)}`}${c.refused_for && html`, <span class="bad">refused for ${brief(c.refused_for)}</span>`}</p>
    <${Signals} list=${c.signals} />
    ${c.route && html`<p>Its route is in tier <b>${c.route.tier}</b>, score ${Math.floor(c.route.score)}, which applies to all its clients.</p><${Signals} list=${c.route.signals} />`}`;
}

function Signals({ list }) {
  return list?.length > 0 && html`<ul class="plain">${list.map((s) => html`<li>${s.signal}: ${number(s.points)} points; counted ${number(s.value)}, threshold ${number(s.threshold)}</li>`)}</ul>`;
}

function Inspected({ r, what = 'the address' }) {
  if (r.error) return html`<${Trouble} kind="warn" title=${r.region + ' could not be asked'} text=${r.error} />`;
  return html`<h3>${r.region} <span class="dim small">${r.node ? `edge ${r.node}, rules ${r.rules_version}` : ''}</span></h3>
    ${r.rules.length > 0 ? html`<${Decisions} rules=${r.rules} reset=${at.value && reset} label=${`Rules that count ${what} in ${r.region}`} />` : html`<p class="dim">No rule counts by ${what}.</p>`}
    ${r.lacking.map((u) => html`<p class="dim">${u.exempts ? `${u.rule} does not count it: match.not exempts it` : `${u.rule} also counts by ${u.lacks}`}</p>`)}
    ${r.silent > 0 && html`<p class="warn">${plural(r.silent, 'edge')} did not say what they hold of leased limits.</p>`}`;
}

// Allowed says whether a request passes a rule. A rule in shadow mode refuses nobody. Blocks and the
// behavior policy refuse before any rule.
function Allowed({ r }) {
  if (r.allowed) return html`<${Badge} kind="good">yes<//>`;
  return r.mode === 'shadow' && !['blocked', 'behavior'].includes(r.source) ? html`<${Badge} kind="info">would refuse<//>` : html`<${Badge} kind="bad">no<//>${r.retry_after && html` <span class="dim">in ${brief(r.retry_after)}</span>`}`;
}

function Decisions({ rules, label, reset }) {
  return html`<${Table} label=${label} head=${['rule', 'mode', 'allowed', ['left', 'n'], ['limit', 'n'], ['resets in', 'n'], 'decided by', 'counter', '']} widths=${[15, 9, 11, 8, 12, 10, 11, 16]}>${rules.map((r) => html`<tr>
    <th scope="row">${r.rule}</th><td><${Badge} kind=${r.mode === 'enforce' ? 'good' : 'info'}>${r.mode}<//></td>
    <td><${Allowed} r=${r} /></td>
    <td class="n">${number(r.remaining)}${r.leased && html`<div class="why">edges hold ${number(r.held ?? 0)}${(r.holders ?? []).map((h) => html`<div>${h.node}: ${number(h.held)}${h.held_for && ` for ${brief(h.held_for)}`}</div>`)}</div>`}</td><td class="n">${number(r.limit)} <span class="dim">in ${brief(r.window)}</span></td><td class="n">${brief(r.reset_after)}</td>
    <td>${r.source}</td><td><code class="long">${r.key}</code></td>
    <td class="act">${reset && html`<${Act} op="limits.reset" onClick=${() => reset(r)} aria-label=${`Reset ${r.rule}`}>Reset<//>`}</td></tr>`)}<//>`;
}

function reset(r) {
  const f = at.value, body = { rule: r.rule, ...Object.fromEntries(Object.entries(f).filter(([, v]) => v)) };
  ask({
    title: `Reset ${r.rule} for ${f.client}?`, text: 'Every edge of every region forgets this counter. The client is served again immediately.', verb: 'Reset', danger: true, done: 'The counter is reset',
    command: () => shell('limits', 'reset', Object.entries(body).flatMap(([name, v]) => ['--' + name, v])), act: () => post('/limits/reset', body), after: () => look(false),
  });
}
