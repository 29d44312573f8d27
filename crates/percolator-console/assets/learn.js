// Plays the paper's Figure 4: two clients, two accounts, and a crash between any two steps.
import { html, useEffect, useState } from './vendor/preact.js';
import { post } from './api.js';
import { Figure4 } from './cell.js';
import { Oops } from './parts.js';

const ROWS = ['Bob', 'Joe'];

/** The next steps of a client, by the stage of its transaction. */
const STEPS = {
  none: [['begin', 'begin']],
  open: [['get', 'get Bob'], ['set', 'move $7 from Bob to Joe'], ['prewrite', 'prewrite']],
  locked: [['commit_primary', 'commit primary']],
  decided: [['commit_secondaries', 'commit secondaries']],
};
const NEXT = { begin: 'open', get: 'open', set: 'open', prewrite: 'locked', commit_primary: 'decided', commit_secondaries: 'none', crash: 'gone' };

export function Learn() {
  const [clients, setClients] = useState([]);
  const [cells, setCells] = useState(ROWS.map((row) => ({ row, moments: [] })));
  const [log, setLog] = useState([]);
  const [error, setError] = useState(null);
  const say = (who, text, failed) => setLog((old) => [{ who, text, failed, n: (old.length ? old[0].n : 0) + 1 }, ...old].slice(0, 40));

  const ask = async (who, body) => {
    try {
      setError(null);
      const answer = await post('learn/step', { ...body, rows: ROWS });
      setCells(answer.cells);
      if (answer.answer) say(who, answer.answer, answer.failed);
      return answer;
    } catch (problem) {
      setError(problem);
      // Status 410: the session of this client has ended.
      if (problem.status === 410) setClients((old) => old.filter((c) => c.session !== body.session));
      return null;
    }
  };
  useEffect(() => {
    ask('', {});
  }, []);

  const begin = async () => {
    try {
      const { session } = await post('learn/begin', {});
      setClients((old) => [...old, { session, stage: 'none', busy: false }]);
      say(`client ${session}`, 'is a client of its own, with a liveness token');
    } catch (problem) {
      setError(problem);
    }
  };
  const change = (session, to) => setClients((old) => old.map((c) => (c.session === session ? { ...c, ...to } : c)));
  /** Takes a step. A client takes one at a time: a later request could overtake an earlier one. */
  const step = async ({ session, stage, busy }, name) => {
    if (busy) return;
    change(session, { busy: true });
    const who = `client ${session}`;
    let answer;
    if (name === 'set') {
      answer = await ask(who, { session, step: 'set', row: 'Bob', value: '$3' });
      if (answer) answer = await ask(who, { session, step: 'set', row: 'Joe', value: '$9' });
    } else {
      answer = await ask(who, { session, step: name, ...(name === 'get' ? { row: 'Bob' } : {}) });
    }
    const ended = answer === null || (answer.failed && name !== 'get');
    const next = ended ? (answer === null ? stage : 'none') : NEXT[name];
    if (next === 'gone') setClients((old) => old.filter((c) => c.session !== session));
    else change(session, { stage: next, busy: false });
  };

  return html`
    <h1>Figure 4, to play with</h1>
    <p>Bob and Joe have accounts in the table <code>percolator-learn</code> of this store. Let a client move money, crash it between any two steps, and read as another client: that reader resolves what was left, as section 2.2 of the paper says.</p>
    <${Oops} error=${error} />
    <p class="buttons">
      <button type="button" onClick=${begin}>new client</button>
      <button type="button" onClick=${() => ask('reader', { read: true })}>another client reads</button>
    </p>
    <div class="clients">${clients.map((client) => html`<section class="client" key=${client.session} aria-label=${`client ${client.session}`}>
      <h2>Client ${client.session}</h2>
      <p class="buttons">${STEPS[client.stage].map(([name, label]) => html`<button type="button" aria-disabled=${client.busy} onClick=${() => step(client, name)}>${label}</button>`)}
      <button type="button" class="danger" aria-disabled=${client.busy} onClick=${() => step(client, 'crash')}>crash here</button></p>
    </section>`)}</div>
    ${cells.map(({ row, moments }) => html`<h2>${row}</h2><${Figure4} moments=${moments} caption=${`history of ${row}'s balance`} />`)}
    <h2>What happened</h2>
    ${log.length === 0 ? html`<p class="dim">nothing yet: begin with a new client</p>` : html`<ol class="log" reversed>${log.map((l) => html`<li key=${l.n} class=${l.failed ? 'error' : ''}><strong>${l.who}</strong> ${l.text}</li>`)}</ol>`}`;
}
