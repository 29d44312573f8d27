// Hot keys: a map of keys by minutes, on a canvas; and the same as a table.
import { html, useEffect, useRef, useState } from './vendor/preact.js';
import { route, usePoll } from './api.js';
import { Key, Oops, Rows, keyText, num, time } from './parts.js';

const METRICS = [
  ['conflict', 'Conflicts', 'transactions that were aborted because of the row'],
  ['wait', 'Waits', 'locks of other transactions that were found in the row'],
  ['write', 'Writes', 'writes of the row, from one of 64'],
  ['read', 'Reads', 'reads of the row, from one of 64'],
];
const AXIS = 18;
const STEPS = 12;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rowHref = (table, row) => `#/cell?${new URLSearchParams({ table, prefix: keyText(row) })}`;
const label = (row) => `${keyText(row.label) || keyText(row.from)}${row.keys > 1 ? '…' : ''}`;

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Colours from few to many: lightness alone tells them apart. */
function ramp() {
  const [from, to] = [channels(css('--heat0')), channels(css('--heat1'))];
  return Array.from({ length: STEPS + 1 }, (_, i) => `rgb(${from.map((c, j) => Math.round(c + ((to[j] - c) * i) / STEPS)).join(' ')})`);
}

/** Where things are on a canvas of this size. */
function geometry(data, width) {
  const labels = width < 600 ? 110 : 260;
  const height = Math.max(4, Math.min(18, Math.floor(520 / Math.max(data.rows.length, 1))));
  return { labels, height, step: (width - labels) / data.t.length };
}

function draw(canvas, data) {
  const width = canvas.clientWidth;
  const { labels, height, step } = geometry(data, width);
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = (data.rows.length * height + AXIS) * scale;
  const on = canvas.getContext('2d');
  on.scale(scale, scale);
  const colours = ramp();
  const most = Math.max(1, ...data.values.flat());
  // Ten times as much is some steps more: one hot key does not make all others look cold.
  const colour = (value) => colours[value === 0 ? 0 : Math.max(1, Math.round((Math.log1p(value) / Math.log1p(most)) * STEPS))];
  data.values.forEach((values, y) => {
    values.forEach((value, x) => {
      on.fillStyle = colour(value);
      on.fillRect(labels + x * step, y * height, Math.ceil(step), height - (height > 8 ? 1 : 0));
    });
  });
  on.font = '11px system-ui';
  on.fillStyle = css('--dim');
  on.textBaseline = 'middle';
  let free = 0;
  data.rows.forEach((row, y) => {
    const middle = Math.max((y + 0.5) * height, 6);
    if (middle < free) return;
    free = middle + 12;
    // Keys differ at their ends: what is too long loses its beginning.
    let key = label(row);
    let text = `${row.table} ${key}`;
    while (key.length > 4 && on.measureText(text).width > labels - 8) {
      key = key.slice(1);
      text = `${row.table} …${key}`;
    }
    on.fillText(text, 0, middle);
  });
  const every = Math.ceil(70 / step);
  data.t.forEach((t, x) => {
    if (x % every === 0) on.fillText(time(t).slice(0, 5), labels + x * step, data.rows.length * height + AXIS / 2);
  });
}

function HeatMap({ data, name }) {
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  useEffect(() => {
    const redraw = () => canvas.current && draw(canvas.current, data);
    redraw();
    const resized = new ResizeObserver(redraw);
    resized.observe(canvas.current.parentElement);
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', redraw);
    addEventListener('theme', redraw);
    return () => {
      resized.disconnect();
      scheme.removeEventListener('change', redraw);
      removeEventListener('theme', redraw);
    };
  }, [data]);
  const find = (event) => {
    const { labels, height, step } = geometry(data, canvas.current.clientWidth);
    const y = Math.floor(event.offsetY / height);
    const x = Math.floor((event.offsetX - labels) / step);
    const row = data.rows[y];
    return row && { row, x, value: x >= 0 && x < data.t.length ? data.values[y][x] : null };
  };
  const open = (event) => {
    const found = find(event);
    if (found) location.hash = rowHref(found.row.table, found.row.hot[0].row);
  };
  return html`
    <canvas ref=${canvas} class="heat" aria-hidden="true" onMouseMove=${(e) => setAt(find(e) || null)} onMouseLeave=${() => setAt(null)} onClick=${open}></canvas>
    <p class="heatline">${at ? html`<strong>${at.row.table}</strong> <${Key} of=${at.row.from} />${at.row.keys > 1 && html` to <${Key} of=${at.row.to} />`}${at.value === null ? '' : html` · ${time(data.t[at.x]).slice(0, 5)}: about ${num(at.value)} ${name}`} · hottest: ${at.row.hot.map((hot) => html`<${Key} of=${hot.row} /> ${num(hot.count)} `)}` : html`<span class="dim">point at the map; a click leads to the rows</span>`}</p>`;
}

const RANGES = [
  ['table', '', (row) => row.table],
  ['keys', 'mid', (row) => html`<a href=${rowHref(row.table, row.label.utf8 || row.label.b64 ? row.label : row.from)}><${Key} of=${row.from} /></a>${row.keys > 1 && html` to <${Key} of=${row.to} />`}`],
  ['different keys', 'n', (row) => num(row.keys)],
  ['about', 'n', (row) => num(row.total)],
  ['hottest', 'mid', (row) => row.hot.map((hot) => html`<div><a href=${rowHref(hot.table, hot.row)}><${Key} of=${hot.row} /></a> <span class="dim">${num(hot.count)}</span></div>`)],
];

export function Keys({ query, about }) {
  const metric = METRICS.some(([name]) => name === query.get('metric')) ? query.get('metric') : 'conflict';
  const { data, error } = usePoll(route('keys', { metric, minutes: 60 }), 5000);
  const [, name, meaning] = METRICS.find(([known]) => known === metric);
  const sorted = data && [...data.rows].sort((a, b) => b.total - a.total).slice(0, 40);
  return html`
    <h1>Keys</h1>
    <p class="buttons" role="group" aria-label="what is shown">${METRICS.map(([known, title]) => html`<a class="choice" href=${`#/keys?metric=${known}`} aria-current=${known === metric ? 'true' : null}>${title}</a>`)}</p>
    <p class="dim">${name}: ${meaning}, in this process, in the last hour. Bright or dark says how many, and not that anything is wrong: conflicts and waits cost time, reads and writes are work.</p>
    <${Oops} error=${error} />
    ${data && data.rows.length > 0 && html`<${HeatMap} data=${data} name=${name.toLowerCase()} />`}
    <h2>Hottest ranges</h2>
    <${Rows} columns=${RANGES} rows=${sorted} empty=${about && !about.recorded ? 'this database was opened without a recorder' : `no ${name.toLowerCase()} in the last hour`} caption="ranges of keys" />`;
}
