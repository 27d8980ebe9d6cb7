/** The joint graph of all views: a box for each table and view, and one view's nodes when it is opened. */

import { get, every } from "./api.js";
import { bytes, count, h, problem, show as put } from "./dom.js";
import { boxOf, details, draw, isCause, legend } from "./drawing.js";

export const TITLE = "Graph";
const PAUSE = 2000;
const MOST = 60;
/** So many views are drawn at once: more are no picture. */

export async function show(main, route, signal) {
  const [view] = route.path;
  if (view) return one(main, view, signal);
  return all(main, route, signal);
}

async function all(main, { query, go }, signal) {
  const filter = h("input", { type: "search", id: "filter", value: query.get("filter") ?? "", placeholder: "name of a view or table", autocomplete: "off" });
  const told = h("p", { role: "status" }), picture = h("div"), errors = h("div"), building = h("div");
  main.append(
    h("h1", {}, "The dataflow of all views"),
    h("p", {}, "Tables on the left, and the views that read them. Open a view to see its nodes. Views that look the same below share their nodes."),
    h("form", { role: "search", onsubmit: (event) => event.preventDefault() }, h("label", { for: "filter" }, "Find "), filter),
    told, building, legend(), errors, picture,
  );
  let drawn = null, shown = "", current = null;
  const paint = () => {
    const wanted = filter.value.trim().toLowerCase();
    const part = chosen(current, wanted);
    const { boxes, edges } = boxesOf(part);
    const same = JSON.stringify([boxes.map((box) => [box.id, box.kind]), edges]);
    if (same !== shown) {
      shown = same;
      drawn = draw(boxes, edges, { label: "Tables and views", across: true, open: (about) => go(about.view ? `#/graph/${encodeURIComponent(about.view)}` : `#/graph?filter=${encodeURIComponent(about.table)}`) });
      put(picture, drawn.element);
    } else drawn.update(boxes);
    const more = part.more ? `; the first ${MOST} are drawn, find others by name` : "";
    told.textContent = `${part.found} of ${current.views.length} views${more}`;
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

function chosen(graph, wanted) {
  const reads = new Map(graph.views.map((view) => [view.view, []]));
  for (const { table, view } of graph.edges) reads.get(view)?.push(table);
  const found = graph.views.filter((view) => !wanted || view.view.toLowerCase().includes(wanted) || reads.get(view.view).some((table) => table.toLowerCase().includes(wanted)));
  const views = found.slice(0, MOST);
  const tables = new Set(views.flatMap((view) => reads.get(view.view)));
  return {
    views, tables: graph.tables.filter((each) => tables.has(each.table)), found: found.length, more: found.length > MOST,
    edges: graph.edges.filter((edge) => views.some((view) => view.view === edge.view)),
  };
}


function boxesOf({ tables, views, edges }) {
  const boxes = [
    ...tables.map((each) => ({ id: `t ${each.table}`, title: each.table, note: "base table", kind: "base", deltas: each.deltas, about: each })),
    ...views.map((each) => ({
      id: `v ${each.view}`, title: each.view, note: `${each.materialization}, ${count(each.nodes)} nodes, ${bytes(each.bytes)}`,
      kind: `${each.materialization}${each.reasons.some(isCause) ? " cause" : ""} reader`, deltas: each.deltas, about: each,
    })),
  ];
  return { boxes, edges: edges.map((edge) => ({ from: `t ${edge.table}`, to: `v ${edge.view}` })) };
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
  let drawn = null, shown = "";
  await every(signal, PAUSE, async () => {
    const graph = await get(`v1/graph?view=${encodeURIComponent(view)}`, { signal });
    const boxes = graph.nodes.map(boxOf);
    const same = boxes.map((box) => box.id).join();
    if (!drawn || same !== shown) {
      shown = same;
      drawn = draw(boxes, edgesOf(graph), { label: `The dataflow of ${view}`, open: (node) => put(about, h("h2", {}, node.view ?? node.table ?? node.operator), details(node)) });
      put(picture, boxes.length ? drawn.element : h("p", {}, "No nodes yet: they are made when the view is first read."));
    } else drawn.update(boxes);
    put(errors);
  }, (error) => put(errors, problem(error)));
}

/** @param {any} graph */
export function edgesOf(graph) {
  return graph.edges.map((edge) => ({ from: String(edge.from), to: String(edge.to) }));
}
