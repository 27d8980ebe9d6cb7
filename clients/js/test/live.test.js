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
const ids = () => live.now.rows.map((each) => each.id)
const shown = () => live.now.rows.map((each) => `${each.id}${each.n}`).join(" ")

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
  await until(() => server.streams || live.now.state === "failed", "a stream")
}

test("the answer comes first, then each step", async () => {
  await follow()
  assert.equal(shown(), "1a 2b 3c")
  assert.equal(live.now.state, "live")
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

test("parameters are in the URL, keys are not", async () => {
  await follow({ key: async () => "secret" }, { id: [7, 8], name: "ä&b" })
  for (const each of server.requests) {
    assert.equal(each.key, "Bearer secret")
    assert.deepEqual(each.query.getAll("id"), ["7", "8"])
    assert.equal(each.query.get("name"), "ä&b")
    assert.ok(![...each.query.values()].includes("secret"))
  }
  assert.equal(server.requests[0].path, "/v1/views/v/live")
})

test("a connection that breaks goes on where it was, and half a step counts not", async () => {
  await follow()
  server.step([change("insert", 4, { n: "d" })])
  await until(() => ids().length === 4)
  server.data([change("insert", 5, { n: "e" })])
  await until(() => server.streams)
  server.cut()
  await until(() => server.streams === 1)
  assert.deepEqual(ids(), [1, 2, 3, 4], "the step had no offset yet")
  assert.equal(server.requests.at(-1).offset, "2")
  server.step([change("delete", 4)])
  await until(() => ids().length === 3)
  assert.equal(server.requests.filter((each) => each.offset === "-1").length, 1)
})

test("a place that is not known any more: the whole answer, told as the difference", async () => {
  await follow()
  let gone = 1
  server.before = (request, response, { offset }) => {
    if (offset === "-1" || !gone) return false
    gone--
    response.writeHead(410, { "content-type": "application/json" })
    response.end(JSON.stringify({ error: { code: "offset_gone", message: "gone" } }))
    return true
  }
  seen = []
  server.rows = [{ id: 3, n: "c" }, { id: 2, n: "B" }, { id: 9, n: "z" }]
  server.offset = 50
  server.end()
  await until(() => ids().includes(9))
  assert.equal(shown(), "3c 2B 9z")
  assert.ok(seen.every((each) => !(each.operation === "delete" && each.key !== "1")))
  assert.deepEqual(new Set(seen.map((each) => each.operation + each.key)), new Set(["delete1", "update3", "update2", "insert9"]))
})

test("what is shown stays while the server is away", async () => {
  await follow()
  const url = server.url
  await server.close()
  await until(() => live.now.state === "waiting" && live.now.error)
  assert.equal(shown(), "1a 2b 3c")
  server = await Object.assign(new Server(), { rows: [{ id: 1, n: "a" }], offset: 1 }).listen()
  assert.notEqual(url, server.url)
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

test("a refusal fails it, with the server's code, and whoever waits", async () => {
  server.before = (request, response) => {
    response.writeHead(403, { "content-type": "application/json" })
    response.end(JSON.stringify({ error: { code: "forbidden", message: "no right" } }))
    return true
  }
  await follow()
  assert.equal(live.now.state, "failed")
  assert.equal(live.now.error.code, "forbidden")
  assert.equal(server.requests.length, 1)
})

test("an expired token is renewed once", async () => {
  let renewed = 0
  server.before = (request, response) => {
    if (request.headers.authorization === "Bearer t2") return false
    response.writeHead(401).end("{}")
    return true
  }
  await follow({ key: () => `t${++renewed}` })
  assert.equal(shown(), "1a 2b 3c")
})

test("five requests at one offset, and the next ones wait", async () => {
  await follow()
  server.before = (request, response) => (response.writeHead(410).end("{}"), true)
  const begun = server.requests.length
  server.before = (request, response, { offset }) => offset !== "-1" && (response.writeHead(410).end("{}"), true)
  server.end()
  await until(() => live.now.state === "waiting")
  const made = server.requests.length - begun
  assert.ok(made >= 3 && made <= 12, `${made} requests`)
  assert.equal(shown(), "1a 2b 3c")
})

test("where streams are cut at once it polls", async () => {
  server.before = (request, response, { offset, live: way }) => {
    if (way === "sse") return response.writeHead(200, { "content-type": "text/event-stream" }).end(), true
    if (way !== "long-poll") return false
    if (offset === "1") {
      server.offset = 2
      response.writeHead(200, { "stream-next-offset": "2", "headrace-token": server.token() })
      return response.end(JSON.stringify([change("insert", 4, { n: "d" })])), true
    }
    return true // Waits.
  }
  live = connect(server.url).live("v")
  stop = live.subscribe(() => {})
  await until(() => ids().length === 4)
  assert.deepEqual(server.requests.map((each) => each.live), [null, "sse", "sse", "sse", "long-poll", "long-poll"].slice(0, server.requests.length))
})

test("the last listener that leaves ends the connection, and the next one goes on", async () => {
  await follow()
  const second = live.subscribe(() => {})
  stop()
  assert.equal(server.streams, 1)
  second()
  assert.equal(live.now.state, "idle")
  stop = live.subscribe(() => {})
  await until(() => live.now.state === "live" || server.requests.length === 3)
  assert.equal(server.requests.at(-1).offset, "1")
})

test("less than 4 kB", () => {
  assert.ok(gzipSync(readFileSync(new URL("../headrace.js", import.meta.url)), { level: 9 }).length < 4096)
})
