/** What an operator looks at: how much is asked, what is wrong, who serves what, and what is under way. */

import { call, every, get, run } from "./api.js";
import { bytes, count, duration, h, percent, problem, renew as put, several, table } from "./dom.js";

export const TITLE = "Operate";
const PAUSE = 2000;
const BUCKET = /^headrace_http_seconds_bucket\{le="([^"]+)",route="([^"]*)"\} (\S+)$/;

export async function show(main, route, signal) {
  const parts = Object.fromEntries(["overview", "alarms", "migrations", "running", "workers", "archive", "backups", "drills", "sessions", "accounts"].map((name) => [name, h("div", { id: name })]));
  const wrong = h("div"), acted = h("div");
  main.append(h("h1", {}, "Operate"), wrong, acted, parts.alarms, parts.overview,
    h("h2", {}, "Migrations"), parts.migrations, h("h2", {}, "Running statements"), parts.running,
    h("h2", {}, "Workers and shards"), parts.workers, h("h2", {}, "Archive"), parts.archive, h("h2", {}, "Back-ups"), parts.backups,
    h("h2", {}, "Drills"), parts.drills, h("h2", {}, "Sessions"), parts.sessions, h("h2", {}, "Accounts"), parts.accounts);
  /** Does what a button says, and shows why it could not. @param {string} method @param {string} path */
  const act = async (method, path) => {
    put(acted);
    return call(method, path, method === "POST" ? { body: {} } : {}).catch((error) => put(acted, problem(error)));
  };
  /** Whoever may not see a part is told there. @param {string} name @param {number} pause @param {string} path @param {(found: any) => any} shown */
  const follow = (name, pause, path, shown) => every(signal, pause, async () => put(parts[name], shown(await get(path, { signal }))), (error) => put(parts[name], problem(error)));
  let before = null;
  every(signal, PAUSE, async () => {
    const [status, metrics] = await Promise.all([get("v1/status", { signal }), get("metrics", { signal, text: true })]);
    const now = { at: performance.now(), counters: status.counters, buckets: bucketsOf(metrics), errors: errorsOf(metrics) };
    put(parts.overview, overview(status, now, before));
    put(parts.alarms, alarms(status));
    put(parts.workers, workers(status));
    before = now;
    put(wrong);
  }, (error) => put(wrong, problem(error)));
  const said = h("p", { role: "status" });
  const archiveNow = async () => {
    const done = await act("POST", "v1/archive");
    if (done) put(said, `archived up to ${done.time}`);
  };
  follow("migrations", PAUSE / 2, "v1/migrations", (found) => migrations(found, act));
  follow("running", PAUSE / 2, "v1/queries/running", (found) => running(found, act));
  follow("archive", 2 * PAUSE, "v1/archive", (found) => [archive(found, archiveNow), said]);
  follow("backups", 10 * PAUSE, "v1/backups", backups);
  follow("sessions", 2 * PAUSE, "v1/sessions", sessions);
  let drilled = "";
  every(signal, 5 * PAUSE, async () => {
    const found = await get("v1/drills", { signal });
    if (JSON.stringify(found) === drilled) return;
    drilled = JSON.stringify(found);
    put(parts.drills, drills(found.drills, signal));
  }, (error) => put(parts.drills, problem(error)));
  await accounts(parts.accounts, signal);
}

// --- overview ---------------------------------------------------------------------------------------------------------

function bucketsOf(metrics) {
  const found = new Map();
  for (const line of metrics.split("\n")) {
    const [, bound, , number] = line.match(BUCKET) ?? [];
    if (bound) found.set(bound === "+Inf" ? Infinity : Number(bound), (found.get(bound === "+Inf" ? Infinity : Number(bound)) ?? 0) + Number(number));
  }
  return found;
}

function errorsOf(metrics) {
  return [...metrics.matchAll(/^headrace_http_requests_total\{route="([^"]*)",status="(5\d\d)"\} (\S+)$/gm)].map(([, route, status, number]) => [route, status, Number(number)]);
}

/** The bound below which 99 of 100 answers of the interval were. */
function p99(now, before) {
  const bounds = [...now.keys()].sort((one, other) => one - other);
  const since = (bound) => now.get(bound) - (before?.get(bound) ?? 0);
  const all = since(Infinity);
  const bound = all > 0 ? bounds.find((each) => since(each) >= 0.99 * all) : undefined;
  return bound === undefined ? "–" : bound === Infinity ? "> 10 s" : `≤ ${bound * 1000} ms`;
}

function overview(status, now, before) {
  const seconds = before ? (now.at - before.at) / 1000 : 0;
  const grown = (name) => (now.counters[name] ?? 0) - (before?.counters[name] ?? 0);
  const rate = (number) => (before ? `${count(number / seconds)}/s` : "…");
  const { memory } = status;
  const most = (found) => Math.max(0, ...found.map((each) => each.lag ?? 0));
  const lag = `${several(most(Object.values(status.views ?? {})), "write")}, ${several(most(status.links ?? []), "packet")}`;
  const reads = grown("hits") + grown("misses"), all = now.counters.hits + now.counters.misses;
  const failures = now.errors.reduce((sum, [, , number]) => sum + number, 0);
  const tile = (name, value, more) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, more));
  return [
    h("dl", { class: "tiles" },
      tile("reads", rate(reads)), tile("writes", rate(grown("writes"))), tile("reads that hit", percent(before && reads ? grown("hits") / reads : all ? now.counters.hits / all : null)),
      tile("99 of 100 HTTP answers in", p99(now.buckets, before?.buckets)), tile("views lag by at most", lag), tile("evictions", rate(grown("evictions"))),
      tile("memory", `${bytes(memory.accounted)} of ${bytes(memory.limit)}`, h("meter", { min: 0, max: memory.limit || 1, high: 0.95 * memory.limit, value: memory.accounted, "aria-label": "memory" })),
      tile("up for", duration(status.uptime)), tile("version", status.version)),
    failures > 0 && h("details", {}, h("summary", {}, `${several(failures, "answer")} with an error of the server`), table(["route", "status", "answers"], now.errors, "Errors by route")),
  ];
}

