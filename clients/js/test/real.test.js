// Beside reads of a real server, whose URL is in HEADRACE_URL: tables and views are made by whoever started it.
import assert from "node:assert/strict"
import { test } from "node:test"
import { connect } from "../headrace.js"
import { until } from "./server.js"

const url = process.env.HEADRACE_URL
const seed = Number(process.env.SEED)

async function sql(text, params = []) {
  const headers = { "content-type": "application/json" }
  const response = await fetch(`${url}/v1/sql`, { method: "POST", headers, body: JSON.stringify({ sql: text, params }) })
  assert.ok(response.ok, await response.clone().text())
  return response.json()
}

async function read(view, group) {
  return (await (await fetch(`${url}/v1/views/${view}?g=${group}`)).json()).rows
}

/** Numbers below one, the same for the same seed. */
function random() {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

test("after each write, what is shown is what a read answers", async () => {
  const db = connect(url)
  const below = random()
  const lives = ["top", "count", "names"].map((view) => ({ view, live: db.live(view, { g: 1 }) }))
  const stops = lives.map(({ live }) => live.subscribe(() => {}))
  await until(() => lives.every(({ live }) => live.now.state === "live"))
  for (let at = 0; at < 40; at++) {
    const [id, g, score] = [below(6), below(2), below(5)]
    const { token } = await (below(3)
      ? sql("REPLACE INTO t VALUES (?, ?, ?, ?)", [id, g, score, "abc"[below(3)]])
      : below(2)
        ? sql("DELETE FROM t WHERE id = ?", [id])
        : sql("UPDATE t SET score = score + 3 WHERE g = 1"))
    if (below(4) === 0) await fetch(`${url}/v1/views/top/evict`, { method: "POST", body: '{"keys":[[1]]}' })
    for (const { view, live } of lives) {
      await live.reached(token)
      const order = (rows) => (view === "names" ? rows.map((each) => JSON.stringify(each)).sort() : rows)
      assert.deepEqual(order(live.now.rows), order(await read(view, 1)), `${view}, write ${at}, seed ${seed}`)
    }
  }
  stops.forEach((stop) => stop())
})
