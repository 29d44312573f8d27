// Draws the graph of columns and observers in layers by longest path. Four passes move each node
// to the middle of its neighbours. Edges that go back are dashed.
import { html } from './vendor/preact.js';
import { num } from './parts.js';

const NODE = { width: 190, height: 34, gapX: 60, gapY: 12 };
const NODES_MAX = 40;

/** The nodes that most cells pass, at most so many, in the order in which they were. */
export function busiestNodes(nodes, edges, max) {
  if (nodes.length <= max) return nodes;
  const weight = new Map(nodes.map((node) => [node.id, 0]));
  for (const { from, to, cells } of edges) {
    for (const id of [from, to]) weight.set(id, (weight.get(id) || 0) + (cells || 0));
  }
  const order = (a, b) => weight.get(b.id) - weight.get(a.id) || (a.id < b.id ? -1 : 1);
  const kept = new Set([...nodes].sort(order).slice(0, max).map((node) => node.id));
  return nodes.filter((node) => kept.has(node.id));
}

/** The edges that close no circle, found by a depth-first walk. */
function forward(nodes, edges) {
  const out = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) if (out.has(edge.from) && out.has(edge.to)) out.get(edge.from).push(edge);
  const state = new Map();
  const kept = new Set();
  const walk = (id) => {
    state.set(id, 'open');
    for (const edge of out.get(id)) {
      const of = state.get(edge.to);
      if (of === 'open') continue;
      kept.add(edge);
      if (!of) walk(edge.to);
    }
    state.set(id, 'done');
  };
  const entered = new Set(edges.map((edge) => edge.to));
  for (const node of nodes) if (!entered.has(node.id) && !state.has(node.id)) walk(node.id);
  for (const node of nodes) if (!state.has(node.id)) walk(node.id);
  return kept;
}

/** The position of each node: its layer, and its place in the layer. */
export function layout(nodes, edges) {
  const kept = forward(nodes, edges);
  const layer = new Map(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const { from, to } of kept) {
      if (layer.get(to) < layer.get(from) + 1) {
        layer.set(to, layer.get(from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const layers = [];
  for (const node of nodes) (layers[layer.get(node.id)] ||= []).push(node.id);
  const place = new Map();
  const number = () => layers.forEach((ids) => ids.forEach((id, i) => place.set(id, i)));
  number();
  for (let pass = 0; pass < 4; pass += 1) {
    const down = pass % 2 === 0;
    for (const ids of down ? layers : [...layers].reverse()) {
      const middle = new Map(ids.map((id) => {
        const near = [...kept].filter((e) => (down ? e.to : e.from) === id).map((e) => place.get(down ? e.from : e.to));
        return [id, near.length ? near.reduce((a, b) => a + b, 0) / near.length : place.get(id)];
      }));
      ids.sort((a, b) => middle.get(a) - middle.get(b));
      ids.forEach((id, i) => place.set(id, i));
    }
  }
  return { layer, place, kept, layers };
}

const short = (text, max = 26) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);

export function Graph({ graph, busiest }) {
  if (!graph || graph.nodes.length === 0) return html`<p class="dim">no observer is registered</p>`;
  const nodes = busiestNodes(graph.nodes, graph.edges, NODES_MAX);
  const known = new Set(nodes.map((node) => node.id));
  const edges = graph.edges.filter((edge) => known.has(edge.from) && known.has(edge.to) && edge.from !== edge.to);
  const { layer, place, kept, layers } = layout(nodes, edges);
  const tallest = Math.max(...layers.map((ids) => ids.length));
  const height = tallest * (NODE.height + NODE.gapY) + NODE.gapY;
  const width = layers.length * (NODE.width + NODE.gapX);
  const x = (id) => layer.get(id) * (NODE.width + NODE.gapX) + 4;
  const y = (id) => {
    const own = layers[layer.get(id)].length;
    return NODE.gapY + (place.get(id) + (tallest - own) / 2) * (NODE.height + NODE.gapY);
  };
  const path = (edge) => {
    const [x1, y1] = [x(edge.from) + NODE.width, y(edge.from) + NODE.height / 2];
    const [x2, y2] = [x(edge.to), y(edge.to) + NODE.height / 2];
    if (kept.has(edge)) {
      const bend = (x2 - x1) / 2;
      return `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2 - 5},${y2}`;
    }
    return `M${x1},${y1} C${x1 + 40},${y1 + 50} ${x2 - 40},${y2 + 50} ${x2 - 5},${y2}`;
  };
  const tip = (edge) => `${edge.from} → ${edge.to}${edge.cells === null ? '' : `: ${num(edge.cells)} ${edge.declared ? 'runs' : 'cells'}`}`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="graph of columns and observers">
    <svg class="graph" width=${width} height=${height} role="img" aria-label=${`${nodes.length} columns and observers; the table below has the same`}>
      <defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto"><path d="M0,0 L6,3 L0,6 z" class="tip" /></marker></defs>
      ${edges.map((edge) => html`<path class=${`edge ${edge.declared ? 'declared' : 'learnt'} ${kept.has(edge) ? '' : 'back'}`} d=${path(edge)} marker-end="url(#tip)"><title>${tip(edge)}</title></path>`)}
      ${nodes.map((node) => html`<g class=${`node ${node.kind} ${busiest && node.id === `observer ${busiest}` ? 'busiest' : ''}`} transform=${`translate(${x(node.id)},${y(node.id)})`}>
        <rect width=${NODE.width} height=${NODE.height} rx=${node.kind === 'observer' ? 17 : 4} />
        <text x=${NODE.width / 2} y="21">${short(node.label)}</text><title>${node.kind}: ${node.label}</title>
      </g>`)}
    </svg>
    ${graph.nodes.length > NODES_MAX && html`<p class="dim">the ${NODES_MAX} busiest are drawn; ${graph.nodes.length - NODES_MAX} more are in the table alone</p>`}
  </div>`;
}
