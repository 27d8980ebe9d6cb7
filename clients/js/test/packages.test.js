// Beside packages of others, on a real server (HEADRACE_URL). They are installed beside a copy of this client by
// tests/clients/test_javascript.py: an unmodified client of Durable Streams with TanStack DB, and React.
import assert from "node:assert/strict"
import { test } from "node:test"
import { createStateSchema } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { JSDOM } from "jsdom"
import { z } from "zod"
import { connect } from "../headrace.js"
import { until } from "./server.js"

const url = process.env.HEADRACE_URL

async function sql(text, params = []) {
  const headers = { "content-type": "application/json" }
  const response = await fetch(`${url}/v1/sql`, { method: "POST", headers, body: JSON.stringify({ sql: text, params }) })
  assert.ok(response.ok, await response.clone().text())
  return (await response.json()).token
}

for (const live of ["sse", "long-poll"])
  test(`Durable Streams with TanStack DB, ${live}`, async () => {
    await sql("REPLACE INTO t VALUES (1, 1, 1, 'a'), (2, 1, 2, 'b')")
    await sql("DELETE FROM t WHERE id > 2")
    const rows = { schema: z.object({ id: z.number(), name: z.string() }), type: "top", primaryKey: "id" }
    const streamOptions = { url: `${url}/v1/views/top/live?g=1`, contentType: "application/json" }
    const db = createStreamDB({ streamOptions, live, state: createStateSchema({ rows }) })
    await db.preload()
    const shown = () => [...db.collections.rows.state.values()].map((each) => each.id + each.name).sort().join(" ")
    assert.equal(shown(), "1a 2b")
    await db.utils.awaitTxId(await sql("INSERT INTO t VALUES (3, 1, 3, 'c')"), 10_000)
    assert.equal(shown(), "1a 2b 3c")
    await db.utils.awaitTxId(await sql("UPDATE t SET name = 'B' WHERE id = 2"), 10_000)
    assert.equal(shown(), "1a 2B 3c")
    await db.utils.awaitTxId(await sql("DELETE FROM t WHERE id = 1"), 10_000)
    assert.equal(shown(), "2B 3c")
    db.close()
  })

test("a component of React is drawn again at each change, and leaves nothing behind", async () => {
  const { window } = new JSDOM("<main></main>")
  const { document, navigator } = window
  Object.assign(globalThis, { window, document, IS_REACT_ACT_ENVIRONMENT: true })
  globalThis.navigator ??= navigator
  const { act, createElement, StrictMode } = await import("react")
  const { createRoot } = await import("react-dom/client")
  const { useLive } = await import("../react.js")
  await sql("REPLACE INTO t VALUES (1, 1, 9, 'a'), (2, 1, 2, 'b'), (3, 1, 3, 'c')")
  const db = connect(url)
  const Names = ({ g }) => useLive(db, "top", { g }).rows.map((each) => each.name).join(" ")
  const root = createRoot(document.querySelector("main"))
  const shows = (text) => until(() => document.querySelector("main").textContent === text, text)
  const draw = (g) => act(() => root.render(createElement(StrictMode, null, createElement(Names, { g }))))
  await draw(1)
  await act(() => shows("a c b"))
  await sql("UPDATE t SET score = 20 WHERE id = 2")
  await act(() => shows("b a c"))
  await draw(9)
  await act(() => shows(""))
  await sql("INSERT INTO t VALUES (5, 9, 1, 'e')")
  await act(() => shows("e"))
  await act(() => root.unmount())
  const subscriptions = async () => (await (await fetch(`${url}/v1/status`)).json()).live.subscriptions
  for (let at = 0; (await subscriptions()) > 0; at++) {
    assert.ok(at < 200, "subscriptions stay")
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
})
