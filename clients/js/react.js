import { useMemo, useSyncExternalStore } from "react"

/** What a view answers now, as `{rows, state, error}`: the component is drawn again at each change. */
export function useLive(db, view, params) {
  const live = useMemo(() => db.live(view, params), [db, view, JSON.stringify(params)])
  const now = () => live.now
  return useSyncExternalStore(live.subscribe, now, now)
}
