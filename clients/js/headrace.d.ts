/** Live views of Headrace. See README.md. */

export class HeadraceError extends Error {
  /** Of the answer; undefined where there was none. */
  status?: number
  /** What is wrong, in a word: docs/http.md has the codes. */
  code?: string
  retryAfter: number
}

export interface Options {
  /** An API key or a token; or a function that gives the one of now, asked before each request. */
  key?: string | (() => string | undefined | Promise<string | undefined>)
  /**
   * Tabs of one origin that give the same name share one connection. It has to name the user, since the tabs show the
   * same rows. Without a key it is "" by default, with one nothing is shared.
   */
  share?: string
  fetch?: typeof globalThis.fetch
}

export type Value = string | number | boolean | null
export type Params = Record<string, Value | Value[]>

export interface Change<Row> {
  operation: "insert" | "update" | "delete"
  key: string
  /** Not of a delete. */
  value?: Row
  /** The row's index in the answer, where the view has an order. */
  place?: number
  /** The token of the write. */
  txid?: string
}

export interface Answer<Row> {
  readonly rows: readonly Row[]
  /** "waiting": the connection is gone and made again after a pause. "failed": not without a change, as of a key. */
  readonly state: "idle" | "loading" | "live" | "waiting" | "failed"
  readonly error?: Error
}

export class Live<Row = Record<string, unknown>> {
  /** Another object after each change. */
  readonly now: Answer<Row>
  /** Connects with the first listener; the function that it returns ends it, with the last one the connection. */
  subscribe(listener: (now: Answer<Row>, changes: readonly Change<Row>[]) => void): () => void
  /** Resolves when the answer reflects a write, by its token, also where the write changed nothing here. */
  reached(token: string, timeout?: number): Promise<void>
}

export interface Headrace {
  live<Row = Record<string, unknown>>(view: string, params?: Params): Live<Row>
}

/** `url`: of the server, "" for that of the page. */
export function connect(url?: string, options?: Options): Headrace
