// Rules that count by something else than an address. Of a secret, such as an API key, the page
// makes the hash, and sends only that.
import { html, signal, resource } from './lib.js';
import { Notice, Loaded, Command } from './parts.js';

const inspected = resource(), key = signal(''), failed = signal('');
const secrets = ['header', 'cookie', 'query'], plain = ['host', 'path', 'method', 'tier'];
const told = /^((header|cookie|query):[^\s=]{1,128}=~[0-9a-f]{32}|(host|path|method|tier)=[^\s?]{1,1000})$/;
const kind = signal(secrets[0]);

// lookByKey asks about a key that has a hash; '' is none.
export function lookByKey(text) {
  key.value = told.test(text) ? text : '';
  if (key.peek()) inspected.load('/limits', { key: key.peek() });
}

// canonical is what edges hash: the scheme of credentials counts in any letter case.
function canonical(kind, name, value) {
  if (kind !== 'header' || !/^(proxy-)?authorization$/i.test(name)) return value;
  const [, scheme, rest] = value.replace(/^[ \t]+|[ \t]+$/g, '').match(/^([^ \t]*)[ \t]*([^]*)$/);
  const upper = (s) => s.replace(/[a-z]/g, (c) => c.toUpperCase()), lower = (s) => s.replace(/[A-Z]/g, (c) => c.toLowerCase());
  return rest ? `${upper(scheme.slice(0, 1))}${lower(scheme.slice(1))} ${rest}` : scheme;
}

async function hash(text) {
  const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  return '~' + [...sum.subarray(0, 16)].map((b) => b.toString(16).padStart(2, '0')).join('');
}

async function look(form, asked) {
  const { name, secret } = form.elements, by = kind.peek(), where = name?.value.trim();
  const text = plain.includes(by) ? `${by}=${secret.value.trim()}` : `${by}:${where}=${await hash(canonical(by, where, secret.value))}`;
  if (!plain.includes(by)) secret.value = '';
  failed.value = told.test(text) ? '' : plain.includes(by) ? 'A value has no spaces and no question mark.' : 'A name has no spaces and no equals sign.';
  if (failed.peek()) return;
  asked();
  history.replaceState(null, '', '/client?' + new URLSearchParams({ key: text }));
  lookByKey(text);
}

// BySecret is the form, and what edges say. asked is called before they are asked.
export function BySecret({ asked, Inspected }) {
  const hidden = secrets.includes(kind.value), off = hidden && !isSecureContext;
  return html`<section aria-labelledby="secret"><h2 id="secret">By another key</h2>
    <form class="inline" onSubmit=${(e) => { e.preventDefault(); look(e.target, asked); }}>
      <label class="field"><span>Rules count by</span><select name="kind" value=${kind.value} onChange=${(e) => { kind.value = e.target.value; }}>${[...secrets, ...plain].map((k) => html`<option>${k}</option>`)}</select></label>
      ${hidden && html`<label class="field"><span>Name</span><input name="name" required disabled=${off} defaultValue="X-Api-Key" pattern="[^\\s=]+" title="without spaces and =" autocomplete="off" /></label>`}
      <label class="field wide" key=${hidden}><span>${hidden ? 'Value; only its hash leaves this page' : 'Value'}</span><input name="secret" type=${hidden ? 'password' : 'text'} required disabled=${off} autocomplete="off" /></label>
      <button type="submit" disabled=${off}>Look up</button></form>
    ${off && html`<${Notice} kind="warn" title="Not over plain HTTP"><p>Browsers hash only on pages that come over TLS or from this machine. Open the console over TLS, or use the command: <code>regionctl limits inspect 'header:X-Api-Key=…'</code></p><//>`}
    ${failed.value && html`<p class="bad" role="alert">${failed.value}</p>`}
    ${key.value && html`<p class="dim"><code class="long">${key.value}</code></p><${Loaded} of=${inspected} rows=${3}>${(list, answer) => html`${list.map((r) => html`<${Inspected} r=${r} what="this key" />`)}<${Command} text=${answer.command} />`}<//>`}</section>`;
}
