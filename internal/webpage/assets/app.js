// The frame around the pages: their addresses, the keys, and the one place that draws.
import { html, render, signal, effect, untracked, session, denied, open, logout, local } from './lib.js';
import { Dialog, Notice, asked } from './parts.js';
import * as fleet from './fleet.js';
import * as rules from './rules.js';
import * as client from './client.js';
import * as shedder from './shedder.js';
import * as behavior from './behavior.js';
import * as global from './global.js';
import * as dns from './dns.js';
import * as audit from './audit.js';
import * as tokens from './tokens.js';

const pages = { fleet, rules, client, shedder, behavior, global, dns, audit, tokens };
const titles = { fleet: 'Fleet', rules: 'Rules', client: 'Client', shedder: 'Shedder', behavior: 'Behavior', global: 'Global limits', dns: 'DNS', audit: 'Audit', tokens: 'Tokens' };

const pageOf = () => (location.pathname.slice(1) in pages ? location.pathname.slice(1) : 'fleet');
const page = signal(pageOf());

function go(name, push = true) {
  if (push) history.pushState(null, '', '/' + name);
  page.value = name;
  queueMicrotask(() => document.querySelector('h1')?.focus({ preventScroll: true }));
  scrollTo(0, 0);
}

addEventListener('popstate', () => go(pageOf(), false));

// Keys that a person at the page can use: 1 to 9 for the pages, / for the first field.
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || asked.value || e.target.closest('input, textarea, select')) return;
  const names = Object.keys(pages);
  if (names[+e.key - 1]) go(names[+e.key - 1]);
  else if (e.key === '/') {
    e.preventDefault();
    document.querySelector('main input, main textarea')?.focus();
  }
});

function follow(e) {
  const a = e.target.closest('a[data-page]');
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  go(a.dataset.page);
}

// Denied says why the console does not answer this person. What the page holds stays.
function Denied() {
  const d = denied.value;
  if (!d) return null;
  return html`<${Notice} kind=${d.reason === 'login' ? 'info' : 'bad'} title=${d.login ? 'You are not logged in' : d.reason === 'login' ? 'This console is not open' : 'You may not use this console'}>${!(d.reason === 'login' && d.login) && html`<pre class="text">${d.detail}</pre>`}${d.login && !session.value && 'Log in to see the fleet.'}
    ${d.login && html`<p>${session.value ? html`What you wrote here stays. <a class="button" href="/auth/login?to=/done" target="_blank" rel="noopener">Log in in a new tab</a>` : html`<a class="button" href=${'/auth/login?to=' + encodeURIComponent(location.pathname + location.search)}>Log in</a>`}</p>`}<//>`;
}

function App() {
  const Page = pages[page.value].Page;
  return html`<a class="skip" href="#main">Skip to the page</a>
    <header onClick=${follow}>
      <a class="brand" href="/fleet" data-page="fleet"><img src="/assets/icon.svg" width="22" height="22" alt="" />weir</a>
      <nav aria-label="Pages">${Object.entries(titles).map(([name, title], i) => (name !== 'tokens' || session.value?.tokens) && html`<a href=${'/' + name} data-page=${name} aria-current=${name === page.value ? 'page' : undefined} title=${'key ' + (i + 1)}>${title}</a>`)}</nav>
      <span class="who">${session.value && html`<span class="dim">as</span> ${session.value.user} <span class="dim">${session.value.role}</span>${session.value.until && html` <button type="button" class="quiet" onClick=${logout}>Log out</button>`}`}</span>
    </header>
    <main id="main"><${Denied} /><${Page} /></main>
    <footer class="dim">regionctl console ${session.value?.version ?? ''}${!local() && html` · <a href="/api/v1/openapi.json">API</a>`} · keys: 1–9 pages, / first field</footer>
    <${Dialog} />`;
}

effect(() => {
  const name = page.value;
  document.title = titles[name] + ' · weir console';
  return untracked(() => pages[name].enter?.());
});
const root = document.getElementById('app');
root.textContent = '';
// Every signal that a page reads draws it again.
effect(() => render(html`<${App} />`, root));
open();
