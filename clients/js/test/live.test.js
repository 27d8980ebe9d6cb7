import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { afterEach, beforeEach, test } from "node:test"
import { gzipSync } from "node:zlib"
import { connect } from "../headrace.js"
import { change, Server, until } from "./server.js"

let server
let live
let seen
let stop
const ids = (of = live) => of.now.rows.map((each) => each.id)
const shown = () => live.now.rows.map((each) => `${each.id}${each.n}`).join(" ")
const refuse = (response, status, code = "") => {
  response.writeHead(status, { "content-type": "application/json" })
  response.end(JSON.stringify({ error: { code, message: code } }))
  return true
}

beforeEach(async () => {
  server = await new Server().listen()
  server.rows = [{ id: 1, n: "a" }, { id: 2, n: "b" }, { id: 3, n: "c" }]
})

afterEach(async () => {
  stop?.()
  await server.close()
})

async function follow(options = {}, params = { id: 7 }) {
  seen = []
  live = connect(server.url, options).live("v", params)
  stop = live.subscribe((now, changes) => changes.length && seen.push(...changes))
  await until(() => live.now.state === "live" || live.now.state === "failed", "an answer")
}

test("the answer comes first, then each step", async () => {
  await follow()
  assert.equal(shown(), "1a 2b 3c")
  assert.deepEqual(seen.map((each) => each.operation), ["insert", "insert", "insert"])
  const before = live.now
  server.step([change("delete", 1), change("update", 2, { n: "B" }), change("insert", 4, { n: "d" })])
  await until(() => ids().length === 3 && ids()[2] === 4)
  assert.equal(shown(), "2B 3c 4d")
  assert.notEqual(live.now, before)
  assert.equal(live.now.rows[1], before.rows[2], "a row that did not change is the same object")
  assert.equal(before.rows.length, 3, "what was given is not changed")
})

test("places of an ordered answer: what goes or moves is taken out first", async () => {
  await follow()
  server.step([change("delete", 1), change("insert", 9, { n: "x" }, { place: 0 }), change("update", 2, { n: "b" }, { place: 2 })])
  await until(() => ids()[0] === 9)
  assert.equal(shown(), "9x 3c 2b")
})

test("a key is sent as a header, parameters as they are", async () => {
  await follow({ key: async () => "secret" }, { id: [7, 8], name: "ä&b" })
  const [{ key, asked, path }] = server.requests
  assert.equal(key, "Bearer secret")
  assert.equal(path, "/v1/live")
  assert.deepEqual(asked[0].parameters, { id: [7, 8], name: "ä&b" })
  assert.equal(asked[0].view, "v")
})

test("all answers come by one connection, which is made again where they are", async () => {
  await follow()
  const db = connect(server.url)
  const lives = Array.from({ length: 9 }, (_, at) => db.live("v", { id: at }))
  const seen = new Map()
  const stops = lives.map((each) => each.subscribe((_, changes) => seen.set(each, [...(seen.get(each) ?? []), ...changes])))
  await until(() => lives.every((each) => each.now.state === "live"))
  assert.equal(server.streams, 2, "one of the first test's answer, one of all the others")
  const last = db.live("v", { id: 9 })
  const stopLast = last.subscribe(() => {})
  await until(() => last.now.state === "live" && server.streams === 2)
  assert.deepEqual(server.requests.at(-1).asked.map((each) => each.offset), [...Array(9).fill("1"), undefined])
  server.step([change("insert", 4, { n: "d" })], lives[3].name)
  await until(() => ids(lives[3]).length === 4)
  assert.equal(ids(lives[2]).length, 3)
  assert.ok([...seen.values()].every((each) => each.length <= 4), "nothing is told twice")
  assert.equal(db.live("v", { id: 3 }), lives[3], "who asks the same has the same")
  ;[...stops, stopLast].forEach((each) => each())
  await until(() => server.streams === 1)
})

test("of several answers one that is refused leaves the others", async () => {
  server.before = (request, response, { asked, path }) =>
    (asked.some((each) => each.view === "secret") || path.includes("secret")) && refuse(response, 403, "forbidden")
  const db = connect(server.url)
  live = db.live("v")
  const other = db.live("secret")
  const stops = [live, other].map((each) => each.subscribe(() => {}))
  stop = () => stops.forEach((each) => each())
  await until(() => other.now.state === "failed" && server.streams === 1)
  assert.equal(other.now.error.code, "forbidden")
  server.step([change("insert", 4, { n: "d" })])
  await until(() => ids().length === 4)
})

test("a connection that breaks goes on where it was, and half a step counts not", async () => {
  await follow()
  server.step([change("insert", 4, { n: "d" })])
  await until(() => ids().length === 4)
  server.data([change("insert", 5, { n: "e" })])
  server.cut()
  await until(() => server.streams === 1 && server.requests.length === 2)
  assert.deepEqual(ids(), [1, 2, 3, 4], "the step had no offset yet")
  assert.equal(server.requests.at(-1).offset, "2")
  server.step([change("delete", 4)])
  await until(() => ids().length === 3)
})

