// Shows observers: the graph, the counts of each, and the cells that they fail on.
import { html, useState } from './vendor/preact.js';
import { post, route, usePoll } from './api.js';
import { Graph } from './graph.js';
import { CellLink, Key, Oops, Rows, Sure, age, ms, num, secs } from './parts.js';

/** Of the observers whose changes wait, the one that works the largest share of its time. */
function bottleneck(observers) {
  const waiting = (observers || []).filter((o) => (o.backlog || 0) > 0);
  waiting.sort((a, b) => b.busy - a.busy || b.backlog - a.backlog);
  return waiting[0];
}

const COLUMNS = [
  ['observer', '', (o) => html`<strong>${o.observer}</strong>`],
  ['column', '', (o) => html`<span class="dim">${o.table}</span> <${Key} of=${o.column} />`],
  ['', '', (o) => html`${o.strength === 'weak' && html`<span class="tag">weak</span> `}${o.paused && html`<span class="tag lock">paused</span>`}`],
  ['runs', 'n', (o) => num(o.runs)],
  ['busy', 'n', (o) => `${num(o.busy * 100, 1)} %`],
  ['run p50', 'n', (o) => ms(o.run_p50_ms)],
  ['p99', 'n', (o) => ms(o.run_p99_ms)],
  ['delay p99', 'n', (o) => ms(o.delay_p99_ms)],
  ['conflicts', 'n', (o) => num(o.conflicts)],
  ['failures', 'n', (o) => num(o.failures)],
  ['waiting', 'n', (o) => `${o.backlog_whole ? '' : '≥ '}${num(o.backlog)}`],
  ['oldest', 'n', (o) => age(o.oldest)],
  ['retrying', 'n', (o) => num(o.failing)],
  ['set aside', 'n', (o) => num(o.set_aside)],
];

const FAILURES = [
  ['state', '', (f) => html`<span class=${`tag ${f.state}`}>${f.state === 'set_aside' ? 'set aside' : 'retrying'}</span>`],
  ['observer', '', (f) => f.observer],
  ['cell', '', (f) => html`<${CellLink} of=${f.cell} />`],
  ['attempts', 'n', (f) => num(f.attempts)],
  ['next try', 'n', (f) => (f.next_try_s === null ? 'when replayed' : `in ${secs(f.next_try_s)}`)],
  ['error', 'wide', (f) => html`<span class="error">${f.error}</span>`],
];

/** Pauses or resumes an observer. */
function Pause({ of, again }) {
  const [error, setError] = useState(null);
  const act = async () => {
    try {
      await post(`observers/${of.paused ? 'resume' : 'pause'}`, { observer: of.observer });
      setError(null);
      again();
    } catch (problem) {
      setError(problem);
    }
  };
  const label = `${of.paused ? 'resume' : 'pause'} ${of.observer}`;
  return html`<button type="button" class="link" aria-label=${label} onClick=${act}>${of.paused ? 'resume' : 'pause'}</button><${Oops} error=${error} />`;
}

export function Observers({ about }) {
  const { data, error, again } = usePoll(route('observers'), 1500);
  const { data: graph } = usePoll(route('graph'), 3000);
  const [observer, setObserver] = useState('');
  const failures = usePoll(route('failures', { observer }), 2000);
  const names = [...new Set((data || []).map((o) => o.observer))];
  const narrow = bottleneck(data);
  const aside = (failures.data || []).some((f) => f.state === 'set_aside');
  const [did, setDid] = useState('');
  const after = (text) => {
    setDid(text);
    failures.again();
  };
  const filter = observer ? { observer } : {};
  const writable = about && !about.read_only;
  const columns = writable ? [...COLUMNS, ['', '', (o) => html`<${Pause} of=${o} again=${again} />`]] : COLUMNS;
  const sure = (label, path, past) => html` <${Sure} key=${`${label} ${observer}`} label=${label} count=${async () => (await post(path, { ...filter, dry_run: true })).matched} act=${async () => `${num((await post(path, filter)).done)} ${past}`} after=${after} />`;
  return html`
    <h1>Observers</h1>
    <${Oops} error=${error} />
    ${narrow && html`<p>The largest backlog is that of <strong>${narrow.observer}</strong>: ${num(narrow.backlog)} changes. It is busy for ${num(narrow.busy * 100)} % of one thread.</p>`}
    <${Graph} graph=${graph} busiest=${narrow && narrow.observer} />
    <p class="dim legend"><span class="swatch column"></span> observed column <span class="swatch observer"></span> observer <span class="swatch family"></span> columns that no observer watches, by family. Solid arrows are declared, thin ones were seen.</p>
    <h2>In numbers</h2>
    <${Rows} columns=${columns} rows=${data} empty="no observer is registered in this store" caption="observers in numbers" />
    <p class="dim">Runs, durations and conflicts are those of this process since it began.</p>
    <h2 id="failures">Failures</h2>
    <p><label>of <select value=${observer} onChange=${(e) => setObserver(e.target.value)}><option value="">all observers</option>${names.map((name) => html`<option>${name}</option>`)}</select></label>
      ${aside && writable && [sure('Replay', 'failures/replay', 'replayed'), sure('Skip', 'failures/skip', 'skipped')]} <span role="status">${did}</span></p>
    <${Oops} error=${failures.error} />
    <${Rows} columns=${FAILURES} rows=${failures.data} empty="no observer fails on any cell" caption="cells that observers fail on" />`;
}
