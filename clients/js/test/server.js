// A read-only Durable Stream that a test writes by hand.
import http from "node:http"

export class Server {
  requests = []
  rows = []
  offset = 1
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

  step(messages) {
    this.offset++
    for (const stream of this.#streams) stream.write(this.#data(messages) + this.#control())
  }

  data(messages) {
    for (const stream of this.#streams) stream.write(this.#data(messages))
  }

  token(at = this.offset) {
    return "h1." + Buffer.from(JSON.stringify({ "votes": at })).toString("base64url")
  }

  #data(messages) {
    return `event: data\ndata: ${JSON.stringify(messages)}\n\n`
  }

  #control() {
    return `id: ${this.offset}\nevent: control\ndata: ${JSON.stringify({ streamNextOffset: String(this.offset), token: this.token() })}\n\n`
  }

  #answer(request, response) {
    const url = new URL(request.url, "http://x")
    const [offset, live] = [url.searchParams.get("offset"), url.searchParams.get("live")]
    this.requests.push({ offset, live, key: request.headers.authorization, path: url.pathname, query: url.searchParams })
    if (this.before(request, response, { offset, live })) return
    const head = { "stream-next-offset": String(this.offset), "headrace-token": this.token() }
    if (live === "sse") {
      response.writeHead(200, { ...head, "content-type": "text/event-stream" })
      response.write(": still here\n\n")
      this.#streams.add(response)
    } else {
      response.writeHead(200, { ...head, "content-type": "application/json" })
      const rows = this.rows.map((value) => ({ type: "v", key: String(value.id), value, headers: { operation: "insert" } }))
      const control = (name) => ({ headers: { control: name } })
      response.end(JSON.stringify(offset === "-1" ? [control("snapshot-start"), ...rows, control("snapshot-end")] : []))
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