test("a place that is not known any more: the whole answer, told as the difference", async () => {
  await follow()
  seen = []
  server.rows = [{ id: 3, n: "c" }, { id: 2, n: "B" }, { id: 9, n: "z" }]
  server.offset = 50
  server.forgotten = 49
  server.end()
  await until(() => ids().includes(9))
  assert.equal(shown(), "3c 2B 9z")
  assert.deepEqual(new Set(seen.map((each) => each.operation + each.key)), new Set(["delete1", "update3", "update2", "insert9"]))
})

test("what is shown stays while the server is away", async () => {
  await follow()
  await server.close()
  await until(() => live.now.state === "waiting" && live.now.error)
  assert.equal(shown(), "1a 2b 3c")
  stop()
  server = await new Server().listen()
})

test("reached: by the offset alone, and what is reached already at once", async () => {
  await follow()
  await live.reached(server.token(1))
  const waiting = live.reached(server.token(2))
  server.step([])
  await waiting
  await assert.rejects(live.reached(server.token(99), 30), /30 ms/)
  await assert.rejects(live.reached("h1.!"), /malformed/)
  await live.reached("h1." + Buffer.from('{"other":5}').toString("base64url"))
})

test("reached: the server is asked where a write has not shown soon, and tells it to all", async () => {
  await follow()
  const wanted = server.token(2)
  server.before = (request) => {
    if (request.headers["headrace-token"] === wanted) server.step([])
    return false
  }
  await live.reached(wanted, 5_000)
  const { offset, path, query } = server.requests.at(-1)
  assert.deepEqual([offset, path, query.get("id")], ["now", "/v1/views/v/live", "7"])
  assert.equal(server.requests.length, 2)
  server.before = (request, response) => request.headers["headrace-token"] && refuse(response, 503)
  const waiting = live.reached(server.token(3))
  await until(() => server.requests.length === 3)
  server.step([])
  await waiting
  assert.equal(live.now.state, "live", "a question that is refused is the stream's to mend")
})

test("a refusal fails it, with the server's code, and whoever waits", async () => {
  await follow()
  const waiting = live.reached(server.token(9))
  server.before = (request, response) => refuse(response, 403, "forbidden")
  server.ended("forbidden")
  await assert.rejects(waiting, { code: "forbidden" })
  assert.equal(live.now.state, "failed")
  assert.equal(shown(), "1a 2b 3c")
  server.before = () => false
  const again = live.subscribe(() => {})
  await until(() => live.now.state === "live")
  again()
})

test("an expired token is renewed", async () => {
  let renewed = 0
  server.before = (request, response) => request.headers.authorization !== "Bearer t2" && refuse(response, 401)
  await follow({ key: () => `t${++renewed}` })
  assert.equal(shown(), "1a 2b 3c")
})

test("five requests that lead nowhere, and the next ones wait", async () => {
  await follow()
  server.before = (request, response) => refuse(response, 410)
  server.ended("evicted")
  const begun = server.requests.length
  await until(() => server.requests.length - begun >= 10)
  const made = server.requests.length
  await new Promise((resolve) => setTimeout(resolve, 200))
  assert.ok(server.requests.length - made <= 2, `${server.requests.length - made} more`)
  assert.equal(shown(), "1a 2b 3c")
})

test("where streams are cut at once it polls", async () => {
  server.before = (request, response, { offset, live: way }) => {
    if (way === "sse") return response.writeHead(200, { "content-type": "text/event-stream" }).end(), true
    if (way !== "long-poll") return false
    if (offset !== "1") return true // Waits.
    server.offset = 2
    response.writeHead(200, { "stream-next-offset": "2", "headrace-token": server.token() })
    return response.end(JSON.stringify([change("insert", 4, { n: "d" })])), true
  }
  await follow()
  await until(() => ids().length === 4)
  assert.deepEqual(server.requests.slice(0, 5).map((each) => each.live), ["sse", "sse", "sse", null, "long-poll"])
})

test("the last listener that leaves ends the connection, and the next one goes on", async () => {
  await follow()
  const second = live.subscribe(() => {})
  stop()
  server.step([])
  await live.reached(server.token())
  second()
  assert.equal(live.now.state, "idle")
  await until(() => !server.streams)
  stop = live.subscribe(() => {})
  await until(() => live.now.state === "live")
  assert.equal(server.requests.at(-1).offset, "2")
})

test("less than 4 kB as it is bundled: without comments and indentation", () => {
  const code = readFileSync(new URL("../headrace.js", import.meta.url), "utf8")
  const bare = code.replace(/^ *(\/\/|\/\*\*|\*).*\n/gm, "").replace(/ \/\/ .*$/gm, "").replace(/^ +/gm, "")
  assert.ok(gzipSync(bare, { level: 9 }).length < 4096, `${gzipSync(bare, { level: 9 }).length}`)
})
