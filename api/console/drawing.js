/**
 * A dataflow as a drawing: rows enter at the tables on top and flow down to the view's reader.
 *
 * Colour says what a node keeps, and among full nodes only the *cause* is marked, not all that are full because of it.
 */

import { bytes, count, h, s, several } from "./dom.js";
import { layered } from "./layout.js";

const WIDTH = 190;
const HEIGHT = 46;
const LETTERS = 25;
/** Between tables and views that stand beside each other. */
const ASIDE = 220;
const BLOCKED = / is full below it$/;
const LIT_SECONDS = 1.6;

/** Whether a node's reason is the cause, and not that something below it is full. */
export const isCause = (reason) => Boolean(reason) && !BLOCKED.test(reason);

/** Few fonts have the sign of an outer join. */
const cut = (text, letters = LETTERS) => {
  const shown = text.replace("⟕", "left ⋈");
  return shown.length > letters ? `${shown.slice(0, letters - 1)}…` : shown;
};

/** @param {any} node a node of `GET /v1/graph` */
export function boxOf(node) {
  const kept = node.table ? "base" : node.materialization;
  return {
    id: String(node.node), title: node.table ?? node.view ?? node.text,
    note: node.table ? "base table" : kept === "none" ? "keeps nothing" : `${node.state.split(":")[0] || kept}, ${several(node.keys, "key")}`,
    kind: `${kept}${isCause(node.reason) ? " cause" : ""}${node.view ? " reader" : ""}${node.shared ? " shared" : ""}`,
    deltas: node.deltas, about: node,
  };
}

/**
 * A drawing with boxes that can be reached and opened by the keyboard.
 * @param {{id: string, title: string, note: string, kind: string, deltas?: number, about: any}[]} boxes
 * @param {{from: string, to: string}[]} edges
 * @param {{label: string, open?: (about: any) => void, across?: boolean}} options `across`: from left to right
 */
export function draw(boxes, edges, { label, open, across }) {
  const plan = across ? aside(boxes, edges) : layered(boxes.map((box) => ({ id: box.id, width: WIDTH, height: HEIGHT })), edges);
  const lines = plan.lines.map(({ edge, points }) => {
    const path = s("path", { class: "edge", d: curve(points, across) });
    const at = points[Math.floor((points.length - 1) / 2)], next = points[Math.floor((points.length - 1) / 2) + 1];
    const rate = s("text", { class: "rate", x: (at[0] + next[0]) / 2 + 4, y: (at[1] + next[1]) / 2 + 4 });
    return { edge, path, rate };
  });
  const shown = new Map(boxes.map((box) => [box.id, drawn(box, plan.places.get(box.id), open)]));
  const svg = s("svg", {
    viewBox: `-4 -4 ${plan.width + 8} ${plan.height + 8}`, width: plan.width + 8, height: plan.height + 8, role: "group", "aria-label": label,
  }, lines.map(({ path }) => path), [...shown.values()], lines.map(({ rate }) => rate));
  const fit = h("button", { type: "button", class: "fit", "aria-pressed": "false", onclick: () => {
    fit.setAttribute("aria-pressed", String(svg.classList.toggle("whole")));
  } }, "Whole picture");
  const element = h("div", { class: "framed" }, fit, h("div", { class: "drawing scroll", tabindex: "0", role: "region", "aria-label": label }, svg));
  let before = new Map(boxes.map((box) => [box.id, box.deltas ?? 0])), then = performance.now();

  /** Lights up what has emitted deltas since the last time, and writes deltas a second on the edges. @param {{id: string, deltas?: number, note: string}[]} now */
  function update(now) {
    const seconds = Math.max((performance.now() - then) / 1000, 0.001);
    then = performance.now();
    const flowed = new Map(now.map((box) => [box.id, Math.max(0, (box.deltas ?? 0) - (before.get(box.id) ?? 0))]));
    before = new Map(now.map((box) => [box.id, box.deltas ?? 0]));
    for (const box of now) {
      const group = shown.get(box.id);
      if (!group) continue;
      group.querySelector(".note").textContent = cut(box.note, LETTERS + 4);
      light(group, flowed.get(box.id) > 0);
    }
    for (const { edge, path, rate } of lines) {
      const deltas = flowed.get(edge.from) ?? 0;
      light(path, deltas > 0);
      rate.textContent = deltas ? `${count(deltas / seconds)}/s` : "";
    }
    return [...flowed.values()].filter((deltas) => deltas > 0).length;
  }

  return { element, update };
}