function alarms(status) {
  const found = [];
  const look = (value, path) => {
    if (!value || typeof value !== "object") return;
    for (const [name, each] of Object.entries(value)) {
      if (/alarm/.test(name) && typeof each === "string" && each) found.push(`${path}${name}: ${each}`);
      else if (/alarms$/.test(name) && Array.isArray(each)) found.push(...each.map((one) => (typeof one === "string" ? one : JSON.stringify(one))));
      else look(each, `${path}${name} `);
    }
  };
  if (status.health !== "ok") found.push(status.health);
  look({ ...status, health: undefined }, "");
  if (status.building) found.push(`being built after the start: ${JSON.stringify(status.building)}`);
  return found.length ? h("ul", { class: "alarms", role: "alert" }, [...new Set(found)].map((each) => h("li", {}, each))) : h("p", { class: "good" }, "No alarm.");
}

/** How many of a list went wrong, which opens what. @param {[string, string][]} found @param {string} word */
function errors(found, word) {
  return found.length > 0 && fold(h("span", { class: "bad" }, `${found.length} ${word}`), () => h("ul", { class: "errors" }, found.map(([name, why]) => h("li", {}, h("code", {}, name), ` ${why}`))), word);
}

/** What is open stays open, though it is made anew again and again. @param {import("./dom.js").Child} title @param {() => Element} made @param {string} [name] */
function fold(title, made, name = String(title)) {
  return h("details", { open: opened.has(name), ontoggle: (event) => { opened[event.target.open ? "add" : "delete"](name); } }, h("summary", {}, title), made());
}

/** What was opened, of lists that are made anew again and again. */
const opened = new Set();

// --- what is under way -------------------------------------------------------------------------------------------------

