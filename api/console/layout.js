/**
 * Lays a graph without cycles out in layers, from the top down: Sugiyama's way, with a long edge going through a
 * narrow box in each layer that it crosses.
 */

const GAP_X = 26;
const GAP_Y = 54;
const SWEEPS = 8;
const SETTLING = ["above", "below", "above", "below", "above", "below", "above"];
/** The neighbours that boxes move to in turn: at last each box without rivals stands right below its parents. */
const THIN = 10;

/**
 * @typedef {{id: string, width: number, height: number}} Box
 * @typedef {{from: string, to: string}} Edge
 * @param {Box[]} boxes @param {Edge[]} edges
 * @param {{gap?: number, settling?: ("above" | "below")[]}} [options] the space between layers, and who moves to whom
 * @returns {{width: number, height: number, places: Map<string, {x: number, y: number}>, lines: {edge: Edge, points: [number, number][]}[]}}
 */
export function layered(boxes, edges, { gap = GAP_Y, settling = SETTLING } = {}) {
  const known = new Set(boxes.map((box) => box.id));
  if (!boxes.length) return { width: 0, height: 0, places: new Map(), lines: [] };
  const used = edges.filter((edge) => known.has(edge.from) && known.has(edge.to));
  const ranks = ranked(boxes, used);
  const cells = new Map(boxes.map((box) => [box.id, { ...box, rank: ranks.get(box.id), above: [], below: [], x: 0, y: 0 }]));
  const chains = used.map((edge) => ({ edge, cells: chain(edge, cells) }));
  const layers = [];
  for (const cell of cells.values()) (layers[cell.rank] ??= []).push(cell);
  order(layers);
  place(layers, gap, settling);
  const all = [...cells.values()];
  const left = Math.min(...all.map((cell) => cell.x - cell.width / 2));
  for (const cell of all) cell.x -= left;
  return {
    width: Math.max(0, ...all.map((cell) => cell.x + cell.width / 2)),
    height: Math.max(0, ...all.map((cell) => cell.y + cell.height)),
    places: new Map(boxes.map((box) => [box.id, { x: cells.get(box.id).x, y: cells.get(box.id).y }])),
    lines: chains.map(({ edge, cells: along }) => ({ edge, points: through(along) })),
  };
}

/** The length of the longest way from a box without parents; these stand right above their first child. */
function ranked(boxes, edges) {
  const ranks = new Map(boxes.map((box) => [box.id, 0]));
  for (let round = 0; round < boxes.length; round++) {
    let moved = false;
    for (const { from, to } of edges) {
      if (ranks.get(to) <= ranks.get(from)) {
        ranks.set(to, ranks.get(from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const fed = new Set(edges.map((edge) => edge.to));
  for (const { id } of boxes) {
    const below = edges.filter((edge) => edge.from === id).map((edge) => ranks.get(edge.to));
    if (!fed.has(id) && below.length) ranks.set(id, Math.min(...below) - 1);
  }
  return ranks;
}

/** The cells that an edge goes through, joined to each other. */
function chain(edge, cells) {
  const last = cells.get(edge.to);
  const along = [cells.get(edge.from)];
  for (let rank = along[0].rank + 1; rank < last.rank; rank++) {
    const thin = { id: `${edge.from}>${edge.to}@${rank}#${cells.size}`, width: THIN, height: 0, rank, above: [], below: [], x: 0, y: 0 };
    cells.set(thin.id, thin);
    along.push(thin);
  }
  along.push(last);
  for (let at = 1; at < along.length; at++) {
    along[at - 1].below.push(along[at]);
    along[at].above.push(along[at - 1]);
  }
  return along;
}

function order(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((cell, at) => { cell.at = at; }));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const middle = new Map(layer.map((cell) => [cell, mean(cell[down ? "above" : "below"].map((other) => other.at), cell.at)]));
      layer.sort((one, other) => middle.get(one) - middle.get(other));
      layer.forEach((cell, at) => { cell.at = at; });
    }
  }
}

function place(layers, gap, settling) {
  let y = 0;
  for (const layer of layers) {
    let x = 0;
    for (const cell of layer) {
      cell.x = x + cell.width / 2;
      cell.y = y;
      x += cell.width + GAP_X;
    }
    y += Math.max(...layer.map((cell) => cell.height)) + gap;
  }
  for (const side of settling) {
    for (const layer of side === "below" ? [...layers].reverse() : layers) {
      const wish = layer.map((cell) => mean(cell[side].map((other) => other.x), cell.x));
      layer.forEach((cell, at) => { cell.x = at ? Math.max(wish[at], least(layer[at - 1], cell)) : wish[at]; });
      for (let at = layer.length - 2; at >= 0; at--) {
        const room = layer[at + 1].x - (layer[at + 1].width + layer[at].width) / 2 - GAP_X;
        layer[at].x = Math.min(layer[at].x, Math.max(room, wish[at]));
      }
    }
  }
  for (const layer of layers) layer.forEach((cell, at) => { if (at) cell.x = Math.max(cell.x, least(layer[at - 1], cell)); });
}

function least(before, cell) {
  return before.x + (before.width + cell.width) / 2 + GAP_X;
}

function mean(values, otherwise) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : otherwise;
}

function through(along) {
  const first = along[0], last = along[along.length - 1];
  const inner = along.slice(1, -1).map((cell) => [cell.x, cell.y]);
  return [[first.x, first.y + first.height], ...inner, [last.x, last.y]];
}
