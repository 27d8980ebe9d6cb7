// Live views of Headrace over fetch (docs/live.md). No dependencies.
//
//   Live (an answer: rows, offset)  ──joins──►  Feed: one stream of POST /v1/live for all answers of all tabs
//
// Among tabs that share, one holds a lock and leads: it follows what any of them wants, and passes it on.

const SILENCE = 45_000 // ms without a byte: the server says something every 15 s, so the connection is dead.
const SHORT = 1_000 // ms: a stream that ends sooner, or in silence, is cut or held back by a proxy. And between polls.
const SHORT_STREAMS = 3 // So many in a row, and this polls instead.
const REQUESTS = 5 // So many in a row by which nothing moved, and the next ones wait.
const FIRST_WAIT = 500
const LONGEST_WAIT = 30_000
const SOON = 30 // ms in which a write mostly shows; then the server is asked whether it is here without a change.
const ROLL_CALL = 60_000 // Tabs that close say nothing: the leader asks who is there.

export class HeadraceError extends Error {
  constructor(message, status, code, retryAfter = 0) {
    super(message)
    Object.assign(this, { name: "HeadraceError", status, code, retryAfter })
  }
}

/** `key`: an API key or a token, or a function that gives the one of now, asked before each request.
 *  `share`: tabs of one origin that give the same name share one connection. It has to name the user. */
export function connect(url = "", { key, share = key === undefined ? "" : undefined, fetch = globalThis.fetch } = {}) {
  const feed = new Feed(url.replace(/\/+$/, ""), typeof key === "function" ? key : () => key, share, fetch)
  return { live: (view, params = {}) => feed.answers.get(nameOf(view, params)) ?? new Live(feed, view, params) }
}

const nameOf = (view, params) => JSON.stringify([view, params])
const START = { headers: { control: "snapshot-start" } }

/** An answer that stays right while somebody subscribes to it. */
export class Live {
  /** `rows` in the answer's order; `state`: "idle", "loading", "live", "waiting" (to ask again) or "failed"; `error`.
   *  A new object at each change. What is shown stays until there is something newer. */
  now = { rows: [], state: "idle", error: undefined }
  offset
  tabs = new Set()
  #feed
  #keys = []
  #clock
  #listeners = new Set()
  #reaching = new Set()

  constructor(feed, view, params) {
    Object.assign(this, { view, params, name: nameOf(view, params) })
    this.#feed = feed
  }

