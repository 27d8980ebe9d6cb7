/** Views: what there is, what a key answers, what that costs; and what is asked without a view. */

import { call, every, get, run, viewPath } from "./api.js";
import { bytes, count, duration, h, percent, problem, renew, several, show as put, table } from "./dom.js";
import { legend } from "./drawing.js";
import { follow } from "./graph.js";
import { lineage, outcome, read, Sampler, rowsTable, watch } from "./reading.js";
import { makeView } from "./sql.js";

export const TITLE = "Views";
const PAUSE = 2000;
/** Milliseconds between two drawings of an answer that changes all the time. */
const SAMPLE = 250;

export async function show(main, route, signal) {
  return route.path.length ? one(main, route, signal) : all(main, route, signal);
}

const link = (name) => h("a", { href: `#/views/${encodeURIComponent(name)}` }, name);

const kindOf = (view) => (view.ad_hoc ? "automatic" : view.external ? "" : "internal");
const keyOf = (view) => view.parameters.map((each) => `${each.name} ${each.kind} ?`).join(", ");

async function all(main, { query }, signal) {
  const filter = h("input", { type: "search", id: "filter", value: query.get("filter") ?? "", autocomplete: "off" });
  const list = h("div"), asked = h("div"), errors = h("div");
  main.append(h("h1", {}, "Views"), h("form", { role: "search", onsubmit: (event) => event.preventDefault() }, h("label", { for: "filter" }, "Find "), filter), errors, list, h("h2", {}, "Asked without a view"), asked);
  let views = [], status = null;
  const paint = () => {
    const wanted = filter.value.trim().toLowerCase();
    const found = views.filter((view) => !wanted || view.name.toLowerCase().includes(wanted));
    const rows = [...found.filter((view) => view.external), ...found.filter((view) => !view.external)].map((view) => {
      const told = status?.views?.[view.name] ?? (status ? {} : null);
      if (!told) return [link(view.name), kindOf(view), view.materialization, keyOf(view), "–", "–", "–", "–"];
      const reads = (told.hits ?? 0) + (told.misses ?? 0);
      return [link(view.name), kindOf(view), view.materialization, keyOf(view), told.keys ?? 0, bytes(told.bytes ?? 0), reads, percent(reads ? told.hits / reads : null)];
    });
    renew(list, table(["view", "kind", "keeps", "parameters", "keys", "memory", "reads", "hits"], rows, "Views"));
  };
  filter.addEventListener("input", () => {
    history.replaceState(null, "", filter.value ? `#/views?filter=${encodeURIComponent(filter.value)}` : "#/views");
    paint();
  });
  await every(signal, PAUSE, async () => {
    [{ views }, status] = await Promise.all([get("v1/views", { signal }), get("v1/status", { signal }).catch(() => null)]);  // Not everybody may see it.
    paint();
    if (!asked.contains(document.activeElement)) put(asked, await without(signal));
    put(errors);
  }, (error) => put(errors, problem(error)));
}

async function without(signal) {
  const { queries, missing } = await get("v1/queries", { signal }).catch((error) => ({ queries: [], missing: [{ process: "", why: error.message }] }));
  if (!queries.length) return h("p", {}, missing.length ? missing.map((each) => each.why).join("; ") : "Nothing: all SELECTs so far were answered by a view.");
  return table(["query", "calls", "ms in all", "advice", "make it a view"], queries.map((each) => [
    h("code", {}, each.query), each.calls, each.milliseconds, each.view ? h("span", {}, each.why, ": ", link(each.view)) : each.why, makeView(each.query, { signal, refresh: async () => {} }),
  ]), "SELECTs without a view");
}

// --- one view ---------------------------------------------------------------------------------------------------------

async function one(main, route, signal) {
  const { views } = await get("v1/views", { signal });
  const view = views.find((each) => each.name.toLowerCase() === route.path[0].toLowerCase());
  if (!view) {
    main.append(h("h1", {}, route.path[0]), h("p", { class: "error" }, "There is no such view. "), h("a", { href: "#/views" }, "All views"));
    return;
  }
  const stats = h("div", { "aria-live": "off" }), answer = h("div", { "aria-live": "polite" }), errors = h("div");
  const picture = h("div"), about = h("section", { "aria-live": "polite" }), plan = h("pre", { tabindex: "0" });
  main.append(
    h("p", {}, h("a", { href: "#/views" }, "All views")), h("h1", {}, view.name),
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "Try a key"), keyForm(view, route, answer, signal), answer),
      h("section", {}, h("h2", {}, "Write, and watch it change"), writeBox(), h("h2", {}, "What it costs"), stats)),
    errors, h("h2", {}, "Its dataflow"), legend(), h("div", { class: "beside" }, picture, about),
    h("details", {}, h("summary", {}, "SQL and plan"), h("pre", { tabindex: "0" }, view.sql), plan),
  );
  const failed = (error) => put(errors, problem(error));
  get(viewPath(view.name, "/explain"), { signal }).then((told) => { plan.textContent = told.explain; }, () => { plan.textContent = ""; });
  every(signal, PAUSE, async () => renew(stats, costs(await get(viewPath(view.name, "/stats"), { signal }))), failed);
  await follow(view.name, picture, about, signal, errors);
}

