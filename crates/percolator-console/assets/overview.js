// Shows the overview: one sentence, the present rates, fifteen minutes of charts, and advice.
import { html } from './vendor/preact.js';
import { route, usePoll } from './api.js';
import { Chart } from './chart.js';
import { Oops, Rows, Tile, age, ms, num, secs } from './parts.js';

const MARKS = { healthy: '✓', behind: '↗', stuck: '✕', full: '✕', damaged: '✕', read_only: '!', unknown: '?' };

const CHARTS = [
  ['Transactions a second', '', [
    { label: 'committed', of: (p) => p.commits_s },
    { label: 'aborted', of: (p) => p.aborts_s },
  ]],
  ['Duration of transactions', 'ms', [
    { label: 'p50', of: (p) => p.commit_p50_ms },
    { label: 'p99', of: (p) => p.commit_p99_ms },
  ]],
  ['Freshness: change committed to observer committed', 'ms', [
    { label: 'p50', of: (p) => p.delay_p50_ms },
    { label: 'p95', of: (p) => p.delay_p95_ms },
  ]],
  ['Changes that wait for workers of this process', '', [{ label: 'waiting', of: (p) => p.waiting }]],
];

function Tiles({ now, totals }) {
  return html`<div class="tiles">
    <${Tile} name="Committed" value=${num(now.commits_s)} unit="a second" note=${`${num(totals.committed)} in all`} href="#/transactions" />
    <${Tile} name="Aborted" value=${now.abort_ratio === null ? '–' : num(now.abort_ratio * 100, 1)} unit=${now.abort_ratio === null ? '' : '%'} note=${`${num(totals.conflicts)} conflicts in all`} href="#/locks" />
    <${Tile} name="Duration" value=${ms(now.commit_p50_ms)} note=${`p99 ${ms(now.commit_p99_ms)}`} href="#/transactions" />
    <${Tile} name="Freshness" value=${ms(now.delay_p50_ms)} note=${`p95 ${ms(now.delay_p95_ms)}`} href="#/observers" />
    <${Tile} name="Observers' runs" value=${num(now.runs_s)} unit="a second" note=${`${num(totals.observer_runs)} in all`} href="#/observers" />
    <${Tile} name="Changes that wait" value=${`${now.backlog_whole ? '' : 'at least '}${num(now.backlog)}`} note=${now.oldest ? `the oldest for ${age(now.oldest)}` : ''} href="#/observers" />
    <${Tile} name="Set aside" value=${num(now.set_aside)} note=${`${num(totals.observer_failures)} failures in all`} href="#/observers" />
    <${Tile} name="Locks" value=${num(now.locks)} note=${now.oldest_lock ? `the oldest is ${age(now.oldest_lock)} old` : ''} href="#/locks" />
    <${Tile} name="Safe point" value=${num(now.safe_point_behind)} unit="behind" note=${now.safe_point_age ? `${age(now.safe_point_age)} old` : ''} />
    <${Tile} name="Latest timestamp" value=${num(now.latest_ts)} note=${`${num(now.readers)} clients have snapshots open`} />
  </div>`;
}

function Insights({ all }) {
  if (all.length === 0) return null;
  return html`<section aria-labelledby="advice">
    <h2 id="advice">Advice</h2>
    <ul class="insights">${all.map((i) => html`<li><strong>${i.text}.</strong> ${i.advice}.${i.link && html` <a href=${`#${i.link}`}>look</a>`}</li>`)}</ul>
  </section>`;
}

const PROCESSES = [
  ['role', '', (p) => html`<strong>${p.role}</strong>`],
  ['host', '', (p) => `${p.host}, process ${p.pid}`],
  ['for', 'n', (p) => secs((Date.now() - p.since_ms) / 1000)],
  ['heard of', 'n', (p) => `${secs(p.written_s_ago)} ago`],
  ['committed', 'n', (p) => num(p.committed)],
  ['runs', 'n', (p) => num(p.observer_runs)],
  ['retrying', 'n', (p) => num(p.failing)],
  ['observers', 'wide', (p) => p.observers.join(', ')],
];

/** The processes of a cluster that write a status; an embedded database has none. */
function Processes() {
  const { data } = usePoll(route('processes'), 5000);
  if (!data || data.length === 0) return null;
  return html`<h2>Processes</h2><${Rows} columns=${PROCESSES} rows=${data} empty="" caption="processes of the cluster" />`;
}

export function Overview({ about }) {
  const { data, error } = usePoll(route('overview'), 1000);
  if (!data) return html`<h1>Overview</h1><${Oops} error=${error} />${!error && html`<p class="dim">looking…</p>`}`;
  const { verdict, now } = data;
  const looked = now.looked_s_ago === null ? '' : `Backlog and locks are as of ${num(now.looked_s_ago, 1)} s ago.`;
  return html`
    <h1 class="hidden">Overview</h1>
    <${Oops} error=${error} />
    <div class=${`verdict ${verdict.state}`} role="status">
      <span class="mark" aria-hidden="true">${MARKS[verdict.state] || '?'}</span>
      <span>${verdict.text}.${verdict.link && html` <a href=${`#${verdict.link}`}>look</a>`}</span>
    </div>
    <${Tiles} now=${now} totals=${data.totals} />
    <${Insights} all=${data.insights} />
    <section class="charts" aria-label="the last fifteen minutes">
      ${CHARTS.map(([title, unit, series]) => html`<${Chart} title=${title} unit=${unit} series=${series} points=${data.series} />`)}
    </section>
    <${Processes} />
    <p class="dim">${about && !about.recorded ? 'This database was opened without a recorder: rates and durations stay empty. ' : ''}Charts begin when this process began. ${looked}</p>`;
}
