// Limits that regions share: what each region knows of the others, and by how much limits are exceeded.
import { html, resource, repeat, number, plural, brief } from './lib.js';
import { Badge, Loaded, Empty, Table, Command, Notice, Trouble } from './parts.js';

const known = resource();

export function enter() {
  return repeat(2000, () => known.load('/limits/global'));
}

export function Page() {
  return html`<div class="title"><h1 tabindex="-1">Global limits</h1><span class="dim">Rules with <code>scope: global</code>, which all regions count together. The <a href="/client" data-page="client">client page</a> shows the counts of one.</span></div>
    <${Loaded} of=${known} rows=${6}>${(list, answer) => html`${none(list) ? html`<${Empty} title="No rule is global"><p class="dim">Each region counts separately. <code>scope: global</code> in a rule makes regions count together.</p><//>` : list.map((r) => html`<${Region} r=${r} />`)}<${Command} text=${answer.command} />`}<//>`;
}

const none = (list) => list.every((r) => !r.error && r.rules.length === 0);

function Region({ r }) {
  const alone = Object.entries(r.alone ?? {});
  const state = r.error ? 'bad' : alone.length > 0 ? 'warn' : 'good';
  return html`<section aria-label=${'Global limits in ' + r.region}><h2>${r.region} <${Badge} kind=${state}>${{ bad: 'unknown', warn: 'alone', good: 'counts with others' }[state]}<//> ${!r.error && html`<span class="dim small">${plural(r.edges, 'edge')}${r.delay && `, learns of requests elsewhere within ${brief(r.delay)}`}</span>`}</h2>
    ${r.error && html`<${Trouble} title="Its edges cannot be asked" text=${r.error} />`}
    ${alone.map(([reason, n]) => html`<${Notice} kind="warn" title="Global limits hold in this region only"><p>${plural(n, 'edge')}: ${reason}</p><//>`)}
    ${r.silent > 0 && html`<p class="warn">${plural(r.silent, 'edge')} did not report what they know.</p>`}
    ${r.uncounted > 0 && html`<p class="warn">${number(r.uncounted)} units are unknown to other regions: edges count too many keys.</p>`}
    ${r.rules.length > 0 && html`<${Table} label=${'Global rules in ' + r.region} head=${['rule', ['limit', 'n'], 'mode', ['exceeded by', 'n'], ['bound', 'n'], ['rights held', 'n'], 'when cut off']} widths=${[20, 14, 13, 13, 12, 12, 16]}>${r.rules.map((g) => html`<tr>
      <th scope="row">${g.rule}</th><td class="n">${number(g.limit)} <span class="dim">in ${brief(g.window)}${g.burst > 0 && `, burst ${number(g.burst)}`}</span></td><td><${Badge} kind="info">${g.escrow ? 'escrow' : 'eventual'}<//></td>
      <td class="n">${g.escrow ? 'never' : html`<span class=${g.bound > 0 && g.overshoot > g.bound ? 'bad' : ''}>${share(g.overshoot)}</span>`}</td><td class="n">${g.escrow || !g.bound ? '–' : share(g.bound)}</td><td class="n">${g.escrow ? number(g.rights ?? 0) : '–'}</td><td>${g.on_partition}</td></tr>`)}<//>`}
    ${r.rules.some((g) => g.escrow) && r.parts !== 1 && html`<p class=${r.parts === 0 ? 'warn' : ''}>Of limits in escrow it may spend the parts of ${plural(r.parts, 'region')}.</p>`}
    ${r.others.length > 0 && html`<p class="dim">Of ${plural(r.kept, 'counter')}, ${number(r.traveling)} travel to other regions.</p><${Table} label=${'What ' + r.region + ' hears'} head=${['hears from', ['at most this old', 'n'], '']} widths=${[20, 14, 66]}>${r.others.map((o) => html`<tr><th scope="row">${o.region}</th><td class="n">${brief(o.lag)}</td><td></td></tr>`)}<//>`}</section>`;
}

const share = (x) => (100 * x).toFixed(2) + '%';
