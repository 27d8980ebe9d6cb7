// What a collection of TanStack DB must do, held on a real server by unmodified packages: @durable-streams/state and
// @tanstack/db, which tests/packaging installs beside a copy of this client. TanStack's own list of it is not published.
import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { after, afterEach, before, beforeEach, test } from "node:test"
import { createStateSchema } from "@durable-streams/state"
import { createLiveQueryCollection, createStreamDB } from "@durable-streams/state/db"
import { z } from "zod"
import { until } from "./server.js"

const PYTHON = process.env.HEADRACE_PYTHON
const data = mkdtempSync(join(tmpdir(), "headrace-"))
const SCHEMA = `
CREATE TABLE t (id INT PRIMARY KEY, g INT, score INT, name TEXT);
CREATE VIEW top AS SELECT id, score, name FROM t WHERE g = ? ORDER BY score DESC LIMIT 3;
CREATE VIEW names AS SELECT name FROM t WHERE g = ?`
const SHAPES = {
  top: z.object({ id: z.number(), score: z.number(), name: z.string() }),
  names: z.object({ name: z.string() }),
}
let server
let port = 0
let url
let opened = []
let live = "sse"

async function serve() {
  server = spawn(PYTHON, ["-m", "headrace", "serve", "--port", String(port), "--data", data], { stdio: ["ignore", "pipe", "inherit"] })
  let said = ""
  server.stdout.on("data", (text) => (said += text))
  await until(() => /answers at (\S+)/.test(said) || server.exitCode !== null, "a server", 120)
  url = /answers at (\S+)/.exec(said)[1]
  port = Number(new URL(url).port)
}

async function kill() {
  const gone = new Promise((resolve) => server.once("exit", resolve))
  server.kill("SIGKILL")
  await gone
}

async function sql(text, params = []) {
  const headers = { "content-type": "application/json" }
  const response = await fetch(`${url}/v1/sql`, { method: "POST", headers, body: JSON.stringify({ sql: text, params }) })
  assert.ok(response.ok, await response.clone().text())
  return (await response.json()).token
}

async function open(view = "top", options = {}) {
  const rows = { schema: SHAPES[view], type: view, primaryKey: "_key" }
  const streamOptions = { url: `${url}/v1/views/${view}/live?g=1`, contentType: "application/json", ...options }
  const db = createStreamDB({ streamOptions, live, state: createStateSchema({ rows }) })
  opened.push(db)
  await db.preload()
  return db
}

const shown = (db) => [...db.collections.rows.state.values()].map((each) => each.name).sort().join(" ")

before(async () => {
  await serve()
  await sql(SCHEMA)
})

after(async () => {
  await kill()
  rmSync(data, { recursive: true })
})

beforeEach(() => sql("DELETE FROM t; INSERT INTO t VALUES (1, 1, 10, 'a'), (2, 1, 20, 'b'), (9, 2, 5, 'z')"))

afterEach(() => {
  opened.forEach((db) => db.close())
  opened = []
})

for (const way of ["sse", "long-poll"])
  test(`inserts, updates and deletes are told once, in their order, ${way}`, async () => {
    live = way
    const db = await open()
    const told = []
    const hear = (changes) => told.push(...changes.map(({ type, value }) => type + value.name))
    db.collections.rows.subscribeChanges(hear, { includeInitialState: true })
    assert.deepEqual(told.splice(0).sort(), ["inserta", "insertb"])
    const wait = (token) => db.utils.awaitTxId(token, 20_000)
    await wait(await sql("INSERT INTO t VALUES (3, 1, 30, 'c')"))
    await wait(await sql("UPDATE t SET name = 'B' WHERE id = 2"))
    await wait(await sql("DELETE FROM t WHERE id = 1"))
    assert.deepEqual(told, ["insertc", "updateB", "deletea"])
    assert.equal(shown(db), "B c")
    live = "sse"
  })

test("the first load is the answer: rows, none of others, and nothing where there is nothing", async () => {
  const db = await open()
  assert.equal(shown(db), "a b")
  const { id, score, name } = db.collections.rows.get("2")
  assert.deepEqual({ id, score, name }, { id: 2, score: 20, name: "b" })
  await sql("DELETE FROM t")
  assert.equal(shown(await open()), "")
})

