// Live views of Headrace over fetch: the read side of Durable Streams (docs/live.md). No dependencies.

const SILENCE = 45_000 // ms without a byte: the server says something every 15 s, so the connection is dead.
const SHORT = 1_000 // ms: a stream that ends sooner, or in silence, is cut or held back by a proxy.
const SHORT_STREAMS = 3 // So many in a row, and this polls instead.
const REQUESTS = 5 // So many in a row by which nothing moved, and the next ones wait.
const FIRST_WAIT = 500
const LONGEST_WAIT = 30_000

export class HeadraceError extends Error {
  constructor(message, status, code, retryAfter = 0) {
    super(message)
    Object.assign(this, { name: "HeadraceError", status, code, retryAfter })
  }
}

/** `key`: an API key or a token, or a function that gives the one of now, asked before each request.
 *  `share`: tabs of one origin that give the same name share one connection to each answer. It has to name the user. */
export function connect(url = "", { key, share = key === undefined ? "" : undefined, fetch = globalThis.fetch } = {}) {
  return {
    live(view, params = {}) {
      const query = new URLSearchParams()
      for (const [name, value] of Object.entries(params)) for (const each of [value].flat()) query.append(name, each)
      return new Live(`${url.replace(/\/+$/, "")}/v1/views/${encodeURIComponent(view)}/live?${query}`, key, share, fetch)
    },
  }
}

/** An answer that stays right while somebody subscribes to it. */
export class Live {
  /** `rows` in the answer's order; `state`: "idle", "loading", "live", "waiting" (to ask again) or "failed"; `error`.
   *  A new object at each change. What is shown stays until there is something newer. */
  now = { rows: [], state: "idle", error: undefined }
  #keys = []
  #offset
  #clock
  #opened
  #heard
  #polls
  #stop
  #tell
  #pending = []
  #listeners = new Set()
  #reaching = new Set()
  #url
  #key
  #share
  #fetch

  constructor(url, key, share, fetch) {
    this.#url = url
    this.#key = typeof key === "function" ? key : () => key
    this.#share = share
    this.#fetch = fetch
  }

