/** Reads one key of a view, and keeps what is shown right: by its live stream, else by asking again. */

import { account, address, get, viewPath } from "./api.js";
import { h, several, table, text } from "./dom.js";
import { connect } from "./headrace.js";

const AGAIN = 1000;

/** @param {string} view @param {Record<string, string | string[]>} params */
export function pageOf(view, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) for (const each of [value].flat()) query.append(name, each);
  return viewPath(view, query.size ? `?${query}` : "");
}

/**
 * The rows, with the time and whether the key was there: a miss makes the counter of misses grow.
 * @param {string} view @param {Record<string, string | string[]>} params @param {{token?: string, signal?: AbortSignal}} [options]
 */
export async function read(view, params, options = {}) {
  const before = await get(viewPath(view, "/stats"), options.signal && { signal: options.signal }).catch(() => null);
  const started = performance.now();
  const { rows } = await get(pageOf(view, params), options);
  const took = performance.now() - started;
  const after = before && (await get(viewPath(view, "/stats")).catch(() => null));
  return { rows, took, miss: after ? after.misses > before.misses : null };
}

/** @param {{took: number, miss: boolean | null}} found */
export function outcome({ took, miss }) {
  const word = miss === null ? "answered" : miss ? "miss" : "hit";
  return h("p", { class: `outcome ${word}` }, h("strong", {}, word), ` ${took.toFixed(1)} ms`, word === "miss" && ": there was a hole; the answer was computed, and is kept", word === "hit" && ": the answer was kept ready");
}

/**
 * Rows as a table, those marked that were not there before.
 * @param {any[]} rows @param {string} caption @param {any[]} [before] @param {(at: number) => void} [why] a row's button
 */
export function rowsTable(rows, caption, before, why) {
  if (!rows.length) return h("p", {}, "no rows");
  const columns = Object.keys(rows[0]);
  const known = before && new Set(before.map((row) => JSON.stringify(row)));
  const cells = (row, at) => () => [
    ...columns.map((column) => (row[column] === null || typeof row[column] === "number" ? row[column] : text(row[column]))),
    ...(why ? [h("button", { type: "button", onclick: () => why(at), "aria-label": `Why is row ${at + 1} here?` }, "Why?")] : []),
  ];
  return table(why ? [...columns, "comes from"] : columns, rows.map(cells), caption, (at) => Boolean(known) && !known.has(JSON.stringify(rows[at])));
}

/** The base rows that a row of an answer comes from, table by table. @param {string} view @param {object} params @param {number} at */
export async function lineage(view, params, at) {
  const { rows, more } = await get(`v1/lineage?${new URLSearchParams({ view, key: JSON.stringify(params), row: String(at) })}`);
  const tables = Map.groupBy ? Map.groupBy(rows, (each) => each.table) : rows.reduce((known, each) => known.set(each.table, [...(known.get(each.table) ?? []), each]), new Map());
  return h("section", { class: "lineage" }, h("h3", {}, `Row ${at + 1} comes from ${more ? "more than " : ""}${several(rows.length, "base row")}`),
    [...tables].map(([name, found]) => [h("p", {}, name), rowsTable(found.map((each) => each.row), `Rows of ${name}`)]));
}

/**
 * What comes often, told at most every so many milliseconds, and not at all while it is paused: the last of it. `count` is
 * how many there were.
 */
export class Sampler {
  /** @param {(last: any) => void} told @param {number} pause @param {AbortSignal} signal */
  constructor(told, pause, signal) {
    Object.assign(this, { told, pause, count: 0, last: undefined, paused: false, timer: 0, then: -Infinity });
    signal.addEventListener("abort", () => clearTimeout(this.timer));
  }

  add(each) {
    this.count += 1;
    this.last = each;
    this.look();
  }

  /** @param {boolean} paused */
  hold(paused) {
    this.paused = paused;
    this.look();
  }

  look() {
    if (this.paused || this.timer || this.last === undefined) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      if (this.paused || this.last === undefined) return;
      const { last } = this;
      this.last = undefined;
      this.then = performance.now();
      this.told(last);
    }, Math.max(0, this.then + this.pause - performance.now()));
  }
}

/** One connection for all that the tabs of an account show. */
let db;

/** The view's answer as a stream. @param {string} view @param {Record<string, string | string[]>} params */
export function live(view, params) {
  db ??= connect(address("").href, { key: () => account.key ?? undefined });
  return db.live(view, params);
}

/**
 * Tells the rows whenever they are others than `before`, and then than were told, until `signal`: as the view's stream
 * says, and where a view has none, by asking again.
 * @param {string} view @param {Record<string, string | string[]>} params @param {any[]} before
 * @param {(rows: any[], how: string) => void} told @param {AbortSignal} signal @param {(error: Error) => void} failed
 */
export async function watch(view, params, before, told, signal, failed) {
  let known = JSON.stringify(before);
  const tell = (rows, how) => {
    const now = JSON.stringify(rows);
    if (now === known) return;
    known = now;
    told(rows, how);
  };
  await new Promise((ended) => {
    const stop = live(view, params).subscribe(({ rows, state }) => {
      if (state === "live") tell(rows, "live");
      if (state === "failed") ended();
    });
    signal.addEventListener("abort", () => { stop(); ended(); }, { once: true });
  });
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        tell((await get(pageOf(view, params), { signal })).rows, "asked again each second");
      } catch (error) {
        if (!signal.aborted) failed(error);
      }
    }
    await new Promise((done) => { setTimeout(done, AGAIN); });
  }
}
