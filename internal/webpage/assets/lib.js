// What all pages share: the three libraries, requests, live feeds and how values are written.
import { h, render } from './vendor/preact.mjs';
import htm from './vendor/htm.mjs';
import { signal, effect, computed, batch, untracked } from './vendor/signals-core.mjs';

export const html = htm.bind(h);
export { render, signal, effect, computed, batch, untracked };

const api = '/api/v1';
export const session = signal(null);
// denied is why the console does not know who this is any more, or does not let them in.
export const denied = signal(null);
// needs is the role that an operation needs and this person lacks, '' if there is none.
export const needs = (operation) => session.value?.needs?.[operation] ?? '';
// foreign are the regions of touched, none: all, in which this person may not use an operation.
export const foreign = (operation, touched) => {
  const mine = session.value?.regions?.[operation];
  if (!mine) return [];
  return touched.length ? touched.filter((r) => !mine.includes(r)) : ['all regions'];
};

// A local console needs its token in every request. Storage belongs to one port, and cookies would
// reach the others of this host. The page of regionctl's file brings a ticket for the token.
const kept = 'weir-console-token';
const opened = exchange(new URLSearchParams(location.hash.slice(1)).get('ticket'));
const token = () => localStorage.getItem(kept) ?? untracked(() => session.value)?.token ?? '';
// local reports whether requests need the token, which a link does not send.
export const local = () => localStorage.getItem(kept) !== null;
const headers = () => ({ 'Weir-Console-Token': token() });

async function exchange(ticket) {
  if (!ticket) return;
  history.replaceState(null, '', location.pathname + location.search);
  const response = await fetch(api + '/open', { method: 'POST', headers: { 'Weir-Console-Ticket': ticket } }).catch(() => null);
  if (response?.ok) localStorage.setItem(kept, (await response.json()).token);
}

// send asks the API. Its answer always has ok; a failure has a detail that says what to do.
async function send(method, path, options) {
  try {
    await opened;
    const response = await fetch(api + path, { method, credentials: 'same-origin', ...options, headers: { ...options?.headers, ...headers() } });
    const body = await response.json();
    if (body.reason === 'login') denied.value = body;
    return response.ok ? { ok: true, ...body } : { ...body, ok: false };
  } catch (e) {
    return { ok: false, title: 'No answer', detail: `The console does not answer: ${e.message}. Is regionctl console still running?` };
  }
}

export function get(path, query = {}) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) for (const v of [value].flat()) if (v) q.append(name, v);
  return send('GET', path + (q.size ? '?' + q : ''));
}

// post sends the token. One of a console that was restarted since is fetched again, once. again of
// its answer repeats the request with more values.
export async function post(path, body = {}) {
  const once = () => send('POST', path, { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  let answer = await once();
  if (!answer.ok && answer.reason === 'token') {
    await open();
    answer = await once();
  }
  return { ...answer, again: (more) => post(path, { ...body, ...more }) };
}

// A login in another tab is found by asking.
setInterval(() => { if (denied.value?.reason === 'login' && !document.hidden) open(); }, 3000);

export async function logout() {
  const answer = await post('/logout');
  if (answer.ok) location.assign('/fleet');
}

export async function open() {
  const answer = await send('GET', '/session');
  if (answer.ok) {
    if (answer.token !== token()) localStorage.removeItem(kept); // of another console that was here
    session.value = answer;
    denied.value = null;
  } else if (answer.status) denied.value = answer;
}

// now ticks, so that ages grow while nothing else changes.
export const now = signal(Date.now());
setInterval(() => { now.value = Date.now(); }, 1000);

// resource is an answer that is asked for: phase is idle, loading, ready or failed.
export function resource() {
  const s = signal({ phase: 'idle' });
  let last = 0;
  s.load = async (path, query) => {
    const mine = ++last;
    s.value = { ...s.value, phase: 'loading' };
    const answer = await get(path, query);
    if (mine === last) s.value = { phase: answer.ok ? 'ready' : 'failed', answer, at: Date.now() };
    return answer;
  };
  return s;
}

// events reports the name and the data of each event until the stream ends. EventSource sends no
// headers.
async function events(path, signal, report) {
  await opened;
  const response = await fetch(api + path, { signal, credentials: 'same-origin', headers: headers() });
  if (!response.ok) return;
  const from = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = '', part; !(part = await from.read()).done;) {
    text += part.value;
    if (!part.value.includes('\n')) continue; // within a long event, which takes many parts
    const all = text.split('\n\n');
    text = all.pop();
    for (const one of all) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(one) ?? [];
      if (name) report(name, data);
    }
  }
}

