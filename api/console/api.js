/**
 * The server's public HTTP API, and nothing else: what the console shows, a client can ask for.
 */

/** The address that all paths are below: the console may stand behind a proxy, under a path of its own. */
const BASE = new URL("..", import.meta.url);
const KEY = "headrace-key";
/** What takes long is asked for a ninth of the time, but not less often than that; it may have waited for a key. */
const BUSY = 8, PAUSE_MOST = 8000;

/** What an error answer says. */
export class ApiError extends Error {
  /** @param {number} status @param {{code: string, message: string, hint: string | null}} told */
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.code = told.code;
    this.hint = told.hint;
  }
}

export const account = {
  /** @returns {string | null} */
  get key() {
    return sessionStorage.getItem(KEY);
  },
  /** @param {string | null} key */
  set key(key) {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  },
  /** Asks the user for a key: set by the page. True where one was given. @type {(message: string) => Promise<boolean>} */
  ask: async () => false,
};

/** @returns {Record<string, string>} */
export function headers() {
  return account.key ? { authorization: `Bearer ${account.key}` } : {};
}

/** @param {string} path */
export function address(path) {
  return new URL(path, BASE);
}

/**
 * @param {string} method @param {string} path
 * @param {{body?: any, token?: string, signal?: AbortSignal, text?: boolean, blob?: boolean, tagged?: {tag?: string | null}}} [options]
 *   `tagged` keeps the tag of the answer: null while it would be the same
 */
export async function call(method, path, { body, token, signal, text, blob, tagged } = {}) {
  const sent = headers();
  if (body !== undefined) sent["content-type"] = "application/json";
  if (token) sent["headrace-token"] = token;
  if (tagged?.tag) sent["if-none-match"] = tagged.tag;
  const answer = await fetch(address(path), {
    method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
  }).catch((error) => {
    throw signal?.aborted ? error : new ApiError(0, { code: "unreachable", message: "the server does not answer", hint: "it is asked again" });
  });
  if (tagged && answer.status === 304) return null;
  if (tagged) tagged.tag = answer.headers.get("etag");
  if (answer.ok) return blob ? answer.blob() : text ? answer.text() : answer.json();
  const told = await answer.json().catch(() => null);
  const error = told?.error ?? { code: "unavailable", message: `the server answered ${answer.status}`, hint: null };
  if (answer.status === 401 && (await account.ask(account.key ? error.message : ""))) {
    return call(method, path, { body, token, signal, text, blob, tagged });
  }
  throw new ApiError(answer.status, error);
}

/** @param {string} path @param {object} [options] */
export const get = (path, options) => call("GET", path, options);

/** One statement's results. @param {string} sql @param {any[]} [params] */
export async function run(sql, params = []) {
  return call("POST", "v1/sql", { body: { sql, params } });
}

/** A view's address. @param {string} name @param {string} [rest] */
export const viewPath = (name, rest = "") => `v1/views/${encodeURIComponent(name)}${rest}`;

/**
 * Calls `act` now and every so many milliseconds, one call after the other, while the page is seen; until `signal`. What
 * takes long is asked for less often.
 * An error does not end it: the server may be starting. `failed` is told of it.
 * @param {AbortSignal} signal @param {number} pause @param {() => Promise<void>} act @param {(error: Error) => void} failed
 */
export async function every(signal, pause, act, failed) {
  while (!signal.aborted) {
    const began = performance.now();
    if (!document.hidden) {
      try {
        await act();
      } catch (error) {
        if (signal.aborted) return;
        failed(error);
      }
    }
    await new Promise((done) => {
      const timer = setTimeout(done, Math.max(pause, Math.min(PAUSE_MOST, BUSY * (performance.now() - began))));
      signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
    });
  }
}

/**
 * Makes a migration and follows it to its end. @param {string} sql @param {(migration: any) => void} told
 * @param {AbortSignal} signal
 */
export async function migrate(sql, told, signal) {
  const { id } = await call("POST", "v1/migrations", { body: { sql } });
  for (;;) {
    const migration = await get(`v1/migrations/${id}`, { signal });
    told(migration);
    if (migration.state === "done") return migration;
    if (migration.state === "failed") throw new ApiError(400, migration.error);
    if (migration.state === "cancelled") throw new ApiError(409, { code: "cancelled", message: "the migration was cancelled", hint: null });
    await new Promise((done) => setTimeout(done, 200));
  }
}