  /** Calls `listener(now, changes)` at each step. The first one connects; when the last one leaves it ends. */
  subscribe = (listener) => {
    const own = { listener }
    this.#listeners.add(own)
    if (!this.#stop) this.#start()
    return () => {
      this.#listeners.delete(own)
      if (this.#listeners.size || !this.#stop) return
      this.#stop.abort()
      this.#stop = undefined
      this.#show({ state: "idle" })
    }
  }

  /** Resolves when this reflects a write, by the token of its answer; also where the write changed nothing here. */
  reached(token, timeout = 10_000) {
    return new Promise((resolve, reject) => {
      const waiting = { clock: decode(token), resolve, reject }
      if (this.#reflects(waiting.clock)) return resolve()
      const late = () => this.#settled(waiting) && reject(new HeadraceError(`not in ${timeout} ms`))
      waiting.timer = setTimeout(late, timeout)
      this.#reaching.add(waiting)
    })
  }

  #settled(waiting) {
    clearTimeout(waiting.timer)
    return this.#reaching.delete(waiting)
  }

  #reflects(clock) {
    return this.#clock && Object.entries(clock).every(([shard, at]) => !(this.#clock[shard] < at))
  }

  #start() {
    const { signal } = (this.#stop = new AbortController())
    this.#polls = false
    this.#show({ state: "loading", error: undefined })
    const shared = this.#share !== undefined && globalThis.navigator?.locks && globalThis.BroadcastChannel
    ;(shared ? this.#inTurn(`headrace ${this.#share} ${this.#url}`, signal) : this.#run(signal)).catch((error) => {
      if (signal.aborted) return
      this.#stop = undefined
      this.#show({ state: "failed", error })
      for (const waiting of this.#reaching) this.#settled(waiting) && waiting.reject(error)
    })
  }

  /** The tab that holds the lock follows the stream, and passes on what comes. When it goes, the next one goes on. */
  async #inTurn(name, signal) {
    const channel = new BroadcastChannel(name)
    const tell = (messages) => channel.postMessage([messages, this.#offset, this.#clock])
    channel.onmessage = ({ data }) => {
      if (data !== "hello") {
        const whole = data[0][0]?.headers.control
        if (!this.#tell && (whole || this.#offset)) this.#step(...data)
      } else if (this.#tell && this.#offset) {
        const rows = this.#keys.map((key, at) => ({ key, value: this.now.rows[at], headers: { operation: "insert" } }))
        tell([{ headers: { control: "snapshot-start" } }, ...rows])
      }
    }
    channel.postMessage("hello")
    try {
      await navigator.locks.request(name, { signal }, () => ((this.#tell = tell), this.#run(signal)))
    } finally {
      this.#tell = undefined
      channel.close()
    }
  }

  async #run(signal) {
    for (let requests = 0, short = 0, wait = FIRST_WAIT; ; ) {
      const begun = Date.now()
      const streams = this.#offset && !this.#polls
      let pause = 0
      this.#opened = this.#heard = false
      try {
        if (streams) await this.#stream(signal)
        else await this.#ask(this.#offset ? "long-poll" : undefined, signal)
      } catch (error) {
        const renews = error.status === 401 && !requests
        if (signal.aborted || (error.status >= 400 && error.status < 500 && ![410, 429].includes(error.status) && !renews))
          throw error
        if (error.status === 410) this.#offset = undefined
        else if (!renews) {
          pause = 1000 * error.retryAfter || wait
          this.#show({ error })
        }
      }
      const lasted = Date.now() - begun > SHORT
      if (streams && this.#opened) short = lasted && this.#heard ? 0 : short + 1
      this.#polls ||= short >= SHORT_STREAMS
      requests = lasted || (this.#heard && streams) ? 0 : requests + 1
      if (requests > REQUESTS) pause ||= wait
      wait = pause ? Math.min(2 * wait, LONGEST_WAIT) : FIRST_WAIT
      if (pause) {
        this.#show({ state: "waiting" })
        await sleep(pause * (0.75 + Math.random() / 2), signal)
      }
    }
  }

  async #request(live, signal) {
    const credential = await this.#key()
    const headers = credential === undefined ? {} : { authorization: `Bearer ${credential}` }
    const place = new URLSearchParams({ offset: this.#offset ?? "-1", ...(live && { live }) })
    const response = await this.#fetch.call(undefined, `${this.#url}&${place}`, { headers, signal, cache: "no-store" })
    this.#opened = response.ok
    if (response.ok) return response
    const { error } = await response.json().catch(() => ({}))
    const after = Number(response.headers.get("retry-after")) || 0
    throw new HeadraceError(error?.message ?? response.statusText, response.status, error?.code, after)
  }

  async #ask(live, signal) {
    const response = await this.#request(live, signal)
    const messages = response.status === 204 ? [] : await response.json()
    this.#step(messages, response.headers.get("stream-next-offset"), decode(response.headers.get("headrace-token")))
  }

  async #stream(signal) {
    const own = new AbortController()
    const cut = () => own.abort()
    let timer = setTimeout(cut, SILENCE)
    signal.addEventListener("abort", cut)
    try {
      const reader = (await this.#request("sse", own.signal)).body.getReader()
      const decoder = new TextDecoder()
      this.#pending = []
      for (let text = "", read; !(read = await reader.read()).done; ) {
        clearTimeout(timer)
        timer = setTimeout(cut, SILENCE)
        const events = (text + decoder.decode(read.value, { stream: true })).split(/\r?\n\r?\n/)
        text = events.pop()
        events.forEach((each) => this.#event(each))
      }
    } finally {
      clearTimeout(timer)
      signal.removeEventListener("abort", cut)
    }
  }

  /** A step's messages count when its offset has come: if the connection breaks between them, they come again. */
  #event(text) {
    const of = (name) => [...text.matchAll(new RegExp(`^${name}: ?(.*)$`, "gm"))].map((each) => each[1]).join("\n")
    const event = of("event")
    if (event === "data") this.#pending.push(...JSON.parse(of("data")))
    if (event !== "control") return
    const { streamNextOffset, token } = JSON.parse(of("data"))
    this.#step(this.#pending, streamNextOffset, token && decode(token))
    this.#pending = []
  }

  #step(messages, offset, clock) {
    this.#heard = true
    this.#offset = offset ?? this.#offset
    this.#clock = clock || this.#clock
    if (messages[0]?.headers.control) this.#replace(messages)
    else this.#fold(messages)
    if (this.now.state !== "live") this.#show({ state: "live", error: undefined })
    this.#tell?.(messages)
    for (const waiting of this.#reaching)
      if (this.#reflects(waiting.clock)) this.#settled(waiting) && waiting.resolve()
  }

  /** A whole answer in place of what was shown: as the changes between them. */
  #replace(messages) {
    const rows = messages.filter((each) => each.headers.operation)
    const before = new Map(this.#keys.map((key, at) => [key, JSON.stringify(this.now.rows[at])]))
    const after = new Set(rows.map((each) => each.key))
    const changes = this.#keys.filter((key) => !after.has(key)).map((key) => ({ key, operation: "delete" }))
    rows.forEach(({ key, value }, place) => {
      const known = before.get(key)
      if (known !== JSON.stringify(value) || key !== this.#keys[place])
        changes.push({ key, value, operation: known ? "update" : "insert", place })
    })
    this.#keys = rows.map((each) => each.key)
    if (changes.length) this.#show({ rows: rows.map((each) => each.value) }, changes)
  }

  /** One step: what goes and what moves is taken out, then the rest is put in, place by place. */
  #fold(messages) {
    if (!messages.length) return
    const changes = messages.map(({ key, value, headers }) => ({ key, value, ...headers }))
    const out = new Set(changes.filter((each) => each.operation === "delete" || each.place >= 0).map((each) => each.key))
    const list = this.#keys.map((key, at) => [key, this.now.rows[at]]).filter(([key]) => !out.has(key))
    const index = new Map(list.map(([key], at) => [key, at]))
    for (const { key, value, operation, place } of changes)
      if (place >= 0) list.splice(place, 0, [key, value])
      else if (operation !== "delete") list[index.get(key) ?? list.length] = [key, value]
    this.#keys = list.map(([key]) => key)
    this.#show({ rows: list.map(([, value]) => value) }, changes)
  }

  #show(news, changes = []) {
    this.now = { ...this.now, ...news }
    for (const { listener } of [...this.#listeners]) listener(this.now, changes)
  }
}

/** The positions in a token: `h1.` and JSON in URL-safe base64. */
function decode(token) {
  if (token === null) return undefined
  try {
    const binary = atob(token.slice(3).replace(/-/g, "+").replace(/_/g, "/"))
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, (each) => each.charCodeAt(0))))
  } catch {
    throw new HeadraceError("malformed token: give the token of a write's answer unchanged")
  }
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, ms)
    signal.addEventListener("abort", () => reject(signal.reason), { once: true })
  })
}
