import type { Answer, Headrace, Params } from "./headrace.js"

/** What a view answers now: the component is drawn again at each change. */
export function useLive<Row = Record<string, unknown>>(db: Headrace, view: string, params?: Params): Answer<Row>
