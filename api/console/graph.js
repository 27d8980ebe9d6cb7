/** The joint graph of all views: a box for each table and view, and one view's nodes when it is opened. */

import { get, every } from "./api.js";
import { bytes, count, h, problem, several, show as put } from "./dom.js";
import { boxOf, details, draw, isCause, legend } from "./drawing.js";

export const TITLE = "Graph";
const PAUSE = 2000;
const MOST = 60;
/** So many boxes are drawn at once: more are no picture. Where there are more views, those of the same tables are one. */

export async function show(main, route, signal) {
  const [view] = route.path;
  if (view) return one(main, view, signal);
  return all(main, route, signal);
}

async function all(main, { query, go }, signal) {
  const filter = h("input", { type: "search", id: "filter", value: query.get("filter") ?? "", placeholder: "name of a view or table", autocomplete: "off" });
  const of = query.getAll("of"), from = Math.max(0, Number(query.get("from")) || 0);
  const told = h("p", { role: "status" }), picture = h("div"), errors = h("div"), building = h("div");
  main.append(
    h("h1", {}, "The dataflow of all views"),
    h("p", {}, "Tables on the left, and the views that read them. Open a view to see its nodes. Views that look the same below share their nodes."),
    h("form", { role: "search", onsubmit: (event) => event.preventDefault() }, h("label", { for: "filter" }, "Find "), filter),
    query.has("of") ? h("p", {}, `Only views of ${of.join(", ")}. `, h("a", { href: "#/graph" }, "All views")) : "",
    told, building, legend(), errors, picture,
  );
  let drawn = null, shown = "", current = null;
  const paint = () => {
    const wanted = filter.value.trim().toLowerCase();
    const part = chosen(current, wanted, query.has("of") ? of : null, from);
    const { boxes, edges } = boxesOf(part);
    const same = JSON.stringify([boxes.map((box) => [box.id, box.kind]), edges]);
    if (same !== shown) {
      shown = same;
      drawn = draw(boxes, edges, { label: "Tables and views", across: true, open: (about) => go(about.views ? addressOf(about.of) : about.view ? `#/graph/${encodeURIComponent(about.view)}` : `#/graph?filter=${encodeURIComponent(about.table)}`) });
      put(picture, drawn.element);
    } else drawn.update(boxes);
    const last = part.from + part.drawn, more = part.found > part.drawn;
    put(told, `${part.views} of ${current.views.length} views${part.grouped ? `, as ${part.found} groups of the same tables` : ""}${more ? `; ${part.from + 1} to ${last} are drawn ` : ""}`,
      more && part.from > 0 && h("a", { href: addressOf(of, part.from - MOST) }, "Back"), " ", more && last < part.found && h("a", { href: addressOf(of, last) }, "Further"));
  };
  filter.addEventListener("input", () => {
    history.replaceState(null, "", filter.value ? `#/graph?filter=${encodeURIComponent(filter.value)}` : "#/graph");
    if (current) paint();
  });
  await every(signal, PAUSE, async () => {
    current = await get("v1/graph?by=view", { signal });
    paint();
    const { migrations } = await get("v1/migrations", { signal }).catch(() => ({ migrations: [] }));
    const under = migrations.filter((each) => each.state === "running" || each.state === "queued");
    put(building, under.map((each) => h("p", { class: "building" }, `being built: ${each.sql.slice(0, 80)} (${each.step}) `, h("progress", { value: each.progress, max: 1, "aria-label": "progress" }))));
    put(errors);
  }, (error) => put(errors, problem(error)));
}

/** @param {string[]} of @param {number} [from] */
function addressOf(of, from = 0) {
  const query = new URLSearchParams(of.map((table) => ["of", table]));
  if (from > 0) query.append("from", String(from));
  return `#/graph${query.size ? `?${query}` : ""}`;
}

/**
 * What is drawn: views, or groups of those that read the same tables, at most MOST from `from` on, and their tables.
 * @param {any} graph @param {string} wanted @param {string[] | null} of the tables of the only group @param {number} from
 */
