// A read-only Durable Stream that a test writes by hand.
import http from "node:http"

export class Server {
  requests = []
  rows = []
  offset = 1
  /** Up to this, offsets are not known any more. */
  forgotten = 0
  /** Set by a test: answers a request in place of the stream, if it returns true. */
  before = () => false
  #streams = new Set()

  async listen() {
    this.server = http.createServer((request, response) => this.#answer(request, response))
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve))
    this.url = `http://127.0.0.1:${this.server.address().port}`
    return this
  }

  close() {
    this.cut()
    this.server.closeAllConnections()
    return new Promise((resolve) => this.server.close(resolve))
  }

  cut() {
    for (const stream of this.#streams) stream.destroy()
    this.#streams.clear()
  }

  end() {
    for (const stream of this.#streams) stream.end()
    this.#streams.clear()
  }

  get streams() {
    return this.#streams.size
  }

  step(messages, name) {
    this.offset++
    this.#each(name, (each) => this.#data(messages) + this.#control(each))
  }

  data(messages) {
    this.#each(undefined, () => this.#data(messages))
  }

  ended(why) {
    this.#each(undefined, (each) => this.#control(each, { ended: why }))
  }

  token(at = this.offset) {
    return "h1." + Buffer.from(JSON.stringify({ votes: at })).toString("base64url")
  }

  #each(name, written) {
    for (const stream of this.#streams)
      for (const each of stream.asked) if (!name || each.name === name) stream.write(written(each))
  }

  #data(messages) {
    return `event: data\ndata: ${JSON.stringify(messages)}\n\n`
  }

  #control({ name }, more = {}) {
    const shown = { streamNextOffset: String(this.offset), token: this.token(), subscription: name, ...more }
    return `id: ${this.offset}\nevent: control\ndata: ${JSON.stringify(shown)}\n\n`
  }

  #snapshot(view) {
    const rows = (this.rows[view] ?? this.rows).map((value) => ({ type: view, key: String(value.id), value, headers: { operation: "insert" } }))
    const control = (name) => ({ headers: { control: name } })
    return [control("snapshot-start"), ...rows, control("snapshot-end")]
  }

  async #answer(request, response) {
    const url = new URL(request.url, "http://x")
    let body = ""
    for await (const piece of request) body += piece
    const asked = body ? JSON.parse(body).subscriptions : []
    const live = body ? "sse" : url.searchParams.get("live")
    const offset = body ? asked[0].offset : url.searchParams.get("offset")
    this.requests.push({ offset, live, asked, key: request.headers.authorization, path: url.pathname, query: url.searchParams })
    if (this.before(request, response, { offset, live, asked, path: url.pathname })) return
    const head = { "stream-next-offset": String(this.offset), "headrace-token": this.token() }
    if (live === "sse") {
      response.writeHead(200, { ...head, "content-type": "text/event-stream" })
      response.write(": still here\n\n")
      for (const each of asked) {
        const known = each.offset && Number(each.offset) > this.forgotten
        response.write((known ? "" : this.#data(this.#snapshot(each.view))) + this.#control(each))
      }
      this.#streams.add(Object.assign(response, { asked }))
      response.on("close", () => this.#streams.delete(response))
    } else {
      response.writeHead(200, { ...head, "content-type": "application/json" })
      response.end(JSON.stringify(offset === "-1" ? this.#snapshot(url.pathname.split("/")[3]) : []))
    }
  }
}

export async function until(condition, what = "what was awaited", seconds = 20) {
  for (const end = Date.now() + 1000 * seconds; !condition(); await new Promise((resolve) => setTimeout(resolve, 5)))
    if (Date.now() > end) throw new Error(`${what} did not come to be in ${seconds} s`)
}

export const change = (operation, id, value, more = {}) => ({
  type: "v",
  key: String(id),
  ...(value && { value: { id, ...value } }),
  headers: { operation, ...more },
})
