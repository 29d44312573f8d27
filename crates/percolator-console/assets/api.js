// Talks to the API: keeps the token, sends requests, and polls, waiting for each answer before
// the next request.
import { useEffect, useRef, useState } from './vendor/preact.js';

const KEY = 'percolator-token';

/** The path under which this console is served, with a slash at its end. */
export const BASE = new URL('.', import.meta.url).pathname;

/** Turns a path, such as `/cell/TABLE/ROW/COLUMN` or `/search?q=cod`, into a page of the fragment. */
export function takePath() {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : '';
  if (!path) return;
  const [page, ...rest] = path.split('/').map(decodeURIComponent);
  const query = new URLSearchParams(location.search);
  if (page === 'cell') ['table', 'row', 'column'].forEach((name, i) => rest[i] && query.set(name, rest[i]));
  const token = /^#t=/.test(location.hash) ? location.hash : '';
  const text = query.toString();
  history.replaceState(null, '', `${BASE}${token || `#/${page}${text ? `?${text}` : ''}`}`);
}

/** Moves the token from the URL's fragment, which is never sent, to this tab's storage. */
export function takeToken() {
  const found = /^#t=([A-Za-z0-9]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, '', `${BASE}#/`);
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token.trim());
}

export class Problem extends Error {
  constructor(status, body) {
    super(body.error || `the console answered ${status}`);
    this.status = status;
    this.help = body.help || '';
  }
}

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

async function read(response) {
  const text = await response.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    body = { error: text || response.statusText };
  }
  if (!response.ok) throw new Problem(response.status, body);
  return body;
}

/** The path of a route with its parameters; those that are null are left out. */
export function route(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== '') query.set(name, String(value));
  }
  const text = query.toString();
  return `${BASE}api/v1/${path}${text ? `?${text}` : ''}`;
}

/** Asks once. */
export async function get(path, { signal, etag } = {}) {
  const more = etag ? { 'If-None-Match': etag } : {};
  const response = await fetch(path, { headers: headers(more), signal });
  if (response.status === 304) return { same: true, etag };
  return { body: await read(response), etag: response.headers.get('ETag') };
}

/** Changes something. A repeated request of the same id is done once. */
export async function post(path, body) {
  const id = crypto.randomUUID();
  const send = () =>
    fetch(`${BASE}api/v1/${path}`, {
      method: 'POST',
      headers: headers({ 'Content-Type': 'application/json', 'X-Request-Id': id }),
      body: JSON.stringify(body),
    });
  let response;
  try {
    response = await send();
  } catch {
    // The connection broke before the answer came: the same id makes a second try harmless.
    response = await send();
  }
  return read(response);
}

const visible = () =>
  document.visibilityState === 'visible'
    ? Promise.resolve()
    : new Promise((resolve) => {
        const look = () => {
          if (document.visibilityState !== 'visible') return;
          document.removeEventListener('visibilitychange', look);
          resolve();
        };
        document.addEventListener('visibilitychange', look);
      });

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Asks again and again, `ms` after each answer, while the tab is visible. `path` may be a function of
 * the last answer. Returns the last answer, the last error, and a way to ask at once.
 */
export function usePoll(path, ms = 1000) {
  const [state, setState] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  const last = useRef(null);
  const key = typeof path === 'function' ? path(null) : path;
  useEffect(() => {
    if (!key) return undefined;
    const abort = new AbortController();
    let etag = null;
    last.current = null;
    (async () => {
      while (!abort.signal.aborted) {
        await visible();
        if (abort.signal.aborted) return;
        try {
          const asked = typeof path === 'function' ? path(last.current) : path;
          const answer = await get(asked, { signal: abort.signal, etag });
          if (abort.signal.aborted) return;
          if (!answer.same) {
            etag = typeof path === 'function' ? null : answer.etag;
            last.current = answer.body;
            setState({ data: answer.body, error: null });
          } else {
            setState((old) => (old.error ? { ...old, error: null } : old));
          }
        } catch (error) {
          if (abort.signal.aborted) return;
          setState((old) => ({ data: old.data, error }));
          await pause(1000);
        }
        await pause(ms);
      }
    })();
    return () => abort.abort();
  }, [key, ms, turn]);
  return { ...state, again: () => setTurn((n) => n + 1) };
}
