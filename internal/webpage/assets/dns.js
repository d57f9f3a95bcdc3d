// Who goes where, and why: the topology on a map, and each step of the choice for one client.
import { html, signal, resource, repeat, number, rate, plural } from './lib.js';
import { land } from './land.js';
import { Badge, Notice, Loaded, Empty, Table, Command } from './parts.js';

const topology = resource(), fleet = resource(), explained = resource(), loads = resource();
const client = signal(''), region = signal(''), about = signal(null);

export function enter() {
  const q = new URLSearchParams(location.search);
  if (q.get('client')) {
    client.value = q.get('client');
    region.value = q.get('region') ?? '';
    look(false);
  }
  return repeat(5000, async () => {
    await Promise.all([topology.load('/dns/topology'), fleet.load('/fleet')]);
    if (!unpublished()) await loads.load('/dns/explain');
  });
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
    ${!unpublished() && html`<section aria-labelledby="gives"><h2 id="gives">Who gives clients to whom</h2><${Loaded} of=${loads} rows=${4}>${(e, answer) => html`<${Loads} list=${e.loads} /><${Command} text=${answer.command} />`}<//></section>`}
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
  if (pop.serving == null) return ['warn', 'unknown'];
  return pop.serving ? ['good', 'serving'] : ['bad', 'down'];
}

const percent = (share) => (100 * share).toFixed(1) + '%';
const gifts = () => (loads.value.answer?.ok ? loads.value.answer.result.loads : []).flatMap((l) => l.gives.map((g) => ({ from: l.pop, ...g })));

// Loads is what each PoP receives and can serve, and which of its clients routers send elsewhere.
function Loads({ list }) {
  const all = gifts(), none = html`<span class="dim">none</span>`;
  return html`${all.length === 0 && html`<p class="dim">Each PoP serves its own clients. A PoP that is full, down or drained gives clients to the nearest with room.</p>`}
    <${Table} label="What PoPs receive and give" head=${['PoP', 'state', ['its clients send/s', 'n'], ['it receives/s', 'n'], ['it can serve/s', 'n'], 'gives', 'gets']}>${list.map((l) => {
      const [kind, text] = state(l.pop), gets = all.filter((g) => g.to === l.pop);
      return html`<tr key=${l.pop}><th scope="row">${l.pop}</th><td><${Badge} kind=${kind}>${text}<//></td><td class="n">${rate(l.own)}</td><td class="n">${rate(l.demand)}</td>
        <td class="n">${rate(l.capacity)}${l.capacity_estimated && html` <span class="dim">estimated</span>`}</td>
        <td>${l.gives.length ? l.gives.map((g) => html`<div>${percent(g.share)} to <b>${g.to}</b></div>`) : none}</td><td>${gets.length ? gets.map((g) => html`<div>${percent(g.share)} of <b>${g.from}</b></div>`) : none}</td></tr>`;
    })}<//>`;
}

// labels places each name beside its dot, or a little away, where it covers neither a name nor a dot.
function labels(dots) {
  const taken = dots.map((d) => [d.x - 7, d.y - 7, d.x + 7, d.y + 7]), sides = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]];
  const free = ([x0, y0, x1, y1]) => x0 >= 0 && y0 >= 0 && x1 <= 720 && y1 <= 360 && !taken.some((o) => x0 < o[2] && o[0] < x1 && y0 < o[3] && o[1] < y1);
  return dots.map((d) => {
    const w = 7.5 * d.name.length, at = (far, [right, below]) => [d.x + right * (far + w / 2), d.y + below * (far + 3)];
    for (let far = 10; far < 130; far += 10) {
      for (const side of sides) {
        const [x, y] = at(far, side), box = [x - w / 2, y - 8, x + w / 2, y + 8];
        if (!free(box)) continue;
        taken.push(box);
        return { x, y, away: far > 10 };
      }
    }
    const [x, y] = at(10, sides[0]);
    return { x, y };
  });
}

// Atlas draws the PoPs whose location is known, over a grid of 30 degrees, and who gives to whom.
function Atlas({ t }) {
  const pops = t.regions.flatMap((r) => r.pops.map((p) => ({ ...p, region: r.name }))).filter((p) => p.location);
  if (pops.length === 0) return null;
  const x = (lon) => ((lon + 180) / 360) * 720, y = (lat) => ((90 - lat) / 180) * 360, first = chosen()?.pops?.[0];
  const dots = pops.map((p) => ({ name: p.name, x: x(p.location.lon), y: y(p.location.lat) })), names = labels(dots), dot = (name) => dots.find((d) => d.name === name);
  return html`<div class="scroll map" role="region" aria-label="Map" tabindex="0"><svg viewBox="0 0 720 360" role="img" aria-label=${`Map of ${plural(pops.length, 'PoP')}${first ? ', ' + first + ' is chosen' : ''}`}><path class="land" d=${land} />
    ${Array.from({ length: 11 }, (_, i) => html`<line class="grid" x1=${(i + 1) * 60} x2=${(i + 1) * 60} y1="0" y2="360" />`)}${Array.from({ length: 5 }, (_, i) => html`<line class=${'grid' + (i === 2 ? ' equator' : '')} x1="0" x2="720" y1=${(i + 1) * 60} y2=${(i + 1) * 60} />`)}
    ${gifts().filter((g) => dot(g.from) && dot(g.to)).map((g) => html`<line class="gift" x1=${dot(g.from).x} y1=${dot(g.from).y} x2=${dot(g.to).x} y2=${dot(g.to).y} stroke-width=${1 + 4 * g.share}><title>${g.from} gives ${percent(g.share)} to ${g.to}</title></line>`)}
    ${pops.map((p, i) => html`<g class=${'pop ' + state(p.name)[0] + (p.name === first ? ' first' : '')} key=${p.name}>${names[i].away && html`<line x1=${dots[i].x} y1=${dots[i].y} x2=${names[i].x} y2=${names[i].y} />`}<circle cx=${dots[i].x} cy=${dots[i].y} r=${p.name === first ? 8 : 5} /><text x=${names[i].x} y=${names[i].y + 4} text-anchor="middle">${p.name}</text><title>${p.name}, ${p.region}</title></g>`)}</svg></div>`;
}

function Listed({ t }) {
  const order = chosen()?.pops ?? [];
  const at = (l) => (l ? `${Math.abs(l.lat).toFixed(1)}° ${l.lat < 0 ? 'S' : 'N'} ${Math.abs(l.lon).toFixed(1)}° ${l.lon < 0 ? 'W' : 'E'}` : '–');
  return html`<p class="dim">Zone <code>${t.zone}</code>${t.steering && html`, steering <code>${t.steering}</code>`}</p>
    <${Table} label="PoPs of the topology" head=${['region', 'PoP', 'state', 'addresses', 'location', ['weight', 'n'], ['stated capacity', 'n'], 'its own clients', ['choice', 'n']]}>${t.regions.flatMap((r) => r.pops.map((p) => {
      const [kind, text] = state(p.name), place = order.indexOf(p.name);
      return html`<tr><td>${r.name}</td><th scope="row">${p.name}</th><td><${Badge} kind=${kind}>${text}<//></td><td><code>${p.addresses.join(', ')}</code></td><td class="dim">${at(p.location)}</td><td class="n">${p.weight ?? 1}</td><td class="n">${p.capacity ? number(p.capacity) : '–'}</td>
        <td><code>${(p.clients ?? []).join(', ') || '–'}</code></td><td class="n">${place < 0 ? '–' : place + 1}</td></tr>`;
    }))}<//>`;
}
