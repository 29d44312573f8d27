// Why a cell is as it is: the way from a write up to its root, and down to all that it has set off, on
// a time axis. What the trace does not have is shown as not recorded.
import { html, useState } from './vendor/preact.js';
import { route, usePoll } from './api.js';
import { CellLink, Key, Oops, Rows, cellHref, ms, num, time, whyHref } from './parts.js';

const WIDTH = 260;

function Find({ cell, at }) {
  const [given, set] = useState({ ...cell, at: at || '' });
  const go = (event) => {
    event.preventDefault();
    location.hash = whyHref(given);
  };
  const field = (name, more = {}) => html`<label>${name === 'at' ? 'as a reader at' : name} <input value=${given[name]} onInput=${(e) => set({ ...given, [name]: e.target.value })} spellcheck=${false} autocomplete="off" ...${more} /></label>`;
  return html`<form class="find" onSubmit=${go}>${['table', 'row', 'column'].map((name) => field(name, { required: true }))} ${field('at', { type: 'number', min: 0, placeholder: 'the latest' })} <button>show</button></form>`;
}

/** A transaction on the time axis: the wait for its begin, and its duration. */
function Bar({ of, from, span }) {
  if (!of.recorded) return html`<span class="dim">not recorded</span>`;
  const x = (t) => ((t - from) / span) * WIDTH;
  const end = of.wall_ms;
  const begin = end - of.took_ms;
  const text = `${of.delay_ms === null ? '' : `began ${ms(of.delay_ms)} after its cause, `}took ${ms(of.took_ms)}`;
  return html`<svg class="waterfall" width=${WIDTH} height="14" viewBox=${`0 0 ${WIDTH} 14`} role="img" aria-label=${text}><title>${text}</title>
    ${of.delay_ms !== null && html`<rect class="waited" x=${x(begin - of.delay_ms)} y="6" width=${Math.max(x(begin) - x(begin - of.delay_ms), 0)} height="2" />`}
    <rect class=${`took ${of.side}`} x=${Math.min(x(begin), WIDTH - 2)} y="1" width=${Math.max(x(end) - x(begin), 2)} height="12" rx="2" />
  </svg>`;
}

function Name({ of }) {
  const name = of.recorded ? of.name || 'unnamed' : 'not recorded';
  const indent = '\u2003'.repeat(Math.min(of.indent, 12));
  return html`<span>${indent}${of.side === 'own' ? html`<strong>${name}</strong> <span class="tag live">this write</span>` : of.recorded ? name : html`<span class="dim">${name}</span>`}</span>`;
}

/** A cell with its column first: that is what tells the changes of one row apart. */
function Because({ of }) {
  return html`<a class="cell" href=${cellHref(of)}><${Key} of=${of.column} /> <span class="dim">${of.table} <${Key} of=${of.row} /></span></a>`;
}

function wrote(of) {
  if (!of.recorded) return '';
  if (of.start_ts === of.commit_ts) return 'nothing';
  const cells = `${num(of.written)} cell${of.written === 1 ? '' : 's'}`;
  return html`<details><summary>${cells}${of.notified ? `, notified ${num(of.notified)}` : ''}</summary><ul class="cells">${of.cells.map((cell) => html`<li><${CellLink} of=${cell} /></li>`)}</ul></details>`;
}

function Waterfall({ why }) {
  const lines = why.nodes;
  const known = lines.filter((of) => of.recorded);
  const from = Math.min(...known.map((of) => of.wall_ms - of.took_ms - (of.delay_ms || 0)));
  const span = Math.max(Math.max(...known.map((of) => of.wall_ms)) - from, 1);
  const columns = [
    ['transaction', '', (of) => html`<${Name} of=${of} />`],
    [`${known.length ? time(from) : ''}   … + ${ms(span)}`, '', (of) => html`<${Bar} of=${of} from=${from} span=${span} />`],
    ['after its cause', 'n', (of) => ms(of.delay_ms)],
    ['took', 'n', (of) => ms(of.took_ms)],
    ['start', 'n', (of) => of.start_ts ?? ''],
    ['commit', 'n', (of) => (of.recorded && of.start_ts === of.commit_ts ? '' : of.ts)],
    ['because of', '', (of) => of.because && html`<${Because} of=${of.because} />${of.changes > 1 && html` <span class="dim">and ${num(of.changes - 1)} more</span>`}`],
    ['wrote', '', wrote],
  ];
  return html`<${Rows} columns=${columns} rows=${lines} empty="nothing is recorded" caption="transactions: causes, this write, and what it has set off" />
    <p class="dim legend"><span class="swatch cause"></span> led to it <span class="swatch own"></span> this write <span class="swatch effect"></span> set off by it; the thin line is the wait for the observer's begin</p>`;
}

function Shown({ cell, at }) {
  const { data, error } = usePoll(route('why', { ...cell, at }), 10000);
  if (error && !data) {
    // Below the safe point nobody knows what the cell was.
    return error.status === 410 ? html`<p>Not recorded: this timestamp lies below the safe point.</p><${Oops} error=${error} />` : html`<${Oops} error=${error} />`;
  }
  if (!data) return html`<p class="dim">looking…</p>`;
  const unknown = data.nodes.some((node) => !node.recorded);
  return html`
    <${Oops} error=${error} />
    <p><${CellLink} of=${data.cell} /> was ${data.write.deleted ? 'deleted' : 'written'} at <strong>${data.write.commit_ts}</strong> by transaction ${data.write.start_ts}. <a href=${cellHref(data.cell)}>The records of the cell</a></p>
    <${Waterfall} why=${data} />
    ${unknown && html`<p class="dim">Not recorded: the transaction was not traced, or its trace has expired. <code>demo</code>, <code>webindex load --trace all</code> and <code>worker --trace all</code> leave traces; a program does with <code>Options::trace</code>.</p>`}
    ${data.cut && html`<p class="dim">There are more transactions than are shown.</p>`}`;
}

export function Why({ query }) {
  const cell = Object.fromEntries(['table', 'row', 'column'].map((name) => [name, query.get(name) || '']));
  const at = query.get('at');
  const known = cell.table !== '' && cell.column !== '' && query.has('row');
  const id = JSON.stringify([...query]);
  return html`
    <h1>Why</h1>
    <${Find} key=${`find ${id}`} cell=${cell} at=${at} />
    ${known ? html`<${Shown} key=${id} cell=${cell} at=${at} />` : html`<p>Name a cell: you see which transaction wrote it, which change led to that, up to its root, and what the write has set off. The page of each <a href="#/cell">cell</a> leads here, too.</p>`}`;
}