  /** Calls `listener(now, changes)` at each step. The first one connects; when the last one leaves it ends. */
  subscribe = (listener) => {
    const active = this.#feed.answers.get(this.name)
    if (active && active !== this) {
      this.now = active.now
      return active.subscribe((now, changes) => ((this.now = now), listener(now, changes)))
    }
    const own = { listener }
    this.#listeners.add(own)
    if (!active) {
      this.show({ state: "loading", error: undefined })
      this.#feed.answers.set(this.name, this)
      this.#feed.changed()
    }
    return () => {
      this.#listeners.delete(own)
      if (!this.#listeners.size) this.show({ state: "idle" })
      this.#feed.prune()
    }
  }

  isWanted() {
    return this.#listeners.size + this.tabs.size
  }

  /** Resolves when this reflects a write, by the token of its answer; also where the write changed nothing here. */
  reached(token, timeout = 10_000) {
    const active = this.#feed.answers.get(this.name)
    if (active && active !== this) return active.reached(token, timeout)
    return new Promise((resolve, reject) => {
      const waiting = { clock: decode(token), resolve, reject }
      if (this.#reflects(waiting.clock)) return resolve()
      this.#reaching.add(waiting)
      const signal = AbortSignal.timeout(timeout)
      signal.onabort = () => this.#reaching.delete(waiting) && reject(new HeadraceError(`${timeout} ms`))
      setTimeout(() => this.#reaching.has(waiting) && this.#feed.ask(this, {}, signal, token).catch(() => {}), SOON)
    })
  }

  #reflects(clock) {
    return this.#clock && Object.entries(clock).every(([shard, at]) => !(this.#clock[shard] < at))
  }

  /** What one moment has changed, and where that leads. */
  step(messages, offset, clock) {
    const from = this.offset
    this.offset = offset ?? from
    this.#clock = clock || this.#clock
    if (messages[0]?.headers.control) this.#replace(messages)
    else this.#fold(messages)
    if (this.now.state !== "live") this.show({ state: "live", error: undefined })
    this.#feed.told(this, { messages, from, offset, clock })
    for (const waiting of this.#reaching)
      if (this.#reflects(waiting.clock)) this.#reaching.delete(waiting) && waiting.resolve()
  }

  fail(error) {
    this.#feed.answers.delete(this.name)
    this.#feed.told(this, { error })
    this.show({ state: "failed", error })
    for (const { reject } of this.#reaching) reject(error)
  }

  whole() {
    const rows = this.#keys.map((key, at) => ({ key, value: this.now.rows[at], headers: { operation: "insert" } }))
    return { messages: [START, ...rows], offset: this.offset, clock: this.#clock }
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
    if (changes.length) this.show({ rows: rows.map((each) => each.value) }, changes)
  }

  /** What goes and what moves is taken out, then the rest is put in, place by place. */
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
    this.show({ rows: list.map(([, value]) => value) }, changes)
  }

  show(news, changes = []) {
    this.now = { ...this.now, ...news }
    for (const { listener } of [...this.#listeners]) listener(this.now, changes)
  }
}

class Feed {
  /** What is followed here, by name. */
  answers = new Map()
  #stop
  #timer
  #cut
  #channel
  #leads
  #tab = Math.random()
  #polls = false
  #opened
  #heard

  constructor(base, key, share, fetch) {
    Object.assign(this, { base, key, share, fetch })
  }

  /** Other answers are wanted than before. */
  changed() {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      if (!this.#stop && this.answers.size) this.#start()
      else if (!this.answers.size && !this.#channel) this.#stop?.abort()
      else if (this.#leads) this.#cut?.()
      else this.#want()
    })
  }

  prune() {
    for (const answer of this.answers.values())
      if (!answer.isWanted() && this.answers.delete(answer.name)) this.changed()
  }

  /** Pass on what an answer was told. */
  told({ name, tabs }, what) {
    if (this.#leads && tabs.size) this.#channel?.postMessage({ name, ...what })
  }

  #start() {
    const { signal } = (this.#stop = new AbortController())
    const shared = this.share !== undefined && globalThis.navigator?.locks && globalThis.BroadcastChannel
    this.#polls = false
    ;(shared ? this.#inTurn(`headrace ${this.share} ${this.base}`, signal) : this.#run(signal))
      .catch((error) => signal.aborted || this.answers.forEach((each) => each.fail(error)))
      .finally(() => {
        this.#stop = this.#leads = undefined
        if (this.answers.size) this.changed()
      })
    if (!shared) this.#leads = true
  }

  async #inTurn(name, signal) {
    const channel = (this.#channel = new BroadcastChannel(name))
    channel.onmessage = ({ data }) => (data.want ? this.#wanted(data) : data.lead ? this.#want() : this.#passed(data))
    this.#want()
    await navigator.locks.request(name, { signal }, () => {
      this.#leads = true
      const call = () => {
        for (const answer of this.answers.values()) answer.tabs.clear()
        channel.postMessage({ lead: true })
        setTimeout(() => this.prune(), SHORT)
      }
      call()
      const rolls = setInterval(call, ROLL_CALL)
      return this.#run(signal).finally(() => clearInterval(rolls))
    })
  }

  #want() {
    if (this.#leads || !this.#channel) return
    const want = [...this.answers.values()].map(({ view, params, offset }) => ({ view, params, offset }))
    this.#channel.postMessage({ tab: this.#tab, want })
  }

  /** Said to the leader. */
  #wanted({ tab, want }) {
    if (!this.#leads) return
    for (const answer of this.answers.values()) answer.tabs.delete(tab)
    for (const { view, params, offset } of want) {
      const name = nameOf(view, params)
      let answer = this.answers.get(name)
      if (!answer) {
        this.answers.set(name, (answer = new Live(this, view, params)))
        this.changed()
      }
      answer.tabs.add(tab)
      if (answer.offset && answer.offset !== offset) this.#channel.postMessage({ name, ...answer.whole() })
    }
    this.prune()
  }

  /** Said by the leader. A step from elsewhere than this tab is at is not for it: it asks for the whole answer. */
  #passed({ name, messages, from, offset, clock, error }) {
    const answer = this.answers.get(name)
    if (!answer || this.#leads) return
    if (error) answer.fail(error)
    else if (messages[0]?.headers.control || from === answer.offset) answer.step(messages, offset, clock)
    else if (answer.offset !== offset) this.changed()
  }

  async #run(signal) {
    for (let requests = 0, short = 0, wait = FIRST_WAIT; !signal.aborted; ) {
      const own = new AbortController()
      let again
      this.#cut = () => ((again = true), own.abort())
      signal.onabort = () => own.abort()
      const begun = Date.now()
      const streams = !this.#polls
      let pause = 0
      this.#opened = this.#heard = false
      try {
        if (!this.answers.size) await sleep(LONGEST_WAIT, own.signal)
        else if (streams) await this.#stream(own)
        else pause = await this.#pollAll(own.signal)
      } catch (error) {
        if (signal.aborted) return
        if (!again) pause = await this.#refused(error, requests, own.signal, wait)
      }
      if (again) continue
      const lasted = Date.now() - begun > SHORT
      if (streams && this.#opened) short = lasted && this.#heard ? 0 : short + 1
      this.#polls ||= short >= SHORT_STREAMS
      requests = lasted || this.#heard ? 0 : requests + 1
      if (requests > REQUESTS) pause ||= wait
      wait = pause && !this.#heard ? Math.min(2 * wait, LONGEST_WAIT) : FIRST_WAIT
      if (pause) await sleep(pause * (0.75 + Math.random() / 2), signal).catch(() => {})
    }
  }

  /** What to do where a request was refused, or nothing answers: how long to wait before the next one. */
  async #refused(error, requests, signal, wait) {
    const answers = [...this.answers.values()]
    const isFinal = ({ status }) => status >= 400 && status < 500 && status !== 429
    if (error.status === 401 && !requests) return 0 // A key that is renewed.
    if (!isFinal(error)) {
      for (const each of answers) each.show({ state: "waiting", error })
      return 1000 * error.retryAfter || wait
    }
    // It may be about one of them, for which the others are not to suffer.
    for (const each of answers) await this.ask(each, {}, signal).catch((own) => isFinal(own) && each.fail(own))
    return 0
  }

  async #request(path, signal, init) {
    const credential = await this.key()
    const headers = { ...init?.headers, ...(credential !== undefined && { authorization: `Bearer ${credential}` }) }
    const response = await (0, this.fetch)(this.base + path, { ...init, headers, signal, cache: "no-store" })
    if ((this.#opened = response.ok)) return response
    const { error } = await response.json().catch(() => ({}))
    const after = Number(response.headers.get("retry-after"))
    throw new HeadraceError(error?.message ?? response.statusText, response.status, error?.code, after)
  }

  async #pollAll(signal) {
    const answers = [...this.answers.values()]
    const way = answers.length === 1 && answers[0].offset && { live: "long-poll" }
    await Promise.all(answers.map((each) => this.ask(each, way, signal)))
    return way ? 0 : SHORT // A single one waits at the server.
  }

  /** With a token only for the effect: all who follow the answer are told of its place as soon as that is reached. */
  async ask(answer, live, signal, token) {
    const { view, params, offset = "-1" } = answer
    const query = new URLSearchParams({ offset: token ? "now" : offset, ...live })
    for (const [name, value] of Object.entries(params)) for (const each of [value].flat()) query.append(name, each)
    const path = `/v1/views/${encodeURIComponent(view)}/live?${query}`
    try {
      const response = await this.#request(path, signal, token && { headers: { "headrace-token": token } })
      if (token) return
      const messages = response.status === 204 ? [] : await response.json()
      const { headers } = response
      this.#heard ||= messages.length
      answer.step(messages, headers.get("stream-next-offset"), decode(headers.get("headrace-token")))
    } catch (error) {
      if (error.status !== 410) throw error
      answer.offset = undefined
    }
  }

  async #stream(own) {
    const cut = () => own.abort()
    let timer = setTimeout(cut, SILENCE)
    const asked = ({ view, params, offset, name }) => ({ view, parameters: params, offset, name })
    const body = JSON.stringify({ subscriptions: [...this.answers.values()].map(asked) })
    try {
      const init = { method: "POST", headers: { "content-type": "application/json" }, body }
      const reader = (await this.#request("/v1/live", own.signal, init)).body.getReader()
      const decoder = new TextDecoder()
      const pending = []
      for (let text = "", read; !(read = await reader.read()).done; ) {
        clearTimeout(timer)
        timer = setTimeout(cut, SILENCE)
        const events = (text + decoder.decode(read.value, { stream: true })).split("\n\n")
        text = events.pop()
        events.forEach((each) => this.#event(each, pending, own))
      }
    } finally {
      clearTimeout(timer)
    }
  }

  /** A step's messages count when its offset has come: if the connection breaks between them, they come again. */
  #event(text, pending, own) {
    const [, event, data] = /^event: (\w+)\ndata: (.*)$/m.exec(text) ?? []
    if (event === "data") pending.push(...JSON.parse(data))
    if (event !== "control") return
    const { subscription, streamNextOffset, token, ended } = JSON.parse(data)
    this.#heard ||= !ended
    this.answers.get(subscription)?.step(pending.splice(0), streamNextOffset, token && decode(token))
    if (ended) own.abort() // Why, the next request is told.
  }
}

/** The positions in a token: `h1.` and JSON in URL-safe base64. */
function decode(token) {
  if (token === null) return
  try {
    const binary = atob(token.slice(3).replace(/-/g, "+").replace(/_/g, "/"))
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, (each) => each.charCodeAt(0))))
  } catch {
    throw new HeadraceError("malformed token: give a write's")
  }
}

const sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener("abort", () => (clearTimeout(timer), reject()))
  })
