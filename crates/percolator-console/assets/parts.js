// Defines small parts that all pages use: keys, values, ages, tables, errors.
import { html, useState } from './vendor/preact.js';

/** A number as people read it. */
export function num(value, digits = 0) {
  if (value === null || value === undefined) return '–';
  if (value !== 0 && Math.abs(value) < 10 ** -digits / 2 && digits < 3) return num(value, digits + 1);
  return value.toLocaleString('en', { maximumFractionDigits: digits });
}

/** Milliseconds as people read them. */
export function ms(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1) return `${num(value * 1000)} µs`;
  if (value < 1000) return `${num(value, value < 10 ? 1 : 0)} ms`;
  return secs(value / 1000);
}

export function secs(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1) return `${num(value * 1000)} ms`;
  if (value < 120) return `${num(value, value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${num(value / 60)} min`;
  if (value < 172800) return `${num(value / 3600)} h`;
  return `${num(value / 86400)} days`;
}

/** An age: "4 min", or "over 4 min" where only that is known. */
export function age(value) {
  if (!value) return '–';
  return (value.at_least ? 'over ' : '') + secs(value.seconds);
}

export function time(wallMs) {
  return new Date(wallMs).toLocaleTimeString('en-GB');
}

/** A key as text, for links and forms: `b64:` before what is no text. */
export function keyText(key) {
  if (!key) return '';
  return key.utf8 !== undefined ? key.utf8 : `b64:${key.b64}`;
}

/** Bytes as the command line writes them: `\\xNN` for what is no printable ASCII. */
function escaped(b64) {
  const shown = [...atob(b64)].slice(0, 400).map((c) => {
    const code = c.charCodeAt(0);
    return code < 0x20 || code > 0x7e || c === '\\' ? `\\x${code.toString(16).padStart(2, '0')}` : c;
  });
  return shown.join('') + (b64.length > 540 ? '…' : '');
}

export function Key({ of }) {
  if (!of) return html`<span class="dim">–</span>`;
  if (of.utf8 === undefined) return html`<code class="bytes">${escaped(of.b64)}</code>`;
  return html`<code>${of.utf8 === '' ? '(empty)' : of.utf8}</code>`;
}

export function Value({ of }) {
  if (!of) return null;
  if (!of.value) {
    return html`<span class="dim">${num(of.bytes)} bytes, hash <code>${of.hash}</code></span>`;
  }
  const text = of.value.utf8;
  const shown = text === undefined ? html`<code class="bytes">${escaped(of.value.b64)}</code>` : html`<code class="value">${text === '' ? '(empty)' : text}</code>`;
  return html`<span class="valuebox">${shown}${of.cut && html`<span class="dim"> … ${num(of.bytes)} bytes</span>`}</span>`;
}

/** The link to a cell's page. */
export function cellHref(cell) {
  const query = new URLSearchParams({ table: cell.table, row: keyText(cell.row), column: keyText(cell.column) });
  return `#/cell?${query}`;
}

/** The link to the page that says why a cell is as it is. */
export function whyHref({ table, row, column, at }) {
  const text = (key) => (typeof key === 'string' ? key : keyText(key));
  const query = new URLSearchParams({ table, row: text(row), column: text(column) });
  if (at) query.set('at', at);
  return `#/why?${query}`;
}

export function CellLink({ of }) {
  if (!of) return html`<span class="dim">–</span>`;
  return html`<a class="cell" href=${cellHref(of)}><span class="dim">${of.table}</span> <${Key} of=${of.row} /> <${Key} of=${of.column} /></a>`;
}

/** What went wrong, and what to do. */
export function Oops({ error }) {
  if (!error) return null;
  return html`<div class="oops" role="alert"><strong>${error.message}</strong>${error.help && html`<br />${error.help}`}</div>`;
}

/** A table; `columns` are [title, class, of(row)]. */
export function Rows({ columns, rows, empty, caption }) {
  if (!rows) return html`<p class="dim">looking…</p>`;
  if (rows.length === 0) return html`<p class="dim">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead><tr>${columns.map(([title, kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${columns.map(([, kind, of]) => html`<td class=${kind}>${of(row)}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

export function Tile({ name, value, unit, note, href }) {
  const body = html`<span class="name">${name}</span><span class="big">${value}${unit && html`<small> ${unit}</small>`}</span>${note && html`<span class="note">${note}</span>`}`;
  return href ? html`<a class="tile" href=${href}>${body}</a>` : html`<div class="tile">${body}</div>`;
}

/**
 * A button that shows how many things it would change, and asks before it acts. `after` gets the
 * outcome and shows it: the button itself may have nothing left to do, and vanish.
 */
export function Sure({ label, count, act, after }) {
  const [stage, setStage] = useState(null);
  const [error, setError] = useState(null);
  const ask = async () => {
    try {
      setError(null);
      setStage({ matched: await count() });
    } catch (problem) {
      setError(problem);
    }
  };
  const go = async () => {
    try {
      const done = await act();
      setStage(null);
      after(done);
    } catch (problem) {
      setError(problem);
      setStage(null);
    }
  };
  if (error) return html`<${Oops} error=${error} />`;
  if (stage === null) return html`<button type="button" onClick=${ask}>${label}</button>`;
  return html`<span class="sure">
    <button type="button" class="danger" onClick=${go}>${label} ${num(stage.matched)}</button>
    <button type="button" onClick=${() => setStage(null)}>no</button>
  </span>`;
}
