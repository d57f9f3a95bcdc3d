// Whom the rules refuse most, and which clients are suspicious. Each name leads to its page.
import { html, resource, repeat, number, plural, stamp, brief } from './lib.js';
import { Badge, Loaded, Table, Command } from './parts.js';

const top = resource();

// watchTop asks now, and again while a page shows it. It returns what ends that.
export const watchTop = () => repeat(10000, () => top.load('/clients/top'));

const hashed = /^(header|cookie|query):[^\s=]{1,128}=~[0-9a-f]{32}$/;

// follow keeps what the page holds, such as an edited document.
function follow(e) {
  if (e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  history.pushState(null, '', e.currentTarget.getAttribute('href'));
  dispatchEvent(new PopStateEvent('popstate'));
}

const Link = ({ name, of }) => html`<a href=${'/client?' + new URLSearchParams(of)} onClick=${follow}><code class="long">${name}</code></a>`;

// Who names a key. One that is a single hash has a page, any other leads to the address that sent
// the latest request.
function Who({ c }) {
  const name = c.key.join(' ') || 'all requests';
  if (hashed.test(name)) return html`<${Link} name=${name} of=${{ key: name }} />${c.client && html`<div class="why">latest from <${Link} name=${c.client} of=${{ client: c.client }} /></div>`}`;
  if (!c.client) return html`<code class="long">${name}</code>`;
  if (c.key.length === 1 && !name.includes('=')) return html`<${Link} name=${name} of=${{ client: c.client }} />`;
  return html`<code class="long">${name}</code><div class="why">latest from <${Link} name=${c.client} of=${{ client: c.client }} /></div>`;
}

const Since = ({ v }) => html`<span class="dim small">at least so often since ${stamp(v.since).slice(11)}, on all edges together</span>`;

function Limited({ rows }) {
  return html`<${Table} label="Refused clients" head=${['who', 'rule', 'what', ['times', 'n'], 'regions']} widths=${[40, 20, 15, 9, 16]}>${rows.map(({ r, c }) => html`<tr key=${r.rule + r.mode + c?.key}>
    <th scope="row">${c ? html`<${Who} c=${c} />` : html`<span class="dim">no key stands out of ${plural(r.refused, 'refusal')}</span>`}</th><td>${r.rule}</td>
    <td><${Badge} kind=${r.mode === 'enforce' ? 'bad' : 'info'}>${r.mode === 'enforce' ? 'refused' : 'would be refused'}<//></td><td class="n">${number(c?.refused)}</td><td>${c ? c.regions.join(', ') : '–'}</td></tr>`)}<//>`;
}

// LimitedNow is a short list for the whole fleet, nothing if nobody is limited.
export function LimitedNow() {
  const v = top.value.answer?.ok && top.value.answer.result;
  const rows = !v ? [] : v.rules.filter((r) => r.mode === 'enforce').flatMap((r) => r.clients.map((c) => ({ r, c }))).sort((a, b) => b.c.refused - a.c.refused).slice(0, 5);
  return rows.length > 0 && html`<section aria-labelledby="limited"><div class="title"><h2 id="limited">Most limited clients</h2><${Since} v=${v} /></div><${Limited} rows=${rows} /></section>`;
}

// LimitedByRule are those of each rule that wanted wants; for a rule in shadow mode, whom it would hit.
export function LimitedByRule({ wanted }) {
  return html`<section aria-labelledby="limited"><h2 id="limited">Whom the rules limit</h2><${Loaded} of=${top} rows=${2}>${(v, answer) => {
    const rows = v.rules.filter(wanted).flatMap((r) => (r.clients.length ? r.clients.slice(0, 5).map((c) => ({ r, c })) : [{ r }]));
    return html`${rows.length > 0 ? html`<p><${Since} v=${v} /></p><${Limited} rows=${rows} />` : html`<p class="dim">No rule has refused anyone since ${stamp(v.since).slice(11)}, and none in shadow mode would have.</p>`}<${Command} text=${answer.command} />`;
  }}<//></section>`;
}

// Suspects are the clients above the mildest tier, the severest first.
export function Suspects() {
  return html`<section aria-labelledby="suspects"><h2 id="suspects">Suspicious clients</h2><${Loaded} of=${top} rows=${2}>${(v, answer) => html`${v.suspects.length === 0
    ? html`<p class="dim">No client above the mildest tier has sent requests since ${stamp(v.since).slice(11)}.</p>`
    : html`<${Table} label="Tiers and signals" head=${['who', 'tier', ['score', 'n'], 'signals', ['requests', 'n'], 'regions']} widths=${[30, 20, 8, 20, 10, 12]}>${v.suspects.map((s) => html`<tr key=${s.key}><th scope="row"><${Who} c=${s} /></th>
      <td><${Badge} kind=${s.mode === 'enforce' ? 'bad' : 'info'}>${s.tier}<//>${s.mode !== 'enforce' && html` <span class="dim">in shadow mode</span>`}${s.refused_for && html`<div class="why">${s.mode === 'enforce' ? 'refused' : 'would be refused'} for ${brief(s.refused_for)}</div>`}</td>
      <td class="n">${number(Math.floor(s.score))}</td><td>${s.signals.map((x) => x.signal).join(', ') || '–'}</td><td class="n">${number(s.requests)}</td><td>${s.regions.join(', ')}</td></tr>`)}<//>`}<${Command} text=${answer.command} />`}<//></section>`;
}
