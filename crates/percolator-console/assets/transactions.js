// Shows transactions by name, and single ones: the slowest, the failed, and a sample of the rest.
import { html, useState } from './vendor/preact.js';
import { route, usePoll } from './api.js';
import { CellLink, Oops, Rows, ms, num, time } from './parts.js';

/** The phases of a transaction as a bar. */
function Phases({ of }) {
  const parts = [['work', of.work_ms], ['prewrite', of.prewrite_ms], ['commit', of.commit_ms]];
  const total = Math.max(of.total_ms, 1e-6);
  let x = 0;
  const text = parts.map(([name, value]) => `${name} ${ms(value)}`).join(', ');
  return html`<svg class="phases" width="160" height="12" viewBox="0 0 160 12" role="img" aria-label=${text}><title>${text}</title>
    ${parts.map(([name, value]) => {
      const width = (value / total) * 160;
      const rect = html`<rect class=${name} x=${x} y="0" width=${Math.max(width, 0)} height="12" />`;
      x += width;
      return rect;
    })}</svg>`;
}

const ENDED = [
  ['at', '', (t) => time(t.wall_ms)],
  ['name', '', (t) => t.name],
  ['start', 'n', (t) => t.start_ts],
  ['commit', 'n', (t) => t.commit_ts ?? '–'],
  ['took', 'n', (t) => ms(t.total_ms)],
  ['phases', '', (t) => html`<${Phases} of=${t} />`],
  ['path', '', (t) => (t.path ? t.path.replace('_', ' ') : '')],
  ['cells', 'n', (t) => num(t.cells)],
  ['first cell', '', (t) => (t.first ? html`<${CellLink} of=${t.first} />` : '')],
  ['because of', '', (t) => (t.cause ? html`<${CellLink} of=${t.cause} />` : '')],
];
const FAILED = [...ENDED.slice(0, 3), ENDED[4], ['why', 'wide', (t) => html`<span class="error">${t.error}</span>`]];

export function Transactions() {
  const [name, setName] = useState('');
  const { data, error } = usePoll(route('transactions', { name }), 1500);
  const pick = (of) => html`<button type="button" class="link" aria-pressed=${name === of} onClick=${() => setName(name === of ? '' : of)}>${of}</button>`;
  const names = [
    ['name', '', (n) => pick(n.name)],
    ['committed', 'n', (n) => num(n.committed)],
    ['failed', 'n', (n) => num(n.failed)],
    ['conflicts', 'n', (n) => num(n.conflicts)],
    ['p50', 'n', (n) => ms(n.p50_ms)],
    ['p99', 'n', (n) => ms(n.p99_ms)],
  ];
  return html`
    <h1>Transactions</h1>
    <${Oops} error=${error} />
    <h2>By name</h2>
    <${Rows} columns=${names} rows=${data && data.names} empty="no transaction has ended since this process began" caption="transactions by name" />
    <p class="dim">An observer's transactions have its name; a program names its own with <code>db.named("transfer")</code>. ${name && html`Below: <strong>${name}</strong> alone. <button type="button" class="link" onClick=${() => setName('')}>all</button>`}</p>
    <h2>Slowest of the last fifteen minutes</h2>
    <p class="dim legend"><span class="swatch work"></span> reads and the application's own work <span class="swatch prewrite"></span> prewrite <span class="swatch commit"></span> commit</p>
    <${Rows} columns=${ENDED} rows=${data && data.slowest.slice(0, 30)} empty="none" caption="slowest transactions" />
    <h2>Failed</h2>
    <${Rows} columns=${FAILED} rows=${data && data.failed.slice(0, 30)} empty="none" caption="failed transactions" />
    <h2>One of sixteen of the rest</h2>
    <${Rows} columns=${ENDED} rows=${data && data.sampled.slice(0, 30)} empty="none" caption="sampled transactions" />`;
}
