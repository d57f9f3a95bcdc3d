// What operators decided about clients by hand, and what edges refused them lately.
import { html, signal, resource, post, plural, share, stamp, ago, shell } from './lib.js';
import { Badge, Loaded, Empty, Table, Command, Act, Trouble, ask, Filter } from './parts.js';

const covering = resource(), listed = resource(), recent = resource();
const filter = signal(''), everything = signal(false);

// lookByHand asks about a client, and for the list of all.
export function lookByHand(client) {
  listed.load('/clients');
  if (client) covering.load('/clients/show', { network: client });
  if (client) lookLately(client);
}

const lookLately = (client) => recent.load('/clients/recent', { network: client, lines: '50', all: everything.peek() ? 'true' : '' });

const kindOf = (action) => (action === 'block' ? 'bad' : 'good');
const until = (e) => (e.until ? html`<time datetime=${e.until}>${stamp(e.until)}</time>` : 'further notice');

// ByHand is what is decided about one client, and the buttons to decide otherwise.
export function ByHand({ client, after }) {
  return html`<section aria-labelledby="by-hand"><div class="title"><h2 id="by-hand">Blocked or allowed by hand</h2>
      <span class="right"><${Act} op="clients.block" class="danger" onClick=${() => decide('block', client, after)}>Block…<//> <${Act} op="clients.allow" onClick=${() => decide('allow', client, after)}>Allow…<//></span></div>
    <${Loaded} of=${covering} rows=${1}>${(list, answer) => html`${list.length === 0
      ? html`<p class="dim">Nothing: rules, the shedder and the behavior policy decide.</p>`
      : html`<${Entries} list=${list} label="What is decided about this client" after=${after} />`}<${Command} text=${answer.command} />`}<//></section>`;
}

function Entries({ list, label, after, open }) {
  return html`<${Table} label=${label} head=${['network', 'what', 'until', 'why', 'who', 'regions', '']}>${list.map((e) => html`<tr key=${e.network + e.since}>
    <th scope="row">${open ? html`<button type="button" class="link" onClick=${() => open(e.network.split('/')[0])}>${single(e.network)}</button>` : single(e.network)}</th>
    <td><${Badge} kind=${kindOf(e.action)}>${e.action === 'block' ? 'blocked' : 'allowed'}<//></td><td>${until(e)}</td><td><div class="why">${e.reason}</div></td><td>${e.by}<div class="why">${ago(e.since)}</div></td><td>${e.regions.join(', ')}</td>
    <td class="act"><${Act} op="clients.unblock" onClick=${() => remove(e, after)} aria-label=${'Remove ' + single(e.network)}>Remove<//></td></tr>`)}<//>`;
}

// single writes a network of one address as that.
const single = (network) => network.replace(network.includes(':') ? /\/128$/ : /\/32$/, '');

// wide reminds of what an IPv6 address is worth.
const wide = (client) => (client.includes(':') ? 'Most IPv6 clients can use any address of their /64; consider that network.' : '');

function decide(action, client, after) {
  const verb = action === 'block' ? 'Block' : 'Allow';
  ask({
    title: `${verb} ${client}?`, danger: action === 'block', verb, done: `${client} is ${action === 'block' ? 'blocked' : 'allowed'} on every edge`,
    text: `${action === 'block' ? 'Every edge of every region answers it with 403, before any rule.' : 'Blocks of wider networks and the behavior policy no longer apply to it; rules do.'} ${action === 'block' ? wide(client) : ''}`,
    fields: [{ name: 'network', label: 'Address or network', value: client, required: true }, { name: 'for', label: 'For how long (empty: until it is removed)', value: '1h', hint: '2h' }, { name: 'reason', label: 'Why (others see this)', required: true, hint: 'scans /login, CASE-12' }],
    command: (v) => shell('clients', action, v.network, '--message', v.reason || '…', v.for ? ['--for', v.for] : ''),
    act: (v) => post('/clients/' + action, { network: v.network.trim(), reason: v.reason, for: v.for.trim() }), after,
  });
}

