// Who changed what, and whether anybody changed that record.
import { html, signal, resource, stamp, ago, number, plural, post, shell } from './lib.js';
import { Badge, Notice, Loaded, Empty, Table, Command, Incomplete, Act, ask, Filter } from './parts.js';

const all = resource(), chain = resource();
const filter = signal('');

export function enter() {
  all.load('/audit/changes', { lines: '300' });
  chain.load('/audit');
}

function changes() {
  const list = all.value.answer?.ok ? all.value.answer.result : [], want = filter.value;
  return list.filter((c) => !want || [c.kind, c.applied_by, c.version, c.message, c.token?.name, ...c.regions].join(' ').toLowerCase().includes(want));
}

// undoes are the operations that undo the last change of a kind.
const undoes = { rules: 'rules.undo', shedder: 'shedder.undo', policy: 'policy.undo', drain: 'drain.undo', clients: 'clients.undo' };

// last reports whether a change is the newest of its kind, and can be undone. A list that is
// followed would make its changes again. A canary that ended has changed nothing else.
function last(c) {
  return undoes[c.kind] && c.current.length > 0 && !c.applied_by.startsWith('list:') && all.value.answer.result.find((other) => other.kind === c.kind && !other.canary) === c;
}

function undo(c) {
  const of = c.versions ?? [c.version];
  ask({
    title: `Undo this change of ${c.kind}?`, text: `${c.applied_by}, ${stamp(c.applied_at)}: ${c.message ?? c.version}. ${c.current.join(', ')} get back what they had before.`, verb: 'Undo', danger: true, done: 'They have what they had',
    command: () => shell('undo', c.kind, of.flatMap((v) => ['--of', v]), c.current.flatMap((r) => ['--region', r])), act: () => post('/' + undoes[c.kind].replace('.', '/'), { of, region: c.current }),
    after: enter,
  });
}

function save(list) {
  const a = document.createElement('a');
  a.href = URL.createObjectURL(new Blob([JSON.stringify(list, null, 2) + '\n'], { type: 'application/json' }));
  a.download = 'weir-changes.json';
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

export function Page() {
  const list = changes(), waiting = all.value.phase === 'loading';
  return html`<div class="title"><h1 tabindex="-1">Audit</h1><span class="dim">${waiting ? 'reading…' : plural(list.length, 'change')}</span>
      <${Filter} of=${filter} label="Filter changes" hint="Filter by who, why, version…" />
      <button type="button" onClick=${() => save(list)} disabled=${list.length === 0}>Export</button></div>
    <section aria-labelledby="changes"><h2 id="changes">Who did what</h2>
      ${all.value.answer && !all.value.answer.ok && html`<${Notice} kind="bad" title="The histories could not be read"><pre class="text">${all.value.answer.detail}</pre><//>`}
      ${all.value.answer?.incomplete && html`<${Incomplete} text=${all.value.answer.incomplete} />`}
      ${list.length === 0 && !waiting ? html`<${Empty} title=${filter.value ? 'No change matches the filter' : 'No changes yet'} />` : html`
      <${Table} label="Changes" head=${['when', 'what', 'who', 'token', 'version', 'regions', 'why', '']}>${list.map((c) => html`<tr>
        <td><time datetime=${c.applied_at}>${stamp(c.applied_at)}</time> <span class="dim">${ago(c.applied_at)}</span></td><td><${Badge} kind=${c.kind === 'rules' ? 'info' : ''}>${c.kind}<//>${c.canary && html` <${Badge} kind="warn">canary not promoted<//>`}</td><td>${c.applied_by}</td><td class="dim">${c.token?.name ?? '–'}</td>
        <td>${c.kind === 'acts' || !c.version ? '–' : html`<code>${c.version}</code>`}${c.current.length > 0 && html` <${Badge} kind="good">active<//>`}</td><td>${c.regions.join(', ')}</td>
        <td class="wraps">${c.message ?? html`<span class="dim">–</span>`}${c.broke_lock_of && html`<div class="why">broke the lock of ${c.broke_lock_of}</div>`}${c.forced && html`<div class="why">forced: ${c.forced}</div>`}${c.unreached && html`<div class="why">not reached: ${c.unreached.join(', ')}</div>`}</td>
        <td class="act">${last(c) && html`<${Act} op=${undoes[c.kind]} class="danger" onClick=${() => undo(c)} aria-label=${'Undo the last change of ' + c.kind}>Undo…<//>`}</td></tr>`)}<//>`}
      <${Command} text="regionctl audit list --lines 300" /></section>
    <section aria-labelledby="chain"><h2 id="chain">Integrity of the histories</h2><${Loaded} of=${chain} rows=${2}>${(found, answer) => html`
      <${Table} label="Histories" head=${['region', 'history', ['entries', 'n'], 'hash of the last entry', 'result']}>${found.map((a) => html`<tr><th scope="row">${a.region}</th><td>${a.kind}</td><td class="n">${number(a.head.number)}</td>
        <td><code class="long">${a.head.hash || '–'}</code></td><td><${Badge} kind=${a.faults?.length ? 'bad' : 'good'}>${a.faults?.length ? plural(a.faults.length, 'fault') : 'whole'}<//>${a.faults?.map((f) => html`<div class="why bad">${f}</div>`)}</td></tr>`)}<//>
      <${Command} text=${answer.command} />`}<//></section>`;
}
