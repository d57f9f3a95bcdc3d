// The history of the rules or of the policies: who changed what, when and why, what that changed, and going back.
import { html, signal, resource, get, post, stamp, ago, shell } from './lib.js';
import { Badge, Failure, Waiting, Empty, Loaded, Table, Command, Act, ask, some } from './parts.js';

// historyOf is that of a kind, rules or policy. acts are more buttons of a change; restored is
// called after an earlier version is active again; regions returns them as they were seen last.
export function historyOf(kind, { label, acts, restored, regions }) {
  const list = resource(), opened = signal(null);
  const load = () => list.load(`/${kind}/history`, { lines: '20' });

  const open = async (c) => {
    const id = c.version + c.applied_at;
    opened.value = opened.value?.id === id ? null : { id };
    if (!opened.value) return;
    const answer = await get(`/${kind}/changes`, { from: c.replaced ?? 'none', to: c.version });
    if (opened.value?.id === id) opened.value = { id, answer };
  };
  const restore = (c) => ask({
    title: `Go back to ${c.version}?`, regions: regions(), text: `${c.applied_by} applied it at ${stamp(c.applied_at)}${c.message ? ': ' + c.message : ''}. Restoring applies it like any other document.`, verb: 'Restore', danger: true, done: `${c.version} is active again`,
    command: (v) => shell('undo', kind, '--to', c.version, v.partial && '--partial'), act: (v) => post(`/${kind}/rollback`, { to: c.version, partial: v.partial }),
    after: () => { load(); restored(); },
  });

  function Row({ c }) {
    const shown = opened.value?.id === c.version + c.applied_at;
    return html`<tr><td><span title=${stamp(c.applied_at)}>${ago(c.applied_at)}</span></td><td>${c.applied_by}</td><td><code>${c.version}</code>${c.current.length > 0 && html` <${Badge} kind="good">active<//>`}</td>
        <td><code>${c.replaced ?? '–'}</code></td><td>${c.regions.join(', ')}</td><td class="wraps">${c.message ?? html`<span class="dim">–</span>`}</td>
        <td class="act"><button type="button" class="quiet" aria-expanded=${shown} onClick=${() => open(c)} aria-label=${'Changes of version ' + c.version}>Changes</button>${acts?.(c)}
          ${c.current.length === 0 && html`<${Act} op=${kind + '.rollback'} onClick=${() => restore(c)} aria-label=${'Restore version ' + c.version}>Restore<//>`}</td></tr>
      ${shown && html`<tr><td colspan="7" aria-live="polite"><${Opened} answer=${opened.value.answer} /></td></tr>`}`;
  }

  function History() {
    return html`<section aria-labelledby="history"><h2 id="history">History</h2><${Loaded} of=${list} rows=${4}>${(changes, answer) => html`${changes.length === 0 ? html`<${Empty} title="No changes yet" />` : html`
      <${Table} label=${label} head=${['when', 'who', 'version', 'replaced', 'regions', 'why', '']}>${changes.map((c) => html`<${Row} c=${c} />`)}<//>`}<${Command} text=${answer.command} />`}<//></section>`;
  }
  return { load, History };
}

function Opened({ answer }) {
  if (!answer) return html`<${Waiting} rows=${2} label="Comparing" />`;
  if (!answer.ok) return html`<${Failure} answer=${answer} what="This could not be compared" />`;
  return html`${answer.result.same ? html`<p class="dim">The same version.</p>` : html`<${Changes} d=${answer.result.difference} />`}<${Command} text=${answer.command} />`;
}

const Field = ({ f }) => html`<div>${f.field}: <del>${f.old}</del> → <ins>${f.new}</ins></div>`;

// Changes lists a difference between two documents, of rules or of policies.
export function Changes({ d }) {
  if (d.fields) {
    return html`${d.from_defaults && html`<p class="dim">Compared with the shipped policy.</p>`}${d.fields.length === 0 ? html`<p class="dim">Only the text differs, not its meaning.</p>`
      : html`<ul class="changes"><li class="changed">${d.fields.map((f) => html`<${Field} f=${f} />`)}</li></ul>`}<p class="dim">${d.unchanged} unchanged</p>`;
  }
  if (!d.added.length && !d.removed.length && !d.changed.length) return html`<p class="dim">${d.reordered ? 'Only the order of the rules differs, which changes no verdict.' : 'Only the text differs; no rule does.'}</p>`;
  return html`<ul class="changes">
    ${some(d.removed, (r) => html`<li class="removed"><b>− ${r.rule}</b> ${r.summary}</li>`)}${some(d.added, (r) => html`<li class="added"><b>+ ${r.rule}</b> ${r.summary}</li>`)}
    ${some(d.changed, (r) => html`<li class="changed"><b>~ ${r.rule}</b> ${r.fields.map((f) => html`<${Field} f=${f} />`)}${r.counts_start_anew && html`<div class="warn">its counts start over</div>`}</li>`)}
  </ul><p class="dim">${d.unchanged} unchanged</p>`;
}