function migrations({ migrations: found }, act) {
  if (!found.length) return h("p", {}, "None since the start.");
  const wrong = found.filter((each) => each.state === "failed" && each.error);
  const rows = found.slice(0, 30).map((each) => {
    const goes = each.state === "running" || each.state === "queued";
    const cancel = () => act("DELETE", `v1/migrations/${each.id}`);
    const left = each.seconds_left ? `, ${count(each.seconds_left)} s left` : "";
    return [
      each.id, h("code", {}, each.sql.replace(/\s+/g, " ").slice(0, 90)), each.state,
      goes ? h("span", {}, h("progress", { value: each.progress, max: 1, "aria-label": `progress of ${each.id}` }), ` ${percent(each.progress)}${left}, ${each.step}`) : each.error ? fold(each.error.code, () => h("p", {}, each.error.message, each.error.hint && h("span", { class: "hint" }, ` ${each.error.hint}`)), each.id) : "",
      goes ? h("button", { type: "button", onclick: cancel, "aria-label": `Cancel migration ${each.id}` }, "Cancel") : "",
    ];
  });
  return [errors(wrong.map((each) => [each.id, `${each.error.code}: ${each.error.message}`]), "failed"), table(["id", "statements", "state", "progress", "cancel"], rows, "Migrations")];
}

function running({ running: found, missing }, act) {
  const silent = missing.map((each) => h("p", { class: "error" }, `${each.process}: ${each.why}`));
  if (!found.length) return [h("p", {}, "None now."), silent];
  const kill = (id) => act("DELETE", `v1/queries/running/${id}`);
  return [table(["id", "statement", "seconds", "process", "stop"], found.map((each) => [
    each.id, h("code", {}, each.sql.slice(0, 120)), each.seconds, each.process ?? "here", h("button", { type: "button", onclick: () => kill(each.id), "aria-label": `Stop statement ${each.id}` }, "Stop"),
  ]), "Running statements"), silent];
}

// --- who serves -----------------------------------------------------------------------------------------------------

function workers(status) {
  const parts = [];
  if (status.cluster) {
    const { leader, epoch, zookeeper, unplaced = [], draining = [] } = status.cluster;
    parts.push(h("p", {}, `Leader ${leader?.name ?? "none"}, epoch ${epoch ?? "–"}, ZooKeeper ${zookeeper}; not placed: ${unplaced.join(", ") || "none"}; draining: ${draining.join(", ") || "none"}.`));
  }
  if (status.workers) {
    parts.push(table(["worker", "health", "process", "address", "shards", "memory", "resident"], status.workers.map((each) => [
      each.worker, h("span", { class: each.health === "ok" ? "good" : "bad" }, each.health), each.pid, `${each.host}:${each.port}`, each.domains.join(", "), `${bytes(each.memory_accounted)} of ${bytes(each.memory_limit)}`, bytes(each.memory_resident),
    ]), "Workers"));
  }
  parts.push(table(["domain", "worker", "nodes", "state", "reads that wait", "upqueries under way"], [...status.domains].sort((one, other) => one.domain - other.domain).map((each) => [each.domain, each.worker ?? "this process", each.nodes, bytes(each.bytes), each.parked, each.pending]), "Domains"));
  return parts;
}

function archive({ archives }, now) {
  if (!archives.length) return h("p", {}, "There is none: start the server with ", h("code", {}, "--archive"), ".");
  return [archives.map(archiveOf), h("button", { type: "button", onclick: now }, "Archive now")];
}

function archiveOf(each) {
  const shards = Object.entries(each.shards), sum = (name) => shards.reduce((all, [, one]) => all + one[name], 0);
  const behind = sum("behind"), where = each.worker ? `${each.worker}: ` : "";
  return [
    h("p", {}, `${where}last at ${each.last ?? "no time yet"}, every ${duration(each.interval)}, back to any moment of the last ${duration(each.retention)}; ${bytes(sum("bytes"))} in ${several(sum("segments"), "file")} at `, h("code", {}, each.url), ". ",
      h("span", { class: behind ? "bad" : "good" }, behind ? `Not in it yet: ${several(behind, "write")}, which a lost disk takes with it.` : "All writes are in it.")),
    errors(each.alarms.map((alarm) => [alarm.of, `${alarm.error} (since ${alarm.since}, ${count(alarm.times)} times)`]), `alarms of ${where}the archive`),
    fold(`${where}${several(shards.length, "shard")}`, () => table(["shard", "archived up to write", "not archived", "from write", "files", "rows", "size"],
      shards.map(([name, one]) => [name, one.position, one.behind, one.begin, one.segments, one.rows, bytes(one.bytes)]), `Archived shards ${where}`)),
  ];
}

