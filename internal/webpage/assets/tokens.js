// Tokens, with which programs do what a person may, bounded and for some days.
import { html, signal, resource, post, session, stamp, ago, plural } from './lib.js';
import { Notice, Empty, Table, Outcome, ask } from './parts.js';

const list = resource(), created = signal(null);
const set = { name: signal(''), may: signal('reader'), regions: signal(''), kinds: signal(''), days: signal('30') };

export function enter() {
  if (session.value?.tokens) load();
  return () => { created.value = null; };
}

const load = () => list.load('/tokens');
const names = (s) => s.value.split(/[\s,]+/).filter(Boolean);
const scope = (t) => `${t.may}${t.kinds ? ' for ' + t.kinds.join(', ') : ''}${t.regions ? ' in ' + t.regions.join(', ') : ''}`;

async function create(e) {
  e.preventDefault();
  const regions = names(set.regions), kinds = names(set.kinds);
  created.value = await post('/tokens', { name: set.name.value, may: set.may.value, days: +set.days.value, ...(regions.length && { regions }), ...(kinds.length && { kinds }) });
  load();
}

function revoke(t) {
  ask({
    title: `Revoke ${t.name}?`, text: 'Programs that use it are refused at once.', verb: 'Revoke', danger: true, done: `${t.name} is revoked`,
    command: () => '', act: () => post(`/tokens/${encodeURIComponent(t.name)}/revoke`), after: load,
  });
}

export function Page() {
  if (session.value && !session.value.tokens) return html`<div class="title"><h1 tabindex="-1">Tokens</h1></div><${Empty} title="This console issues no tokens for machines"><p class="dim">They need a login by <code>oidc</code> and <code>tokens.file</code> in its configuration.</p><//>`;
  if (session.value && list.value.phase === 'idle') queueMicrotask(load);
  const field = (name, label, hint, more) => html`<label class="field"><span>${label}</span><input name=${name} value=${set[name].value} placeholder=${hint} autocomplete="off" ...${more} onInput=${(e) => { set[name].value = e.target.value; }} /></label>`;
  const c = created.value;
  return html`<div class="title"><h1 tabindex="-1">Tokens</h1><span class="dim">for programs, with at most your rights</span></div>
    <form class="inline" onSubmit=${create}>
      ${field('name', 'Name', 'ci', { required: true, pattern: '[A-Za-z0-9][A-Za-z0-9._\\-]{0,39}' })}
      <label class="field"><span>May</span><select name="may" value=${set.may.value} onChange=${(e) => { set.may.value = e.target.value; }}>${['reader', 'operator', 'admin'].map((role) => html`<option value=${role}>${role}</option>`)}</select></label>
      ${field('regions', 'Regions (empty: all)', 'eu-west')}${field('kinds', 'Kinds (empty: all)', 'clients, rules')}${field('days', 'Days', '30', { required: true, size: 4, pattern: '[1-9][0-9]?' })}
      <button type="submit" class="primary">Create</button></form>
    ${c && (c.ok ? html`<${Notice} kind="good" title=${`${c.name} can be used until ${stamp(c.expires)}. Its text is shown only now`}><pre class="text token">${c.token}</pre><p>Programs send it in the header <code>Weir-Console-Token</code>.</p><//>` : html`<${Outcome} answer=${c} />`)}
    <section aria-labelledby="tokens"><h2 id="tokens">${list.value.answer?.ok ? plural(list.value.answer.tokens.length, 'token') : 'Tokens'}</h2>
      ${list.value.answer && !list.value.answer.ok && html`<${Outcome} answer=${list.value.answer} />`}
      ${list.value.answer?.ok && (list.value.answer.tokens.length === 0 ? html`<${Empty} title="No program has a token" />` : html`<${Table} label="Tokens" head=${['name', 'may', 'created by', 'created', 'expires', '']}>${list.value.answer.tokens.map((t) => html`<tr key=${t.name}>
        <th scope="row">${t.name}</th><td>${scope(t)}</td><td>${t.by}</td><td title=${stamp(t.created)}>${ago(t.created)}</td><td>${stamp(t.expires)}</td>
        <td class="act"><button type="button" onClick=${() => revoke(t)} aria-label=${'Revoke ' + t.name}>Revoke</button></td></tr>`)}<//>`)}</section>`;
}