function chosen(graph, wanted, of, from) {
  const reads = new Map(graph.views.map((view) => [view.view, []]));
  for (const { table, view } of graph.edges) reads.get(view)?.push(table);
  const key = (tables) => JSON.stringify([...tables].sort());
  const only = of && key(of);
  const views = graph.views.filter((view) => {
    const tables = reads.get(view.view);
    if (only !== null && key(tables) !== only) return false;
    return !wanted || view.view.toLowerCase().includes(wanted) || tables.some((table) => table.toLowerCase().includes(wanted));
  });
  const groups = new Map();
  for (const view of views) {
    const tables = reads.get(view.view);
    const own = groups.get(key(tables)) ?? [];
    groups.set(key(tables), own);
    own.push(view);
  }
  const grouped = views.length > MOST && groups.size > 1;
  const found = grouped ? [...groups].sort(([, one], [, other]) => other.length - one.length).map(([name, own]) => groupOf(JSON.parse(name), own)) : views.map((view) => ({ ...view, of: reads.get(view.view) }));
  const start = from < found.length ? from : 0;
  const drawn = found.slice(start, start + MOST);
  const tables = new Set(drawn.flatMap((each) => each.of).slice(0, 2 * MOST));
  return { boxes: drawn, tables: graph.tables.filter((each) => tables.has(each.table)), found: found.length, views: views.length, grouped, from: start, drawn: drawn.length };
}

/** Views of the same tables as one. A group of one view is that view. */
function groupOf(of, views) {
  if (views.length === 1) return { ...views[0], of };
  const sum = (size) => views.reduce((all, view) => all + view[size], 0);
  const kinds = [...new Set(views.map((view) => view.materialization))];
  return { views: views.length, of, materialization: kinds.length === 1 ? kinds[0] : "mixed", reasons: views.flatMap((view) => view.reasons), nodes: sum("nodes"), bytes: sum("bytes"), deltas: sum("deltas") };
}

function boxesOf({ tables, boxes: found }) {
  const id = (each) => `v ${each.view ?? JSON.stringify(each.of)}`;
  const known = new Set(tables.map((each) => each.table));
  const boxes = [
    ...tables.map((each) => ({ id: `t ${each.table}`, title: each.table, note: "base table", kind: "base", deltas: each.deltas, about: each })),
    ...found.map((each) => ({
      id: id(each), title: each.view ?? `${count(each.views)} views of ${each.of.join(", ")}`, note: `${each.materialization}, ${several(each.nodes, "node")}, ${bytes(each.bytes)}`,
      kind: `${each.materialization}${each.reasons.some(isCause) ? " cause" : ""} reader`, deltas: each.deltas, about: each,
    })),
  ];
  return { boxes, edges: found.flatMap((each) => each.of.filter((table) => known.has(table)).map((table) => ({ from: `t ${table}`, to: id(each) }))) };
}

async function one(main, view, signal) {
  const errors = h("div"), picture = h("div"), about = h("section", { "aria-live": "polite" });
  const name = encodeURIComponent(view);
  main.append(
    h("p", {}, h("a", { href: "#/graph" }, "All views")),
    h("h1", {}, view),
    h("p", {}, h("a", { href: `#/views/${name}` }, "Its answers"), ". Deltas a second stand on the edges; what has just changed lights up."),
    legend(), errors, h("div", { class: "beside" }, picture, about),
  );
  await follow(view, picture, about, signal, errors);
}

/**
 * Draws a view's nodes and keeps them right until `signal`. @param {string} view @param {Element} picture
 * @param {Element} about @param {AbortSignal} signal @param {Element} errors
 */
export async function follow(view, picture, about, signal, errors) {
  const look = pictureOf(view, picture, about);
  await every(signal, PAUSE, async () => {
    await look(signal);
    put(errors);
  }, (error) => put(errors, problem(error)));
}

/**
 * A view's nodes as a drawing: each look at them lights up what has changed since the last one, and says how many that are.
 * @param {string} view @param {Element} picture @param {Element} about where an opened node is described
 * @returns {(signal: AbortSignal) => Promise<number>}
 */
export function pictureOf(view, picture, about) {
  let drawn = null, shown = "";
  return async (signal) => {
    const { nodes, edges } = await get(`v1/graph?view=${encodeURIComponent(view)}`, { signal });
    const boxes = nodes.map(boxOf), same = boxes.map((box) => box.id).join();
    if (drawn && same === shown) return drawn.update(boxes);
    shown = same;
    drawn = draw(boxes, edges.map((edge) => ({ from: String(edge.from), to: String(edge.to) })), {
      label: `The dataflow of ${view}`, open: (node) => put(about, h("h2", {}, node.view ?? node.table ?? node.operator), details(node)),
    });
    put(picture, boxes.length ? drawn.element : h("p", {}, "No nodes yet: they are made when the view is first read."));
    return 0;
  };
}
