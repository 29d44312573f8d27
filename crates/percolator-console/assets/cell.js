// Shows one cell, live, as in Figure 4 of the paper; and finds a cell by table and row.
import { html, useState } from './vendor/preact.js';
import { route, usePoll } from './api.js';
import { CellLink, Key, Oops, Rows, Value, age, cellHref, keyText, num, whyHref } from './parts.js';

const MOMENTS = [
  ['timestamp', 'n', (m) => html`<span title=${m.age ? `issued ${age(m.age)} ago` : ''}>${m.ts}</span>`],
  ['age', 'n', (m) => age(m.age)],
  ['data', 'mid', (m) => html`<${Value} of=${m.data} />`],
  ['lock', '', (m) => m.lock && html`<span class="tag lock">${m.lock.primary ? html`primary at <${CellLink} of=${m.lock.primary} />` : 'primary'}</span>`],
  ['write', '', (m) => m.write && html`<span class=${`tag ${m.write.delete ? 'delete' : 'write'}`}>${m.write.delete ? 'delete' : `data @ ${m.write.start_ts}`}</span>`],
  ['notify', '', (m) => html`${m.notify && html`<span class="tag notify">notified</span> `}${m.acks.map((ack) => html`<span class="tag" title=${`run @ ${ack.start_ts}`}>${ack.observer} ✓</span> `)}`],
  ['which means', 'wide', (m) => m.meaning.map((text) => html`<div>${text}</div>`)],
];

/** The paper's table of one cell. */
export function Figure4({ moments, caption }) {
  return html`<${Rows} columns=${MOMENTS} rows=${moments} empty="nothing is stored of this cell" caption=${caption} />`;
}

function Find({ cell }) {
  const [table, setTable] = useState(cell.table || '');
  const [row, setRow] = useState(cell.row || '');
  const [column, setColumn] = useState(cell.column || '');
  const go = (event) => {
    event.preventDefault();
    location.hash = `#/cell?${new URLSearchParams({ table, row, column })}`;
  };
  const field = (name, value, set) => html`<label>${name} <input value=${value} onInput=${(e) => set(e.target.value)} required spellcheck=${false} autocomplete="off" /></label>`;
  return html`<form class="find" onSubmit=${go}>${field('table', table, setTable)} ${field('row', row, setRow)} ${field('column', column, setColumn)} <button>show</button></form>`;
}

const OUTCOMES = {
  value: 'returns',
  absent: 'finds nothing',
  waits: 'waits for the lock',
  too_old: 'is refused: its timestamp is too old',
  not_issued: 'is refused: its timestamp was not issued yet',
  damaged: 'fails: the store is damaged',
};

/** What a reader would do, and why: the same sentences as `percolator cell --explain`. */
function Reader({ of }) {
  return html`<p class="reader">A reader at <strong>${of.at}</strong> ${OUTCOMES[of.outcome]}${of.value && html` <${Value} of=${of.value} />`}. <span class="dim">${of.because}</span></p>`;
}

function Live({ cell }) {
  const [at, setAt] = useState('');
  const path = (last) => route('cell', { ...cell, at, since: last && last.version });
  // The server delays its answer until the cell changes, for at most two seconds.
  const { data, error } = usePoll(path, 100);
  if (error && !data) return html`<${Oops} error=${error} />`;
  if (!data) return html`<p class="dim">looking…</p>`;
  return html`
    <${Oops} error=${error} />
    <p><${CellLink} of=${data.cell} /> <span class="tag live">live</span> <span class="dim">latest timestamp ${num(data.latest_ts)}; below ${num(data.floor)} versions may be collected</span> <a href=${whyHref({ ...data.cell, at })}>why this value?</a></p>
    <${Reader} of=${data.reader} />
    <form class="find" onSubmit=${(e) => e.preventDefault()}><label>a reader at timestamp <input type="number" min="0" value=${at} placeholder="the latest" onInput=${(e) => setAt(e.target.value)} /></label></form>
    <${Figure4} moments=${data.moments} caption="the cell's history, newest first" />
    ${data.total > data.moments.length && html`<p class="dim">${num(data.total - data.moments.length)} older moments are not shown</p>`}`;
}

function Tables() {
  const { data, error } = usePoll(route('tables'), 5000);
  const columns = [
    ['table', '', (t) => html`<a href=${`#/cell?${new URLSearchParams({ table: t.name })}`}>${t.name}</a>`],
    ['observed columns', '', (t) => t.observed.map((column) => html`<${Key} of=${column} /> `)],
  ];
  return html`<${Oops} error=${error} /><${Rows} columns=${columns} rows=${data} empty="the store has no tables" caption="tables" />`;
}

function Browse({ table, prefix, after }) {
  const { data, error } = usePoll(route('rows', { table, prefix, after, limit: 50 }), 5000);
  const [given, setGiven] = useState(prefix || '');
  const href = (more) => `#/cell?${new URLSearchParams({ table, ...(prefix ? { prefix } : {}), ...more })}`;
  const columns = [
    ['row', '', (row) => html`<${Key} of=${row.row} />`],
    ['cells', 'wide', (row) => html`<ul class="cells">${row.cells.map((cell) => html`<li><a href=${cellHref({ table, row: row.row, column: cell.column })}><${Key} of=${cell.column} /></a> <${Value} of=${cell.value} /></li>`)}</ul>`],
  ];
  const go = (event) => {
    event.preventDefault();
    location.hash = `#/cell?${new URLSearchParams({ table, prefix: given })}`;
  };
  return html`
    <p><a href="#/cell">tables</a> / <strong>${table}</strong> <span class="dim">${data ? `as of timestamp ${num(data.at)}` : ''}</span></p>
    <form class="find" onSubmit=${go}><label>rows that begin with <input value=${given} onInput=${(e) => setGiven(e.target.value)} spellcheck=${false} /></label> <button>show</button></form>
    <${Oops} error=${error} />
    <${Rows} columns=${columns} rows=${data && data.rows} empty="no such rows" caption=${`rows of ${table}`} />
    ${data && data.next && html`<p><a href=${href({ after: keyText(data.next) })}>more rows</a></p>`}`;
}

export function Cell({ query }) {
  const [table, row, column] = ['table', 'row', 'column'].map((name) => query.get(name) || '');
  const known = table !== '' && query.has('row') && column !== '';
  const cell = { table, row, column };
  const id = JSON.stringify([...query]);
  return html`
    <h1>Cells</h1>
    <${Find} key=${`find ${id}`} cell=${cell} />
    ${known && html`<${Live} key=${id} cell=${cell} />`}
    ${!known && table === '' && html`<h2>Tables</h2><${Tables} />`}
    ${!known && table !== '' && html`<h2>Rows</h2><${Browse} key=${id} table=${table} prefix=${query.get('prefix')} after=${query.get('after')} />`}`;
}