// shared is events, for all tabs of this browser: without HTTP/2 they have six connections together.
// The tab with the lock reads the stream, and tells the others. The event gone says that it ended.
function shared(path, signal, report) {
  const tabs = new BroadcastChannel(path);
  let last;
  const tell = (...event) => { last = event; tabs.postMessage(event); report(...event); };
  const read = async () => {
    while (!signal.aborted) {
      await events(path, signal, tell).catch(() => {});
      if (signal.aborted) break;
      tell('gone');
      await new Promise((over) => { setTimeout(over, 3000); signal.addEventListener('abort', over); });
    }
  };
  tabs.onmessage = ({ data }) => { if (data) report(...data); else if (last) tabs.postMessage(last); };
  tabs.postMessage(null); // asks for the last event
  signal.addEventListener('abort', () => tabs.close());
  navigator.locks.request(path, { signal }, read).catch(() => {});
}

// repeat looks now, and again a while after each answer. It returns what ends that.
export function repeat(ms, look) {
  let timer, over = false;
  const again = async () => {
    if (!document.hidden) await look();
    if (!over) timer = setTimeout(again, ms);
  };
  again();
  return () => { over = true; clearTimeout(timer); };
}

// live follows a feed while a page shows it. What was seen last stays, with its age.
export function live(path, seen) {
  const s = signal({ phase: 'loading', result: null, at: 0, problem: '' });
  s.follow = () => {
    const source = new AbortController();
    const fails = (problem) => { s.value = { ...untracked(() => s.value), phase: 'failed', problem }; };
    shared(path, source.signal, async (name, data) => {
      if (name === 'problem') return fails(JSON.parse(data).detail);
      if (name === 'look') {
        const result = JSON.parse(data);
        return batch(() => {
          seen?.(result);
          s.value = { phase: 'ready', result, at: Date.now(), problem: '' };
        });
      }
      fails('The console does not answer. Is regionctl console still running? This page keeps trying.');
      await open(); // perhaps the session has ended
      if (denied.value && !source.signal.aborted) fails('');
    });
    return () => source.abort();
  };
  return s;
}

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en-US', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
export const number = (n) => (n == null ? '–' : whole.format(n));
export const rate = (n) => (n == null ? '–' : n !== 0 && n < 99.95 ? tenth.format(n) : whole.format(n));
export const share = (n) => (n == null ? '–' : (100 * n).toFixed(n > 0 && n < 0.1 ? 2 : 1) + '%');
export const level = (n) => (n == null ? '–' : n.toFixed(2));
export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;

export function stamp(text) {
  const d = new Date(text);
  return isNaN(d) ? '–' : d.toISOString().slice(0, 19).replace('T', ' ') + 'Z';
}

export function ago(text) {
  const s = Math.max(0, Math.round((now.value - new Date(text)) / 1000));
  if (s < 60) return s + ' s ago';
  if (s < 3600) return Math.floor(s / 60) + ' min ago';
  if (s < 86400) return Math.floor(s / 3600) + ' h ago';
  return plural(Math.floor(s / 86400), 'day') + ' ago';
}

// brief shortens a duration of Go: 1m0s is 1 min.
export function brief(text = '') {
  const parts = [...text.matchAll(/([\d.]+)(h|ms|m|µs|s)/g)].filter(([, n]) => +n !== 0);
  return parts.map(([, n, unit]) => `${+(+n).toFixed(unit === 's' ? 1 : 0)} ${unit === 'm' ? 'min' : unit}`).join(' ') || (/^0/.test(text) ? '0 s' : text);
}

// shell writes a command as a person types it, as the server does.
export function shell(...words) {
  return ['regionctl', ...words.flat().filter(Boolean)]
    .map((w) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(w) ? w : `'${String(w).replaceAll("'", "'\\''")}'`)).join(' ');
}

// upload posts parts, the last one perhaps a file of any length, and tells how much was sent.
// cancel ends it, here and at the console.
export function upload(path, parts, progress) {
  const x = new XMLHttpRequest(), form = new FormData();
  for (const [name, value] of Object.entries(parts)) if (value) form.append(name, value);
  const done = new Promise((resolve) => {
    const ended = (title, detail) => resolve({ ok: false, title, detail });
    x.upload.onprogress = (e) => progress?.(e.loaded, e.lengthComputable ? e.total : 0);
    x.onerror = () => ended('No answer', 'The console does not answer, or the file changed while it was read. Is regionctl console still running?');
    x.onabort = () => resolve(null);
    x.onload = () => {
      let body = {};
      try { body = JSON.parse(x.responseText); } catch { return ended('No answer', 'What answered is not the console.'); }
      if (body.reason === 'login') denied.value = body;
      resolve(x.status === 200 ? { ok: true, ...body } : { ...body, ok: false });
    };
  });
  x.open('POST', api + path);
  x.setRequestHeader('Weir-Console-Token', token());
  x.send(form);
  return { done, cancel: () => x.abort() };
}

export const bytes = (n) => (n < 1e6 ? `${whole.format(n / 1e3)} kB` : n < 1e9 ? `${tenth.format(n / 1e6)} MB` : `${tenth.format(n / 1e9)} GB`);