function backups({ known, backups: found }) {
  if (!known) return h("p", {}, h("code", {}, "headrace backup backups/monday"), " makes one; those of a directory or URL are listed here where the server is started with ", h("code", {}, "--backups backups"), ".");
  if (!found.length) return h("p", {}, "None yet: ", h("code", {}, "headrace backup"), " makes one.");
  const whole = (each) => h("span", { class: each.damage ? "bad" : "good" }, each.damage ?? "whole");
  return table(["back-up", "of", "writes in it", "shards", "files", "state"], found.map((each) => [each.backup, each.time ?? "", each.writes ?? "", each.shards ?? "", each.files ?? "", whole(each)]), "Back-ups");
}

/** Each with its goals, and its picture at a click. */
function drills(found, signal) {
  if (!found.length) return h("p", {}, "None: ", h("code", {}, "headrace drill all --out drills"), ", and the server with ", h("code", {}, "--drills drills"), ".");
  const missed = found.filter((each) => !each.held).map((each) => [each.drill, each.says]);
  return [errors(missed, "did not hold"), found.map((each) => {
    const picture = h("div");
    const open = async (event) => {
      if (!event.target.open || picture.firstChild) return;
      try {
        const image = await get(`v1/drills/${encodeURIComponent(each.drill)}/picture`, { signal, blob: true });
        put(picture, h("img", { src: await dataOf(image), alt: `Requests and faults of ${each.drill} over time` }));
      } catch (error) {
        put(picture, problem(error));
      }
    };
    const goals = each.goals.map((goal) => [goal.goal, goal.limit, goal.seen, goal.met ? "yes" : "no"]);
    return h("details", { ontoggle: each.picture && open }, h("summary", {}, h("span", { class: each.held ? "good" : "bad" }, each.held ? "held" : "lost"), ` ${each.drill}: ${each.says} (${each.time})`),
      goals.length > 0 && table(["goal", "limit", "seen", "met?"], goals, `Goals of ${each.drill}`), picture);
  })];
}

/** An image as an address: none is asked for with a key by itself. @param {Blob} image @returns {Promise<string>} */
function dataOf(image) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(image);
  });
}

function sessions({ sessions: found }) {
  if (!found.length) return h("p", {}, "None is known here: the server has no accounts.");
  return table(["account", "by", "credentials", "expires", "read last", "watches"], found.map((each) => [each.account, each.way, each.credentials, each.expires ?? "never", each.last_read ?? "", each.live]), "Sessions");
}

/** All, for who may see them; else one's own rights. */
async function accounts(place, signal) {
  try {
    const { accounts: found } = await get("v1/accounts", { signal });
    const ways = (each) => (each.role ? "role" : [...each.ways, ...(each.keys.length ? [`${each.keys.length} keys`] : [])].join(", ") || "none");
    if (!found.length) return put(place, h("p", {}, "The server has none: ", h("code", {}, "headrace admin NAME"), " makes the first."));
    const rows = found.map((each) => [each.account, ways(each), each.locked ? "locked" : each.expires ?? "", h("details", {}, h("summary", {}, `${each.grants.length} ${each.grants.length === 1 ? "grant" : "grants"}`), h("pre", { tabindex: "0" }, each.grants.join("\n")))]);
    put(place, table(["account", "enters by", "until", "rights"], rows, "Accounts"), h("p", {}, "They are changed by SQL: CREATE USER, GRANT, CREATE API KEY."));
  } catch (error) {
    if (signal.aborted) return;
    const lists = await Promise.all(["SHOW GRANTS", "SHOW API KEYS"].map((sql) => run(sql).then(({ results: [shown] }) => ({ sql, shown }), (each) => ({ sql, error: each }))));
    put(place, h("p", {}, error.message), lists.map(({ sql, shown, error: refused }) => [h("h3", {}, sql), refused ? h("p", {}, refused.message) : table(shown.columns.map((each) => each.name), shown.rows, sql)]));
  }
}
