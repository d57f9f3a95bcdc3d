// Behavior policies: which one evaluates clients where, what it says, and who changed it.
import { html, resource, repeat, stamp, ago } from './lib.js';
import { Badge, Loaded, Empty, Table, Command, Lacking, Trouble, regionsOf } from './parts.js';
import { historyOf } from './history.js';
import { Suspects, watchTop } from './top.js';

const status = resource(), active = resource();
const past = historyOf('policy', { label: 'History of the policies', regions: () => regionsOf(status), restored: () => { status.load('/policy/status'); active.load('/policy/document'); } });

export function enter() {
  active.load('/policy/document');
  past.load();
  const stops = [repeat(5000, () => status.load('/policy/status')), watchTop()];
  return () => stops.forEach((stop) => stop());
}

export function Page() {
  return html`<div class="title"><h1 tabindex="-1">Behavior</h1><span class="dim">How clients are evaluated by their behavior. The <a href="/client" data-page="client">client page</a> shows the tier, the score and the signals of one.</span></div>
    <${Lacking} ops=${{ Restore: 'policy.rollback' }} />
    <${Suspects} />
    <section aria-labelledby="where"><h2 id="where">Policies by region</h2><${Loaded} of=${status} rows=${3}>${(v, answer) => html`${v.regions.map((r) => html`<${Region} r=${r} />`)}<${Command} text=${answer.command} />`}<//></section>
    <section aria-labelledby="policy"><h2 id="policy">The active policy</h2>${nothing() ? html`<${Empty} title="No policy is published"><p class="dim">Clients are not evaluated. <code>regionctl policy example > policy.yaml</code> writes one in shadow mode, <code>regionctl policy apply policy.yaml</code> publishes it.</p><//>` : html`<${Loaded} of=${active} rows=${6}>${(v, answer) => html`
      <p class="dim"><code>${v.pointer.version}</code> by ${v.pointer.applied_by}, <span title=${stamp(v.pointer.applied_at)}>${ago(v.pointer.applied_at)}</span></p><pre class="document" tabindex="0">${v.document}</pre><${Command} text=${answer.command} />`}<//>`}</section>
    <${past.History} />`;
}

// nothing reports that no policy is published, which is a good state.
const nothing = () => active.value.answer && !active.value.answer.ok && /no behavior policies are active/.test(active.value.answer.detail ?? '');

function Region({ r }) {
  return html`<h3>${r.region} <${Badge} kind=${r.error ? 'bad' : r.converged ? 'good' : r.pointer ? 'warn' : ''}>${r.error ? 'unknown' : r.converged ? 'all use it' : r.pointer ? 'not all use it' : 'nothing published'}<//> <span class="dim small">${r.pointer ? html`<code>${r.pointer.version}</code>` : ''}</span></h3>
    ${r.error && html`<${Trouble} title="Its edges cannot be asked" text=${r.error} />`}
    ${r.nodes.length > 0 && html`<${Table} label=${'Policies of the edges of ' + r.region} head=${['edge', 'PoP', 'version', 'from', 'since', 'state']} widths=${[18, 12, 22, 14, 14, 20]}>${r.nodes.map((n) => html`<tr><th scope="row">${n.id}</th><td>${n.pop}</td><td><code>${n.version || '–'}</code>${n.canary && html` <${Badge} kind="info">canary<//>`}</td><td>${n.source || '–'}</td>
      <td>${n.since ? ago(n.since) : '–'}</td><td><${Badge} kind=${n.converged ? 'good' : r.pointer ? 'warn' : ''}>${n.converged ? 'up to date' : n.version ? 'another version' : 'evaluates nobody'}<//>${n.refused && html`<div class="why bad">refused ${n.refused.version}: ${n.refused.errors?.join('; ')}</div>`}${n.admin_error && html`<div class="why">${n.admin_error}</div>`}</td></tr>`)}<//>`}`;
}
