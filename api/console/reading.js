/** Reads one key of a view, and keeps what is shown right: by its live stream, else by asking again. */

import { get, viewPath } from "./api.js";
import { h, table, text } from "./dom.js";

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

/** Rows as a table, those marked that were not there before. @param {any[]} rows @param {string} caption @param {any[]} [before] */
export function rowsTable(rows, caption, before) {
  if (!rows.length) return h("p", {}, "no rows");
  const columns = Object.keys(rows[0]);
  const known = before && new Set(before.map((row) => JSON.stringify(row)));
  const shown = table(columns, rows.map((row) => columns.map((column) => (row[column] === null || typeof row[column] === "number" ? row[column] : text(row[column])))), caption);
  if (known) shown.querySelectorAll("tbody tr").forEach((line, at) => line.classList.toggle("changed", !known.has(JSON.stringify(rows[at]))));
  return shown;
}

/**
 * Tells the rows whenever they are others than `before`, and then than were told, until `signal`.
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
