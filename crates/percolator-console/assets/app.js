// Shows the pages of the console, by the fragment of the URL. Row keys appear only in the
// fragment, which no browser sends and no proxy logs.
import { html, render, useEffect, useState } from './vendor/preact.js';
import { route, setToken, takePath, takeToken, usePoll } from './api.js';
import { Cell } from './cell.js';
import { Keys } from './keys.js';
import { Learn } from './learn.js';
import { Locks } from './locks.js';
import { Observers } from './observers.js';
import { Overview } from './overview.js';
import { Oops, secs } from './parts.js';
import { Search } from './search.js';
import { Transactions } from './transactions.js';
import { Why } from './why.js';

const PAGES = [
  ['/', 'Overview', Overview, 'o'],
  ['/observers', 'Observers', Observers, 'b'],
  ['/cell', 'Cells', Cell, 'c'],
  ['/why', 'Why', Why, 'w'],
  ['/keys', 'Keys', Keys, 'k'],
  ['/locks', 'Locks', Locks, 'l'],
  ['/transactions', 'Transactions', Transactions, 't'],
  ['/search', 'Search', Search, 's', (about) => about.app],
  ['/learn', 'Figure 4', Learn, 'f', (about) => about.learn],
];

function where() {
  const [path, query] = (location.hash.slice(1) || '/').split('?');
  return { path: path || '/', query: new URLSearchParams(query || '') };
}

/** The theme: the system's, or the other one for this tab. */
function useTheme() {
  const [theme, setTheme] = useState(sessionStorage.getItem('percolator-theme') || '');
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    sessionStorage.setItem('percolator-theme', theme);
    dispatchEvent(new Event('theme'));
  }, [theme]);
  const dark = theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  return [dark, () => setTheme(dark ? 'light' : 'dark')];
}

// The pages that a letter reaches now, and when `g` was pressed. Both outlive a render: the list of
// pages grows when the console has said what it shows, and that may happen between two keys.
const keys = { pages: [], g: -Infinity };

/** `/` goes to the search, `g` and a letter to a page. */
addEventListener('keydown', (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') {
    const field = document.querySelector('main input');
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === 'g') {
    keys.g = event.timeStamp;
  } else if (event.timeStamp - keys.g < 1500) {
    keys.g = -Infinity;
    const page = keys.pages.find(([, , , key]) => key === event.key);
    if (page) location.hash = `#${page[0]}`;
  }
});

function Token() {
  const [token, setValue] = useState('');
  const go = (event) => {
    event.preventDefault();
    setToken(token);
    location.reload();
  };
  return html`<form class="find" onSubmit=${go}><label>token <input value=${token} onInput=${(e) => setValue(e.target.value)} autocomplete="off" /></label> <button>open</button></form>
    <p class="dim">The token is in the URL that was printed when the console started, or in the file <code>console.token</code> that was named there.</p>`;
}

function App() {
  const [at, setAt] = useState(where());
  useEffect(() => {
    const moved = () => {
      takeToken();
      setAt(where());
      scrollTo(0, 0);
    };
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  const { data: about, error } = usePoll(route('about'), 10000);
  const [dark, turn] = useTheme();
  const pages = PAGES.filter(([, , , , shown]) => !shown || (about && shown(about)));
  keys.pages = pages;
  const page = pages.find(([path]) => path === at.path);
  const Page = page ? page[2] : null;
  const refused = error && error.status === 401;
  useEffect(() => {
    document.title = `${page ? page[1] : 'Percolator'} · ${about ? about.title : 'Percolator'}`;
  }, [at, about]);
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById('main').focus(); }}>to the page</a>
    <header>
      <span class="brand"><svg width="18" height="18" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M9 7h14l-5 8v6l-4 3v-9z" /><circle cx="16" cy="27" r="2" /></svg> Percolator</span>
      <nav aria-label="pages">${pages.map(([path, name]) => html`<a href=${`#${path}`} aria-current=${at.path === path ? 'page' : null}>${name}</a>`)}</nav>
      <button type="button" class="theme" onClick=${turn} aria-label=${dark ? 'light colours' : 'dark colours'}>${dark ? '☀' : '☾'}</button>
    </header>
    <main id="main" tabindex="-1">
      ${error && !refused && html`<${Oops} error=${error} />`}
      ${refused ? html`<h1>Percolator</h1><p>This console needs its token.</p><${Token} />` : Page ? html`<${Page} key=${at.path + (['/search', '/keys'].includes(at.path) ? at.query : '')} query=${at.query} about=${about} />` : about && html`<h1>No such page</h1><p><a href="#/">to the overview</a></p>`}
    </main>
    <footer>${about && html`${about.title} · percolator ${about.version} · open for ${secs(about.uptime_s)}${about.read_only ? ' · read-only' : ''}${about.hide_values ? ' · values hidden' : ''} · keys: <kbd>/</kbd> <kbd>g</kbd> <kbd>${pages.map((p) => p[3]).join('')}</kbd>`}</footer>`;
}

takePath();
takeToken();
render(html`<${App} />`, document.getElementById('app'));
