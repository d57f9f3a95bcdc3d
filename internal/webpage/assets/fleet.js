// Regions, PoPs and edges as they are now.
import { html, signal, live, post, number, rate, share, level, plural, stamp, ago, shell } from './lib.js';
import { Badge, Notice, Command, Freshness, Waiting, Empty, Table, Act, Lacking, Trouble, Why, ask, Filter } from './parts.js';
import { LimitedNow, watchTop } from './top.js';

const feed = live('/fleet/events');
const opened = signal({}); // PoPs whose edges a person wants to see, or not
const filter = signal('');

export function enter() {
  const stops = [feed.follow(), watchTop()];
  return () => stops.forEach((stop) => stop());
}

// many is how many edges are too many to show unasked.
const many = 40;

export function Page() {
  const f = feed.value;
  return html`<div class="title"><h1 tabindex="-1">Fleet</h1><${Freshness} feed=${feed} />
      <${Filter} of=${filter} label="Filter regions, PoPs and edges" /></div>
    <${Lacking} ops=${{ Drain: 'drain', undrain: 'undrain' }} />
    ${f.phase === 'failed' && f.problem && html`<${Notice} kind="bad" title=${f.result ? 'What you see is out of date' : 'The fleet cannot be shown'}><pre class="text">${f.problem}</pre><//>`}
    ${f.result ? html`<${View} v=${f.result} />` : f.phase !== 'failed' && html`<${Waiting} rows=${9} label="Looking at the fleet" />`}
    <${Command} text=${shell('status', '--watch')} />`;
}

function View({ v }) {
  const t = v.totals, troubled = v.regions.filter((r) => standing(r, v.topology)[0] === 'bad').length - t.regions_unknown, found = v.regions.map((r) => [r, matching(r)]).filter(([, pops]) => pops);
  return html`<dl class="tiles">
      <${Tile} name="regions" value=${number(t.regions)} note=${[t.regions_unknown > 0 && `${t.regions_unknown} unknown`, troubled > 0 && `${troubled} in trouble`].filter(Boolean).join(', ')} kind="bad" />
      <${Tile} name=${v.topology ? 'PoPs serving' : 'PoPs'} value=${v.topology ? `${number(t.pops_serving)} / ${number(t.pops)}` : number(t.pops)} note=${t.pops_drained > 0 && `${t.pops_drained} drained`} kind="warn" />
      <${Tile} name="edges passing" value=${`${number(t.nodes_passing)} / ${number(t.nodes)}`} note=${t.nodes_without_store > 0 && `${t.nodes_without_store} without Redis`} kind="bad" />
      <${Tile} name="requests per second" value=${rate(t.requests_per_second)} />
      <${Tile} name="limited" value=${share(t.limited_share)} />
      <${Tile} name="edges shedding" value=${number(t.nodes_shedding)} note=${t.nodes_shedder_off > 0 ? `shedder off on ${t.nodes_shedder_off}` : t.nodes_shedding > 0 && 'overloaded'} kind="bad" />
    </dl>
    ${!v.topology && t.regions_unknown < t.regions && html`<${Notice} kind="warn" title="No topology is published">DNS answers nobody yet. Publish one with <code>regionctl topology apply FILE</code>.<//>`}
    <${LimitedNow} />
    ${found.map(([r, pops]) => html`<${Region} key=${r.region} r=${r} pops=${pops} v=${v} />`)}
    ${found.length === 0 && html`<${Empty} title="Nothing matches the filter" />`}`;
}

// matching are the PoPs of a region that the filter wants, null if it wants nothing of it.
function matching(r) {
  const want = filter.value;
  if (!want || r.region.toLowerCase().includes(want)) return r.pops;
  const pops = r.pops.map((p) => (p.pop.toLowerCase().includes(want) ? p : { ...p, nodes: p.nodes.filter((n) => n.id.toLowerCase().includes(want)) })).filter((p) => p.pop.toLowerCase().includes(want) || p.nodes.length);
  return pops.length ? pops : null;
}

function Tile({ name, value, note, kind }) {
  return html`<div class="tile"><dt>${name}</dt><dd>${value}${note && html` <${Badge} kind=${kind}>${note}<//>`}</dd></div>`;
}

const sum = (list, of) => list.reduce((total, x) => total + (of(x) ?? 0), 0);

// standing is how a region is, for its heading.
function standing(r, topology) {
  if (r.error) return ['bad', 'unknown'];
  const nodes = r.pops.flatMap((p) => p.nodes), failing = nodes.filter((n) => !n.passing).length, alone = nodes.filter((n) => n.store_up === false).length;
  const due = r.pops.filter((p) => p.in_topology && !p.drained), out = due.filter((p) => p.passing === 0);
  if (nodes.length === failing) return due.length || failing ? ['bad', 'down'] : ['', 'no edge'];
  const faults = [...out.map((p) => p.pop + ' down'), failing > 0 && `${failing} of ${nodes.length} edges failing`, alone > 0 && `${alone} of ${nodes.length} edges without Redis`].filter(Boolean);
  if (faults.length) return [out.length || 2 * failing >= nodes.length || alone ? 'bad' : 'warn', faults.join(', ')];
  return topology && due.length === 0 ? ['warn', 'drained'] : ['good', topology ? 'serving' : 'up'];
}

function Region({ r, pops, v }) {
  const [kind, text] = standing(r, v.topology);
  return html`<section aria-labelledby=${'region-' + r.region}><h2 id=${'region-' + r.region} class=${kind === 'bad' ? 'bad' : ''}>${r.region} <${Badge} kind=${kind}>${text}<//></h2>
    ${r.error && html`<${Trouble} title="Its Consul does not answer; its edges keep deciding by the rules they have" text=${r.error} />`}
    ${pops.length === 0 && !r.error && html`<${Empty} title="No edge is registered"><p class="dim">An edge appears here as soon as it registers in this region's Consul.</p><//>`}
    ${pops.length > 0 && html`<${Table} label=${'PoPs of ' + r.region} head=${['PoP, edge', 'health', ['requests/s', 'n'], ['limited', 'n'], ['busy', 'n'], ['shed level', 'n'], 'Redis', 'clock', 'rules', 'shedder', '']} widths=${[17, 13, 9, 8, 7, 9, 7, 8, 11, 9]}>
      ${pops.map((p) => html`<${PoP} key=${p.pop} p=${p} r=${r} v=${v} />`)}<//>`}
  </section>`;
}

function health(p, known, topology) {
  if (p.drained) return ['warn', 'drained'];
  if (!known) return ['warn', 'unknown'];
  if (p.serving) return p.passing === p.nodes.length ? ['good', 'serving'] : ['warn', `serving, ${p.passing} of ${p.nodes.length}`];
  if (!topology) return p.passing > 0 ? ['', 'up'] : ['bad', 'down'];
  if (!p.in_topology) return ['warn', 'not listed'];
  return ['bad', p.nodes.length ? 'down' : 'down, no edge'];
}

function PoP({ p, r, v }) {
  const [kind, text] = health(p, !r.error, v.topology);
  const open = opened.value[p.pop] ?? (v.totals.nodes <= many || filter.value !== '');
  const requests = sum(p.nodes, (n) => n.requests_per_second), limited = sum(p.nodes, (n) => (n.requests_per_second ?? 0) * (n.limited_share ?? 0));
  const measured = p.nodes.some((n) => n.requests_per_second != null);
  const versions = [...new Set(p.nodes.map((n) => n.rules_version))];
  return html`<tr class="group">
      <th scope="row"><button type="button" class="toggle" aria-expanded=${open} onClick=${() => { opened.value = { ...opened.value, [p.pop]: !open }; }}>${p.pop || '–'}</button> <span class="dim">${r.error && !p.nodes.length ? 'edges unknown' : plural(p.nodes.length, 'edge')}</span></th>
      <td><${Badge} kind=${kind}>${text}<//>${p.drained && html`<div class="why">${p.drained.why}<br /><span class="dim">${p.drained.who}, ${ago(p.drained.since)}</span></div>`}</td>
      <td class="n">${measured ? rate(requests) : '–'}</td><td class="n">${measured ? share(requests ? limited / requests : 0) : '–'}</td>
      <td class="n">${p.nodes.length ? level(Math.max(...p.nodes.map((n) => n.utilization ?? 0))) : '–'}</td><td class="n">${p.nodes.length ? level(Math.max(...p.nodes.map((n) => n.shed_level ?? 0))) : '–'}</td>
      <td></td><td></td><td colspan="2" class="dim">${versions.length > 1 ? plural(versions.length, 'version') : ''}</td>
      <td class="act">${p.drained ? html`<${Act} op="undrain" onClick=${() => undrain(p)} aria-label=${'Undrain ' + p.pop}>Undrain<//>` : p.pop && html`<${Act} op="drain" onClick=${() => drain(p)} aria-label=${'Drain ' + p.pop}>Drain<//>`}</td>
    </tr>${open && p.nodes.map((n) => html`<${Edge} key=${n.id} n=${n} />`)}`;
}

function Edge({ n }) {
  return html`<tr>
    <th scope="row" class="edge">${n.id}</th>
    <td><${Badge} kind=${n.passing ? 'good' : 'bad'}>${n.passing ? 'passing' : 'failing'}<//>${(n.output || n.error) && html`<${Why} text=${n.output || n.error} />`}</td>
    <td class="n">${rate(n.requests_per_second)}</td><td class="n">${share(n.limited_share)}</td><td class="n">${level(n.utilization)}</td>
    <td class=${'n' + (n.shedding ? ' bad' : '')}>${n.shedder_off ? html`<${Badge} kind="bad">off<//>` : level(n.shed_level)}${n.shedding && n.shed_level === 0 && html`<div class="why">caps shed</div>`}</td>
    <td>${n.store_up == null ? '–' : html`<${Badge} kind=${n.store_up ? 'good' : 'bad'}>${n.store_up ? 'up' : 'down'}<//>`}</td>
    <td>${n.clock_ahead_seconds == null ? '–' : n.clock_ahead_seconds === 0 ? html`<span class="dim">in step</span>` : html`<${Badge} kind="bad">${(n.clock_ahead_seconds > 0 ? '+' : '−') + number(Math.abs(n.clock_ahead_seconds))} s<//>`}</td>
    <td><code>${n.rules_version || '–'}</code></td><td><code>${n.shedder_version || '–'}</code></td><td></td></tr>`;
}

function drain(p) {
  ask({
    title: `Drain ${p.pop}?`, text: 'DNS stops answering with it. Its edges keep serving the requests that still arrive, until resolvers forget it.', verb: 'Drain', danger: true, done: `${p.pop} is drained`,
    fields: [{ name: 'reason', label: 'Why (others see this)', required: true, hint: 'kernel update, CHG-77' }, { name: 'force', label: 'even if no healthy PoP would be left', kind: 'check', value: false }],
    command: (v) => shell('drain', p.pop, '--message', v.reason || '…', v.force ? '--force' : ''),
    act: (v) => post(`/pops/${encodeURIComponent(p.pop)}/drain`, { reason: v.reason, ...(v.force && { force: true }) }),
  });
}

function undrain(p) {
  ask({
    title: `Put ${p.pop} back into DNS?`, text: `${p.drained.who} drained it at ${stamp(p.drained.since)}: ${p.drained.why}`, verb: 'Undrain', done: `${p.pop} is back`,
    command: () => shell('undrain', p.pop), act: () => post(`/pops/${encodeURIComponent(p.pop)}/undrain`),
  });
}