function light(element, on) {
  element.classList.toggle("lit", on);
  if (on) setTimeout(() => element.classList.remove("lit"), LIT_SECONDS * 1000);
}

function drawn(box, { x, y }, open) {
  const act = open && (() => open(box.about));
  const group = s("g", {
    class: `box ${box.kind}`, transform: `translate(${x - WIDTH / 2} ${y})`, tabindex: open ? "0" : undefined,
    role: open ? "button" : "img", "aria-label": `${box.title}, ${box.note}`, onclick: act,
    onkeydown: act && ((event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } }),
  });
  group.append(
    s("title", {}, box.title), s("rect", { width: WIDTH, height: HEIGHT, rx: 6 }),
    s("text", { class: "name", x: 10, y: 19 }, cut(box.title)), s("text", { class: "note", x: 10, y: 36 }, cut(box.note, LETTERS + 4)),
  );
  return group;
}

/** The same layers from left to right. */
function aside(boxes, edges) {
  const { width, height, places, lines } = layered(boxes.map((box) => ({ id: box.id, width: HEIGHT, height: WIDTH })), edges, { gap: ASIDE, settling: ["below"] });
  return {
    width: height, height: width,
    places: new Map([...places].map(([id, { x, y }]) => [id, { x: y + WIDTH / 2, y: x - HEIGHT / 2 }])),
    lines: lines.map(({ edge, points }) => ({ edge, points: points.map(([x, y]) => [y, x]) })),
  };
}

function curve(points, across) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let at = 1; at < points.length; at++) {
    const [x, y] = points[at], [fromX, fromY] = points[at - 1];
    const bend = across ? [(fromX + x) / 2, fromY, (fromX + x) / 2, y] : [fromX, (fromY + y) / 2, x, (fromY + y) / 2];
    path += ` C${bend.join(" ")} ${x} ${y}`;
  }
  return path;
}

/** What is known of a node, in words. @param {any} node */
export function details(node) {
  const facts = [
    ["operator", node.text], ["keeps", node.state || "nothing: a look-up passes through"], ["why full", node.reason],
    ["shards", node.sharding], ["domains", node.stands_in.join(", ")], ["keys", count(node.keys)], ["state", bytes(node.bytes)],
    ["deltas so far", count(node.deltas)], ["columns", node.columns.map((column) => `${column.name} ${column.type}`).join(", ")],
  ];
  return h("dl", { class: "facts" }, facts.filter(([, fact]) => fact).map(([name, fact]) => [h("dt", {}, name), h("dd", {}, fact)]));
}

export function legend() {
  const kinds = [["base", "base table"], ["partial", "partial: the keys that were asked for"], ["full", "full"], ["full cause", "full, and the cause of it"], ["none", "keeps nothing"], ["shared", "dashed: other views use it, too"]];
  return h("ul", { class: "legend", "aria-label": "Colours" }, kinds.map(([kind, name]) => h("li", {}, h("span", { class: `dot ${kind}` }), name)));
}

/**
 * The tree that EXPLAIN prints, as boxes and edges: `└─ [3] ⋈ id = story_id` below `[4] π …`.
 * @param {string[]} lines
 */
export function treeOf(lines) {
  const boxes = [], edges = [], above = [], known = new Map();
  for (const line of lines) {
    const [, indent, number, rest] = line.match(/^((?:[│├└ ][─ ] )*)(?:\[(\d+)\] )?(.*)$/);
    const depth = indent.length / 3;
    const [title, ...more] = rest.split(/ {2,}/);
    if (depth > 0 && above.length < depth) continue;
    const again = number !== undefined && known.get(number);
    const id = again || String(boxes.length);
    if (!again) {
      const note = more.join(" ");
      const kind = /^base/.test(note) ? "base" : /^full/.test(note) ? "full" : /^partial/.test(note) ? "partial" : "none";
      boxes.push({ id, title, note: note || "keeps nothing", kind: title.startsWith("reader ") ? `${kind} reader` : kind, about: line });
      if (number !== undefined) known.set(number, id);
    }
    above.length = depth;
    above.push(id);
    if (depth) edges.push({ from: id, to: above[depth - 1] });
  }
  return { boxes, edges };
}
