// Shows the search of the application, the web index.
import { html, useEffect, useState } from './vendor/preact.js';
import { get, route, usePoll } from './api.js';
import { Oops, num, whyHref } from './parts.js';

const LIMIT = 10;

/** Text with the matching parts marked. Ranges count bytes of UTF-8; strings here count otherwise. */
function Marked({ text, ranges }) {
  const bytes = new TextEncoder().encode(text);
  const decode = (from, to) => new TextDecoder().decode(bytes.slice(from, to));
  const parts = [];
  let at = 0;
  for (const { start, end } of ranges || []) {
    if (start < at) continue;
    parts.push(decode(at, start), html`<mark>${decode(start, end)}</mark>`);
    at = end;
  }
  parts.push(decode(at, bytes.length));
  return parts;
}

/** An external link: http and https only. The other site does not learn where the visitor came from. */
function Out({ url, children }) {
  if (!/^https?:\/\//.test(url)) return html`<span>${children}</span>`;
  return html`<a href=${url} rel="noopener noreferrer nofollow" target="_blank">${children}</a>`;
}

const pageHref = (url) => `#/search?${new URLSearchParams({ page: url })}`;

function Hit({ hit }) {
  const count = (n) => `${num(n)}${n >= hit.counted_max ? ' or more' : ''}`;
  return html`<li class="hit">
    <a class="title" href=${pageHref(hit.url)}>${hit.title || hit.url}</a>
    <div class="url"><${Out} url=${hit.url}>${hit.url}<//></div>
    <div><${Marked} text=${hit.snippet} ranges=${hit.highlights} /></div>
    <div class="dim">rank ${num(hit.rank, 6)}${hit.in_links !== undefined ? ` · ${count(hit.in_links)} in-links` : ''}${hit.duplicates ? ` · ${count(hit.duplicates)} duplicates` : ''}</div>
  </li>`;
}

function Results({ q, offset }) {
  const { data, error } = usePoll(route('app/search', { q, offset, limit: LIMIT }), 3000);
  if (!data) return html`<${Oops} error=${error} />`;
  const href = (at) => `#/search?${new URLSearchParams({ q, offset: String(at) })}`;
  return html`
    <${Oops} error=${error} />
    <p class="dim" role="status">${num(data.total)} pages match</p>
    <ol class="hits" start=${offset + 1}>${data.hits.map((hit) => html`<${Hit} key=${hit.url} hit=${hit} />`)}</ol>
    <p>${offset > 0 && html`<a href=${href(Math.max(0, offset - LIMIT))}>earlier</a> `}${offset + LIMIT < data.total && html`<a href=${href(offset + LIMIT)}>more</a>`}</p>`;
}

function Page({ url }) {
  const { data, error } = usePoll(route('app/page', { key: url }), 2000);
  if (!data) return html`<${Oops} error=${error} />`;
  const { page, cluster } = data;
  const canonical = page.canonical === page.url;
  return html`
    <h2>${page.title || page.url}</h2>
    <p class="url"><${Out} url=${page.url}>${page.url}<//></p>
    ${page.skipped && html`<p>Not indexed: ${page.skipped}</p>`}
    <p>${page.excerpt}</p>
    <p class="dim">rank ${num(page.rank, 6)} · ${num(page.out_links)} out-links · ${num(page.in_links)} in-links · ${num(page.text_bytes)} bytes of text · loaded ${new Date(page.loaded_ms).toLocaleString('en-GB')}</p>
    <p><a href=${`#/cell?${new URLSearchParams({ table: data.cell.table, row: data.cell.row, column: data.cell.column })}`}>the cell of its content</a> · <a href=${whyHref(data.cell)}>why it has this content</a></p>
    ${!canonical && html`<p>A duplicate: the cluster is shown as <a href=${pageHref(page.canonical)}>${page.canonical}</a></p>`}
    ${cluster && cluster.members.length > 1 && html`<h3>Duplicates, the best first</h3><ol>${cluster.members.map((m, i) => html`<li><a href=${pageHref(m.url)}>${m.url}</a> <span class="dim">${i === 0 ? 'shown, because no other member has a higher rank; ' : ''}rank ${num(m.rank, 6)}, ${num(m.in_links)} in-links</span></li>`)}</ol>`}
    ${page.anchors.length > 0 && html`<h3>Pages that link here</h3><ul>${page.anchors.map((a) => html`<li><a href=${pageHref(a.source)}>${a.source}</a> <span class="dim">says</span> ${a.anchors.map((text) => html`“${text}” `)}${a.target !== page.url && html`<span class="dim">by way of ${a.target}</span>`}</li>`)}</ul>`}`;
}

function Stats() {
  const [stats, setStats] = useState(null);
  const [error, setError] = useState(null);
  // Counting reads every page, so it runs only when the visitor asks.
  const count = () => get(route('app/stats')).then(({ body }) => setStats(body), setError);
  useEffect(() => setStats(null), []);
  if (error) return html`<${Oops} error=${error} />`;
  if (!stats) return html`<button type="button" onClick=${count}>count pages, links and clusters</button>`;
  const { skipped, writer, ...counts } = stats;
  return html`<dl class="stats">${Object.entries(counts).map(([name, n]) => html`<div><dt>${name.replaceAll('_', ' ')}</dt><dd>${num(n)}</dd></div>`)}</dl>`;
}

export function Search({ query }) {
  const [q, setQ] = useState(query.get('q') || '');
  const go = (event) => {
    event.preventDefault();
    location.hash = `#/search?${new URLSearchParams({ q })}`;
  };
  const page = query.get('page');
  const asked = query.get('q');
  return html`
    <h1>Search</h1>
    <form class="find" role="search" onSubmit=${go}><label>search <input id="q" type="search" value=${q} onInput=${(e) => setQ(e.target.value)} maxlength="500" placeholder="fresh fish -smoked site:example.org" /></label> <button>search</button></form>
    ${page && html`<${Page} key=${page} url=${page} />`}
    ${!page && asked && html`<${Results} key=${`${asked} ${query.get('offset')}`} q=${asked} offset=${Number(query.get('offset')) || 0} />`}
    ${!page && !asked && html`<${Stats} />`}`;
}
