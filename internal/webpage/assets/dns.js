// Who goes where, and why: the topology on a map, and each step of the choice for one client.
import { html, signal, resource, number, plural } from './lib.js';
import { land } from './land.js';
import { Badge, Notice, Loaded, Empty, Table, Command } from './parts.js';

const topology = resource(), fleet = resource(), explained = resource();
const client = signal(''), region = signal(''), about = signal(null);

export function enter() {
  topology.load('/dns/topology');
  fleet.load('/fleet');
  const q = new URLSearchParams(location.search);
  if (q.get('client')) {
    client.value = q.get('client');
    region.value = q.get('region') ?? '';
    look(false);
  }
}

function look(push = true) {
  const query = { client: client.peek().trim(), region: region.peek() };
  about.value = query;
  if (push) history.replaceState(null, '', '/dns?' + new URLSearchParams(Object.entries(query).filter(([, v]) => v)));
  explained.load('/dns/explain', query);
}

export function Page() {
  return html`<div class="title"><h1 tabindex="-1">DNS</h1><span class="dim">Which PoP a client is sent to now, and why.</span></div>
    <form class="inline" onSubmit=${(e) => { e.preventDefault(); look(); }}>
      <label class="field wide"><span>Client's address, or the network that its resolver passes on</span><input name="client" required pattern="[0-9A-Fa-f.:]+(/[0-9]{1,3})?" placeholder="203.0.113.7" autocomplete="off" value=${client.value} onInput=${(e) => { client.value = e.target.value; }} /></label>
      <label class="field"><span>Only PoPs of</span><select name="region" value=${region.value} onChange=${(e) => { region.value = e.target.value; }}><option value="">all regions</option>${names().map((n) => html`<option value=${n}>${n}</option>`)}</select></label>
      <button type="submit" class="primary">Explain</button></form>
    ${about.value && html`<section aria-labelledby="why"><h2 id="why">${about.value.client}</h2><${Loaded} of=${explained} rows=${4}>${(e, answer) => html`<${Explained} e=${e} /><${Command} text=${answer.command} />`}<//></section>`}
    <section aria-labelledby="pops"><h2 id="pops">PoPs</h2>${unpublished() ? html`<${Empty} title="No topology is published"><p class="dim">DNS answers nobody yet. <code>regionctl topology apply FILE</code> publishes one.</p><//>` : html`<${Loaded} of=${topology} rows=${4}>${(t, answer) => html`<${Atlas} t=${t} /><${Listed} t=${t} /><${Command} text=${answer.command} />`}<//>`}</section>`;
}

const unpublished = () => topology.value.answer && !topology.value.answer.ok && /no topology is active/.test(topology.value.answer.detail);

const names = () => (topology.value.answer?.ok ? topology.value.answer.result.regions.map((r) => r.name) : []);
const chosen = () => (about.value && explained.value.answer?.ok ? explained.value.answer.result : null);

function Explained({ e }) {
  return html`<p class="choice">${e.fail_open ? html`<${Badge} kind="bad">none is healthy<//> so DNS answers with all` : html`→ <b>${e.pops?.[0] ?? 'nowhere'}</b>`} <span class="dim">${(e.addresses ?? []).join(', ')}</span>
      ${e.spilled && html` <${Badge} kind="warn">sent on by an overloaded PoP<//>`}</p>
    <ol class="steps">${(e.reason ?? []).map((step) => html`<li>${step}</li>`)}</ol>
    ${e.pops?.length > 1 && !e.fail_open && html`<p class="dim">If it fails: ${e.pops.slice(1).join(', ')}</p>`}
    <p class="dim">${e.scope > 0 ? `Every client in this /${e.scope} gets this answer.` : 'Every client gets this answer.'}</p>
    ${e.unknown_regions?.length > 0 && html`<${Notice} kind="warn" title=${'The state of ' + e.unknown_regions.join(', ') + ' is unknown'} />`}`;
}

// state is how a PoP stands, by what the fleet says.
function state(name) {
  const pop = fleet.value.answer?.ok && fleet.value.answer.result.regions.flatMap((r) => r.pops).find((p) => p.pop === name);
  if (!pop) return ['', fleet.value.answer ? 'no edge' : '…'];
  if (pop.drained) return ['warn', 'drained'];
  return pop.serving ? ['good', 'serving'] : ['bad', 'down'];
}

// Atlas draws the PoPs whose location is known, over a grid of 30 degrees.
function Atlas({ t }) {
  const pops = t.regions.flatMap((r) => r.pops.map((p) => ({ ...p, region: r.name }))).filter((p) => p.location);
  if (pops.length === 0) return null;
  const x = (lon) => ((lon + 180) / 360) * 720, y = (lat) => ((90 - lat) / 180) * 360, first = chosen()?.pops?.[0];
  return html`<div class="scroll map"><svg viewBox="0 0 720 360" role="img" aria-label=${`Map of ${plural(pops.length, 'PoP')}${first ? ', ' + first + ' is chosen' : ''}`}><path class="land" d=${land} />
    ${Array.from({ length: 11 }, (_, i) => html`<line class="grid" x1=${(i + 1) * 60} x2=${(i + 1) * 60} y1="0" y2="360" />`)}${Array.from({ length: 5 }, (_, i) => html`<line class=${'grid' + (i === 2 ? ' equator' : '')} x1="0" x2="720" y1=${(i + 1) * 60} y2=${(i + 1) * 60} />`)}
    ${pops.map((p) => html`<g class=${'pop ' + state(p.name)[0] + (p.name === first ? ' first' : '')} key=${p.name}><circle cx=${x(p.location.lon)} cy=${y(p.location.lat)} r=${p.name === first ? 8 : 5} /><text x=${x(p.location.lon) + 10} y=${y(p.location.lat) + 4}>${p.name}</text><title>${p.name}, ${p.region}</title></g>`)}</svg></div>`;
}

function Listed({ t }) {
  const order = chosen()?.pops ?? [];
  const at = (l) => (l ? `${Math.abs(l.lat).toFixed(1)}° ${l.lat < 0 ? 'S' : 'N'} ${Math.abs(l.lon).toFixed(1)}° ${l.lon < 0 ? 'W' : 'E'}` : '–');
  return html`<p class="dim">Zone <code>${t.zone}</code>${t.steering && html`, steering <code>${t.steering}</code>`}</p>
    <${Table} label="PoPs of the topology" head=${['region', 'PoP', 'state', 'addresses', 'location', ['weight', 'n'], ['capacity', 'n'], 'its own clients', ['choice', 'n']]}>${t.regions.flatMap((r) => r.pops.map((p) => {
      const [kind, text] = state(p.name), place = order.indexOf(p.name);
      return html`<tr><td>${r.name}</td><th scope="row">${p.name}</th><td><${Badge} kind=${kind}>${text}<//></td><td><code>${p.addresses.join(', ')}</code></td><td class="dim">${at(p.location)}</td><td class="n">${p.weight ?? 1}</td><td class="n">${p.capacity ? number(p.capacity) : '–'}</td>
        <td><code>${(p.clients ?? []).join(', ') || '–'}</code></td><td class="n">${place < 0 ? '–' : place + 1}</td></tr>`;
    }))}<//>`;
}