function costs(told) {
  const facts = [
    ["reads", `${count(told.hits + told.misses)}, of which ${percent(told.hit_rate)} hit`], ["a miss takes", told.miss_milliseconds === null ? "–" : `${told.miss_milliseconds} ms`],
    ["keys held", count(told.keys)], ["memory", `${bytes(told.bytes)} for answers, ${bytes(told.state_bytes)} below them`],
    ["nodes", `${told.nodes}, ${told.shared_nodes} shared with other views`], ["a written row makes", told.deltas_per_write === null ? "–" : `${told.deltas_per_write} deltas in its nodes`],
    ["age", told.created === null ? null : `${duration(told.age)}, since ${told.created} UTC`], ["counted for", duration(told.counted)], ["lag", told.lag === null ? null : `${told.lag} writes`], ["full because", told.reasons.join("; ")],
  ];
  return [
    h("dl", { class: "facts" }, facts.filter(([, fact]) => fact).map(([name, fact]) => [h("dt", {}, name), h("dd", {}, fact)])),
    told.readers && h("h3", {}, "Who reads it"), told.readers && (told.readers.length ? table(["account", "last asked", "watches"], told.readers.map((each) => [each.account || "everybody", each.last_read ?? "", each.live]), "Who reads it") : h("p", {}, "Nobody who is known: on a server without accounts only who watches it is.")),
  ];
}

function keyForm(view, route, answer, signal) {
  const fields = view.parameters.map((each) => h("input", { id: `p-${each.name}`, name: each.name, value: route.query.getAll(each.name).join(", "), autocomplete: "off" }));
  const params = () => Object.fromEntries(view.parameters.map((each, at) => [each.name, each.kind === "in" ? fields[at].value.split(",").map((one) => one.trim()) : fields[at].value]));
  let watching = new AbortController(), before;
  signal.addEventListener("abort", () => watching.abort());
  const shown = (rows, ...head) => {
    const from = h("div");
    const why = (at) => lineage(view.name, params(), at).then((found) => put(from, found), (error) => put(from, problem(error)));
    renew(answer, head, rowsTable(rows, `Answer of ${view.name}`, before, why), from);
    before = rows;
  };
  const failed = (error) => put(answer, problem(error));
  const look = async () => {
    watching.abort();
    watching = new AbortController();
    const mine = watching.signal;
    const query = new URLSearchParams(Object.entries(params()).flatMap(([name, value]) => [value].flat().map((each) => [name, each])));
    const here = `#/views/${encodeURIComponent(view.name)}${query.size ? `?${query}` : ""}`;
    if (here !== location.hash) history.pushState(null, "", here);  // Back leads to the key before.
    try {
      const found = await read(view.name, params(), { signal: mine });
      before = undefined;
      const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
        changes.hold(!changes.paused);
        pause.setAttribute("aria-pressed", String(changes.paused));
        pause.textContent = changes.paused ? "Go on" : "Pause";
      } }, "Pause");
      const note = h("span", { class: "hint" }, `drawn at most ${1000 / SAMPLE} times a second`);
      const line = h("p", { class: "line" }, pause, note);
      const draw = (rows, first) => shown(rows, first, line);
      const changes = new Sampler(({ rows, how }) => draw(rows, h("p", { class: "hint" }, `watched: ${how}`)), SAMPLE, mine);
      draw(found.rows, outcome(found));
      watch(view.name, params(), found.rows, (rows, how) => {
        changes.add({ rows, how });
        note.textContent = `${changes.count} ${changes.count === 1 ? "change" : "changes"} so far, drawn at most ${1000 / SAMPLE} times a second`;
      }, mine, failed);
    } catch (error) {
      if (!mine.aborted) failed(error);
    }
  };
  const evict = async () => {
    watching.abort();
    try {
      const { evicted } = await call("POST", viewPath(view.name, "/evict"), { body: { keys: [params()] } });
      put(answer, h("p", { class: "outcome evicted" }, `${several(evicted, "key")} forgotten: the next read is a miss`));
    } catch (error) {
      failed(error);
    }
  };
  const form = h("form", { class: "line", onsubmit: (event) => { event.preventDefault(); look(); } },
    view.parameters.map((each, at) => [h("label", { for: `p-${each.name}` }, `${each.name} ${each.kind}`, h("span", { class: "hint" }, ` ${each.type}`)), fields[at]]),
    h("button", {}, "Read"), view.materialization !== "full" && h("button", { type: "button", onclick: evict }, "Evict"));
  if (view.parameters.length && view.parameters.every((each) => route.query.has(each.name))) look();
  return form;
}

function writeBox() {
  const sql = h("textarea", { rows: 3, "aria-label": "A statement that writes", spellcheck: "false", placeholder: "INSERT INTO votes VALUES (3, 7)" });
  const told = h("p", { role: "status" });
  const write = async (event) => {
    event.preventDefault();
    try {
      const { results } = await run(sql.value);
      put(told, `${several(results.reduce((sum, each) => sum + each.rows_affected, 0), "row")} written`);
    } catch (error) {
      put(told, problem(error));
    }
  };
  return h("form", { onsubmit: write }, sql, h("button", {}, "Write"), told);
}