function remove(e, after) {
  ask({
    title: `Remove ${single(e.network)} from the list?`, text: `${e.by} ${e.action === 'block' ? 'blocked' : 'allowed'} it at ${stamp(e.since)}: ${e.reason}`, verb: 'Remove', done: `${single(e.network)} is no longer listed`,
    command: () => shell('clients', 'unblock', e.network), act: () => post('/clients/unblock', { network: e.network }), after: after ?? (() => listed.load('/clients')),
  });
}

// shown is how many networks are listed at a time; the filter finds the others.
const shown = 100;

// Listed are all networks.
export function Listed({ open }) {
  return html`<section aria-labelledby="listed"><div class="title"><h2 id="listed">All networks blocked or allowed by hand</h2>
      <${Filter} of=${filter} label="Filter networks" hint="Filter by network, who, why…" /></div>
    <${Loaded} of=${listed} rows=${2}>${(list, answer) => {
      const found = list.filter((e) => !filter.value || [e.network, e.action, e.by, e.reason].join(' ').toLowerCase().includes(filter.value));
      return html`${list.length === 0 ? html`<${Empty} title="Nobody is blocked or allowed by hand" />` : found.length === 0 ? html`<${Empty} title="Nothing matches the filter" />` : html`<${Entries} list=${found.slice(0, shown)} label="Networks decided by hand" open=${open} />`}
        ${found.length > shown && html`<p class="dim">… and ${plural(found.length - shown, 'more network')}; filter, or use the command.</p>`}<${Command} text=${answer.command} />`;
    }}<//></section>`;
}

const verdicts = { pass: 'good', limited: 'bad', unavailable: 'bad', shed: 'warn', misbehaved: 'bad', blocked: 'bad' };

// Lately is what edges decided about a client in the last minutes.
export function Lately({ client }) {
  return html`<section aria-labelledby="lately"><div class="title"><h2 id="lately">Refused lately</h2>
      <label class="check right"><input type="checkbox" checked=${everything.value} onChange=${(e) => { everything.value = e.target.checked; lookLately(client); }} /> also what passed</label></div>
    <${Loaded} of=${recent} rows=${3}>${(list, answer) => html`${list.map((l) => html`<${Region} l=${l} />`)}<${Command} text=${answer.command} />`}<//></section>`;
}

function Region({ l }) {
  if (l.error) return html`<${Trouble} kind="warn" title=${l.region + ' could not be asked'} text=${l.error} />`;
  const note = html`${l.without?.length > 0 && html`<p class="dim">${plural(l.without.length, 'edge')} of ${l.region} ${l.without.length === 1 ? 'keeps' : 'keep'} no requests; <code>recent.keep</code> in the configuration makes them keep some.</p>`}${l.share < 1 && l.edges > 0 && html`<p class="dim">Edges keep the requests of ${share(l.share)} of the clients: perhaps not of this one.</p>`}`;
  if (l.edges === 0) return html`<h3>${l.region}</h3>${note}`;
  return html`<h3>${l.region} <span class="dim small">since ${stamp(l.since)}</span></h3>
    ${l.requests.length === 0 ? html`<p class="dim">Nothing.</p>` : html`<${Table} label=${'Requests of the client in ' + l.region} head=${['when', 'edge', 'verdict', 'by', ['status', 'n'], 'request']}>${l.requests.map((r) => html`<tr>
      <td><time datetime=${r.time} title=${stamp(r.time)}>${ago(r.time)}</time></td><td>${r.node}</td><td><${Badge} kind=${verdicts[r.verdict] ?? ''}>${r.verdict}<//></td><td>${r.rules ?? '–'}</td><td class="n">${r.status ?? '–'}</td>
      <td><code class="long" title=${r.method + ' ' + (r.host ?? '') + r.target}>${r.method} ${r.host ?? ''}${r.target}</code></td></tr>`)}<//>`}${note}`;
}
