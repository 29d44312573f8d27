// Draws charts of the last fifteen minutes, with uPlot. Each chart has its figures as a table,
// too, for readers who do not see it.
import { html, useEffect, useRef } from './vendor/preact.js';
import { ms, num } from './parts.js';

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Colours that colour-blind readers can distinguish. The lines also differ in their dashes. */
const COLOURS = ['--line1', '--line2', '--line3'];
const DASHES = [[], [6, 3], [2, 3]];

function options(width, series, unit) {
  const axis = () => css('--dim');
  const grid = { stroke: () => css('--grid'), width: 1 };
  const written = (value) => (unit === 'ms' ? ms(value) : num(value, value < 10 ? 1 : 0));
  return {
    width,
    height: 150,
    padding: [8, 8, 0, 0],
    legend: { live: true },
    cursor: { y: false },
    scales: { y: { range: (u, min, max) => [0, Math.max(max * 1.1, 1)] } },
    axes: [
      { stroke: axis, grid, size: 28, font: '11px system-ui' },
      { stroke: axis, grid, size: 56, font: '11px system-ui', values: (u, ticks) => ticks.map(written) },
    ],
    series: [
      { label: 'at', value: (u, t) => (t ? new Date(t * 1000).toLocaleTimeString('en-GB') : '–') },
      ...series.map(({ label }, i) => ({
        label,
        stroke: () => css(COLOURS[i]),
        dash: DASHES[i],
        width: 1.6,
        spanGaps: false,
        points: { show: false },
        value: (u, v) => written(v),
      })),
    ],
  };
}

/** `series`: [{label, of: point => number}]. */
export function Chart({ title, points, series, unit = '' }) {
  const box = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const el = box.current;
    const make = () => {
      if (plot.current) plot.current.destroy();
      const width = Math.max(el.clientWidth, 200);
      plot.current = new window.uPlot(options(width, series, unit), [[], ...series.map(() => [])], el);
    };
    make();
    const resized = new ResizeObserver(() => {
      if (plot.current) plot.current.setSize({ width: Math.max(el.clientWidth, 200), height: 150 });
    });
    resized.observe(el);
    const redrawn = () => plot.current && plot.current.redraw();
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', redrawn);
    addEventListener('theme', redrawn);
    return () => {
      resized.disconnect();
      scheme.removeEventListener('change', redrawn);
      removeEventListener('theme', redrawn);
      if (plot.current) plot.current.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => {
    if (!plot.current || !points) return;
    const at = points.map((point) => point.wall_ms / 1000);
    plot.current.setData([at, ...series.map(({ of }) => points.map((point) => of(point) ?? null))]);
  }, [points]);
  const last = points && points.slice(-10).reverse();
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div ref=${box} class="plot" aria-hidden="true"></div>
    <details>
      <summary>figures</summary>
      <table>
        <thead><tr><th scope="col">at</th>${series.map(({ label }) => html`<th scope="col" class="n">${label}</th>`)}</tr></thead>
        <tbody>${last && last.map((point) => html`<tr><td>${new Date(point.wall_ms).toLocaleTimeString('en-GB')}</td>${series.map(({ of }) => html`<td class="n">${num(of(point), 1)}</td>`)}</tr>`)}</tbody>
      </table>
    </details>
  </figure>`;
}
