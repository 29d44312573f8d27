// Shows held locks, and cells where transactions conflict or wait.
import { html, useState } from './vendor/preact.js';
import { post, route, usePoll } from './api.js';
import { CellLink, Oops, Rows, Sure, age, ms, num, time } from './parts.js';

const FATES = {
  roll_forward: ['committed', 'the next reader rolls it forward'],
  roll_back: ['rolled back', 'the next reader removes it'],
  owner_dead: ['owner dead', 'the next reader decides, by rolling back'],
  owner_alive: ['undecided', 'its owner lives and may still commit'],
};

const LOCKS = [
  ['age', 'n', (l) => age(l.age)],
  ['cell', '', (l) => html`<${CellLink} of=${l.cell} />`],
  ['transaction', 'n', (l) => l.start_ts],
  ['owner', '', (l) => html`<code title=${l.owner}>${l.owner.slice(0, 8)}</code>`],
  ['primary', '', (l) => (l.primary ? html`<${CellLink} of=${l.primary} />` : 'itself')],
  ['waiters', '', (l) => (l.waiters.length === 0 ? html`<span class="dim">none</span>` : html`${l.waiters.slice(0, 3).map((w) => html`<span title=${`reads at ${w.at}`}>${w.at} <span class="dim">for ${ms(w.waited_ms)}</span></span><br />`)}${l.waiters.length > 3 ? `and ${num(l.waiters.length - 3)} more` : ''}`)],
  ['fate', 'wide', (l) => html`<span class=${`tag ${l.fate.kind}`}>${FATES[l.fate.kind][0]}</span> ${FATES[l.fate.kind][1]}`],
];

const HOT = [
  ['cell', '', (c) => html`<${CellLink} of=${c.cell} />`],
  ['conflicts', 'n', (c) => num(c.conflicts)],
  ['locks found', 'n', (c) => num(c.waits)],
  ['waited', 'n', (c) => ms(c.waited_ms)],
  ['advice', 'wide', (c) => c.advice],
];

const CLASHES = [
  ['at', '', (c) => time(c.wall_ms)],
  ['cell', '', (c) => html`<${CellLink} of=${c.cell} />`],
  ['aborted', '', (c) => html`${c.loser} <span class="dim">${c.loser_start_ts}</span>`],
  ['because of', '', (c) => html`${c.winner || html`<span class="dim">not remembered</span>`} <span class="dim">${c.winner_start_ts}</span>`],
];

export function Locks({ about }) {
  const locks = usePoll(route('locks'), 1500);
  const conflicts = usePoll(route('conflicts'), 1500);
  const [did, setDid] = useState('');
  const after = (text) => {
    setDid(text);
    locks.again();
  };
  return html`
    <h1>Locks and conflicts</h1>
    <h2>Locks, the oldest first</h2>
    ${about && !about.read_only && (locks.data || []).length > 0 && html`<p><${Sure} label="Resolve" count=${async () => (await post('locks/resolve', { dry_run: true })).matched} act=${async () => `${num((await post('locks/resolve', {})).done)} resolved`} after=${after} /> <span class="dim">those whose owner is dead or whose transaction has ended; a living owner's lock stays</span></p>`}
    <p role="status">${did}</p>
    <${Oops} error=${locks.error} />
    <${Rows} columns=${LOCKS} rows=${locks.data} empty="no transaction holds a lock" caption="locks" />
    <h2>Hottest cells</h2>
    <${Oops} error=${conflicts.error} />
    <${Rows} columns=${HOT} rows=${conflicts.data && conflicts.data.cells} empty="no conflict and no lock was found since this process began" caption="hottest cells" />
    <h2>Last conflicts</h2>
    <${Rows} columns=${CLASHES} rows=${conflicts.data && conflicts.data.recent} empty="no transaction was aborted by a conflict" caption="last conflicts" />`;
}