test("what enters a page comes in, and what it pushes out goes", async () => {
  const db = await open()
  await sql("INSERT INTO t VALUES (3, 1, 30, 'c')")
  await db.utils.awaitTxId(await sql("INSERT INTO t VALUES (4, 1, 15, 'd')"), 20_000)
  assert.equal(shown(db), "b c d")
  await db.utils.awaitTxId(await sql("DELETE FROM t WHERE id = 3"), 20_000)
  assert.equal(shown(db), "a b d")
})

test("rows that are equal are as many as there are", async () => {
  const db = await open("names")
  await db.utils.awaitTxId(await sql("INSERT INTO t VALUES (5, 1, 0, 'a'), (6, 1, 0, 'a')"), 20_000)
  assert.equal(shown(db), "a a a b")
  await db.utils.awaitTxId(await sql("DELETE FROM t WHERE id = 1"), 20_000)
  assert.equal(shown(db), "a a b")
})

test("a live query over it has the order of the view, also after a row has moved", async () => {
  const db = await open()
  const sorted = createLiveQueryCollection((query) =>
    query.from({ row: db.collections.rows }).orderBy(({ row }) => row.score, "desc"),
  )
  await sorted.preload()
  const read = async () => (await (await fetch(`${url}/v1/views/top?g=1`)).json()).rows.map((each) => each.name)
  for (const text of ["INSERT INTO t VALUES (3, 1, 15, 'c')", "UPDATE t SET score = 50 WHERE id = 1", "DELETE FROM t WHERE id = 2"]) {
    await db.utils.awaitTxId(await sql(text), 20_000)
    const right = (await read()).join(" ")
    await until(() => sorted.toArray.map((each) => each.name).join(" ") === right, right)
  }
})

test("many subscribers, of one collection and of many, hear each change once", async () => {
  const dbs = await Promise.all(Array.from({ length: 20 }, () => open()))
  const told = new Map()
  for (const db of dbs)
    for (let at = 0; at < 10; at++) {
      const own = []
      told.set(db.collections.rows.subscribeChanges((changes) => own.push(...changes.map(({ type, key }) => type + key))), own)
    }
  await sql("INSERT INTO t VALUES (3, 1, 30, 'c')")
  const token = await sql("UPDATE t SET score = 40 WHERE id = 3")
  await Promise.all(dbs.map((db) => db.utils.awaitTxId(token, 20_000)))
  assert.equal(told.size, 200)
  // Two writes that come together are one change.
  for (const own of told.values()) assert.match(own.join(" "), /^insert3( update3)?$/)
  for (const db of dbs) assert.equal(db.collections.rows.get("3").score, 40)
})

test("an error is told: of a view that is not there, and of a parameter that is missing", async () => {
  const refused = async (path) => {
    const rows = { schema: SHAPES.top, type: "top", primaryKey: "_key" }
    const streamOptions = { url: `${url}${path}`, contentType: "application/json" }
    const db = createStreamDB({ streamOptions, live: "sse", state: createStateSchema({ rows }) })
    opened.push(db)
    await assert.rejects(db.preload(), (error) => error.status >= 400 && error.status < 500)
  }
  await refused("/v1/views/nothing/live?g=1")
  await refused("/v1/views/top/live")
})

test("reached: a write is awaited by its token, and one that changes nothing here is not told", async () => {
  const db = await open()
  const none = await sql("INSERT INTO t VALUES (7, 2, 1, 'y')")
  await assert.rejects(db.utils.awaitTxId(none, 300), /imeout/)
  await db.utils.awaitTxId(await sql("UPDATE t SET name = 'A' WHERE id = 1"), 20_000)
  assert.equal(shown(db), "A b")
})

test("a server that is killed and started again: the answer is right again, and no offset stands for another one", async () => {
  const db = await open()
  const seen = new Set([shown(db)])
  db.collections.rows.subscribeChanges(() => seen.add(shown(db)))
  const { offset } = db
  await kill()
  await serve()
  await sql("INSERT INTO t VALUES (3, 1, 30, 'c')")
  const again = await open()
  assert.equal(shown(again), "a b c")
  await again.utils.awaitTxId(await sql("DELETE FROM t WHERE id = 1"), 20_000)
  assert.equal(shown(again), "b c")
  const gone = await fetch(`${url}/v1/views/top/live?g=1&offset=${offset}`)
  assert.ok(gone.status === 410 || (await gone.json()).length === 2, "what it has missed, or that this is not known any more")
  // By how its socket breaks, the package goes on by itself, or says on its console that its stream is closed.
  assert.ok([...seen].every((each) => ["a b", "a b c", "b c"].includes(each)), [...seen].join(", "))
})
