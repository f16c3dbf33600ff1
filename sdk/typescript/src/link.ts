// The connection that is kept, and the table of requests above it. A request lives in the table
// from its call to its answer, over as many connections as that takes; a connection only carries
// it. So nothing is buffered below the table, and after a break it is known of each request
// whether it was sent. Where a gateway says that another one owns a signer (--forward=off), the request
// moves into the table of a link to that one, which is not kept up: what it loses moves back.
import { headers, open } from '#socket'
import { ConnectionError, NotDone, Refused, Unknown, sentence, type ErrorData } from './errors.js'
import type { End, Handlers, Socket } from './socket.js'
import type { CallOptions, GatewayOptions } from './types.js'

/** What may be done with a request whose answer was lost. */
export type Repeat =
  | 'never' // a write that might happen twice
  | 'same' // a write that is answered the same when it is repeated
  | 'read' // changes nothing: its outcome is never unknown

/** A point in time, by two clocks: one of them stands still while some machines sleep. */
export interface Moment { steady: number; wall: number }

/** The present moment. */
export const now = (): Moment => ({ steady: performance.now(), wall: Date.now() })

/** How many milliseconds are left of a time that began at a moment: by the clock that went further. */
export const leftOf = (ms: number, since: Moment): number =>
  ms - Math.max(performance.now() - since.steady, Date.now() - since.wall)

/** A result, and when the try that it answers was sent. */
export interface Answer { result: unknown; sentAt: Moment }

export interface Request {
  method: string
  params: unknown
  repeat: Repeat
  requestId?: string | undefined
  /** No bound of its own: for subscriptions that come back. */
  patient?: boolean
  /** Called with the result before anything else is read from its connection. */
  live?(result: unknown, at: Line): void
}

interface Entry extends Request {
  home: Link // in whose table it is
  id: number
  frame: string
  signer: string // '' where it is about none
  followed: boolean // it went to an owner at once, which happens once
  hint: string // where the owner is that the gateway does not reach
  options: CallOptions
  resolve(a: Answer): void
  reject(e: Error): void
  at: Line | undefined // where it is under way
  sentAt: Moment | undefined
  until: number // by the steady clock
  tries: number
  doubt: unknown // why the outcome is not known
  last: Refused | undefined
  timer: ReturnType<typeof setTimeout> | undefined // ends a pause between two tries
  end: ReturnType<typeof setTimeout> | undefined // ends the call
  unlisten(): void
}

/** One life of the connection. */
export interface Line {
  socket: Socket
  isOpen: boolean
  leaving: boolean
  heardAt: number
  under: Map<number, Entry>
  /** What is called with the events of a subscription, and when it is lost. */
  subs: Map<string, { event(e: Record<string, unknown>): void; lost(): void }>
}

const dialMs = 10_000
const silentMs = 75_000 // the gateway pings every 30 s
const unansweredMs = 20_000
const longestAway = 60_000
const maxMessage = 65_536
const maxWaiting = 1024
const closeMs = 5_000
const maxOwners = 8
const maxRoutes = 4096

// What another try may meet differently. Of a full hold limit only the window moves by itself.
const passing = new Set(['server_busy', 'fenced', 'not_owner', 'unavailable', 'draining'])

export class Link {
  #urls: string[]
  #turn = 0
  #options: GatewayOptions
  #header: Record<string, string> = {}
  #line: Line | undefined // the one that takes new requests, dialled or open
  #table = new Map<number, Entry>() // in order of the calls
  #lastId = 0
  #failures = 0 // attempts to connect since the last answer
  #refusals = 0 // HTTP 401 in a row
  #final: Error | undefined
  #why: ConnectionError | undefined // the last attempt that failed
  #redial: ReturnType<typeof setTimeout> | undefined
  #watch: ReturnType<typeof setInterval>
  #ends = new Set<Line>() // that have not ended
  #idle: (() => void) | undefined
  #parent: Link | undefined // of a link to an owner
  #owners = new Map<string, Link>() // by URL
  #routes = new Map<string, string>() // of signers to the URLs of their owners, the oldest first
  /** Its program has closed it. */
  closed = false

  constructor(url: string | readonly string[], options: GatewayOptions, parent?: Link) {
    this.#options = options
    this.#parent = parent
    this.#urls = [url].flat().map(checked)
    if (this.#urls.length === 0) throw new NotDone('', 'url: at least one is needed')
    if (options.key !== undefined && options.ticket) throw new NotDone('', 'options: key and ticket exclude each other')
    if (options.key !== undefined) {
      if (!headers) throw new NotDone('', 'options.key: a page in a browser cannot send a key with a WebSocket; use ticket')
      if (!/^[\x21-\x7e]+$/.test(options.key)) throw new NotDone('', 'options.key: must be visible ASCII, without blanks')
      this.#header['Authorization'] = `Bearer ${options.key}`
    }
    this.#watch = setInterval(() => this.#listen(), 5_000)
    void this.#dial()
  }

  /** Puts a request into the table, and waits for what comes of it. */
  call(request: Request, options: CallOptions = {}): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const { method } = request
      const refuse = (why: unknown) => reject(new NotDone(method, `not sent: ${sentence(why)}`, why))
      if (this.#final) return refuse(this.#final)
      if (options.signal?.aborted) return refuse(options.signal.reason)
      const frame = JSON.stringify({ jsonrpc: '2.0', id: this.#lastId, method, params: request.params })
      if (frame.length * 3 > maxMessage && new TextEncoder().encode(frame).length > maxMessage)
        return refuse(new Error(`the request is longer than ${maxMessage} bytes`))
      const limit = this.#options.maxInflight ?? 256
      if (this.#table.size >= maxWaiting + limit && !request.patient)
        return refuse(new Error(`${this.#table.size} calls wait already`))
      const ms = request.patient ? Infinity : options.timeoutMs ?? this.#options.timeoutMs ?? 30_000
      const aborted = () => entry.home.#giveUp(entry, options.signal?.reason)
      const { signer } = request.params as { signer?: unknown }
      options.signal?.addEventListener('abort', aborted)
      const entry: Entry = {
        ...request, home: this, id: 0, frame: '', signer: typeof signer === 'string' ? signer : '', followed: false, hint: '',
        options, resolve, reject, until: performance.now() + ms, tries: 0,
        at: undefined, sentAt: undefined, doubt: undefined, last: undefined, timer: undefined, end: undefined,
        unlisten: () => options.signal?.removeEventListener('abort', aborted),
      }
      if (ms < 2 ** 31) entry.end = setTimeout(() => entry.home.#giveUp(entry, new Error(`no answer within ${ms} ms`)), ms)
      ;(this.#ownerAt(this.#routes.get(entry.signer)) ?? this).#take(entry)
    })
  }

  /** #take puts a request into this link's table, out of that where it was. */
  #take(entry: Entry): void {
    entry.home.#table.delete(entry.id)
    entry.home = this
    entry.id = ++this.#lastId
    entry.frame = JSON.stringify({ jsonrpc: '2.0', id: entry.id, method: entry.method, params: entry.params })
    this.#table.set(entry.id, entry)
    if (this.#final) this.#giveUp(entry, this.#final)
    else this.#pump()
  }

  /** #ownerAt is the link to an owner, if there may be one. */
  #ownerAt(url: string | undefined): Link | undefined {
    if (!url || this.#final) return undefined
    let owner = this.#owners.get(url)
    if (owner) return owner.#final ? undefined : owner // it was told not to come back
    try {
      if (new URL(url).username || (this.#urls[0]!.startsWith('wss:') && !url.startsWith('wss:'))) return undefined
      for (const [other, link] of this.#owners) {
        if (this.#owners.size < maxOwners) break
        if (link.#table.size > 0) continue
        this.#owners.delete(other)
        void link.close()
      }
      if (this.#owners.size >= maxOwners) return undefined
      owner = new Link(url, { ...this.#options, onConnection: () => {} }, this)
    } catch {
      return undefined
    }
    this.#owners.set(url, owner)
    return owner
  }

  #remember(signer: string, url: string): void {
    this.#routes.delete(signer)
    this.#routes.set(signer, url)
    if (this.#routes.size > maxRoutes) this.#routes.delete(this.#routes.keys().next().value!)
  }

  /** #again has a request be tried where it belongs by now. */
  #again(entry: Entry): void {
    const hinted = this.#owners.get(entry.hint)
    if (hinted && hinted.#line?.isOpen) this.#remember(entry.signer, entry.hint)
    entry.hint = ''
    const to = this.#ownerAt(this.#routes.get(entry.signer)) ?? this
    if (to === entry.home) to.#pump()
    else to.#take(entry)
  }

  /** #retire ends a link to an owner. What waits goes back to where it came from; what is under way stays until it is answered. */
  #retire(parent: Link, why: Error, final: boolean): void {
    this.#final = why
    clearTimeout(this.#redial)
    clearInterval(this.#watch)
    for (const [url, link] of parent.#owners) {
      if (link !== this) continue
      if (!final) parent.#owners.delete(url)
      for (const [signer, at] of parent.#routes) if (at === url) parent.#routes.delete(signer)
    }
    for (const entry of [...this.#table.values()]) if (!entry.at) parent.#take(entry)
    this.#rest()
  }

  /** Sends what is answered by nothing, if the line is open. */
  tell(at: Line, method: string, params: unknown): void {
    if (at.isOpen) at.socket.send(JSON.stringify({ jsonrpc: '2.0', method, params }))
  }

  /** Waits for what is under way, closes, and resolves when no timer and no socket is left. */
  async close(): Promise<void> {
    this.closed = true
    if (!this.#final) this.#stop(new ConnectionError('the gateway object was closed'), (e) => e.at === undefined)
    const limit = setTimeout(() => {
      for (const line of this.#ends) line.socket.destroy('closed')
    }, closeMs)
    await Promise.all([...this.#owners.values()].map((owner) => owner.close()))
    await new Promise<void>((resolve) => {
      const before = this.#idle
      this.#idle = () => (before?.(), this.#ends.size === 0 && resolve())
      this.#rest()
    })
    clearTimeout(limit)
  }

  /** #rest closes lines that nobody needs any more. */
  #rest(): void {
    for (const line of this.#ends)
      if ((this.#final || line.leaving) && line.under.size === 0) line.socket.close()
    this.#idle?.()
  }

  /** #stop ends all that waits, and all that comes. */
  #stop(why: Error, which: (e: Entry) => boolean = () => true): void {
    this.#final = why
    clearTimeout(this.#redial)
    clearInterval(this.#watch)
    for (const entry of [...this.#table.values()]) if (which(entry)) this.#giveUp(entry, why)
    this.#rest()
  }

  /** #giveUp ends a call that has no answer. */
  #giveUp(entry: Entry, why: unknown): void {
    const { method, requestId, last } = entry
    if (entry.at && entry.repeat !== 'read') entry.doubt ??= why
    if (entry.doubt !== undefined) return this.#settle(entry, new Unknown(method, entry.doubt, requestId, last))
    if (last && !entry.at) return this.#settle(entry, last)
    const cause = this.#line?.isOpen || this.#final ? why : this.#why ?? why
    this.#settle(entry, new NotDone(method, `nothing happened: ${sentence(why)}${cause === why ? '' : ` (${sentence(cause)})`}`, cause))
  }

  #settle(entry: Entry, outcome: Answer | Error): void {
    if (!this.#table.delete(entry.id)) return
    if (!entry.live) entry.at?.under.delete(entry.id) // the answer of a subscription is still wanted, to end it
    clearTimeout(entry.timer)
    clearTimeout(entry.end)
    entry.unlisten()
    if (outcome instanceof Error) entry.reject(outcome)
    else entry.resolve(outcome)
    this.#pump()
    this.#rest()
  }

  /** #pump sends what waits, in the order of the calls, as far as the gateway takes it. */
  #pump(): void {
    const line = this.#line
    if (!line?.isOpen || this.#final) return
    const limit = this.#options.maxInflight ?? 256
    for (const entry of this.#table.values()) {
      if (entry.at || entry.timer !== undefined) continue
      if (line.under.size >= limit) return
      entry.at = line
      entry.sentAt = now()
      entry.tries++
      if (line.under.size === 0) line.heardAt = performance.now()
      line.under.set(entry.id, entry)
      line.socket.send(entry.frame)
    }
  }

  async #dial(): Promise<void> {
    const at = this.#turn++ % this.#urls.length
    let url = this.#urls[at]!
    this.#redial = undefined
    if (this.#options.ticket) {
      try {
        const ticket = await this.#options.ticket()
        url += `${url.includes('?') ? '&' : '?'}ticket=${encodeURIComponent(ticket)}`
      } catch (e) {
        return this.#failed({ code: 0, reason: `no ticket: ${sentence(e)}`, status: 0, retryAfterMs: 0 })
      }
    }
    if (this.#final) return
    const line: Line = {
      socket: undefined as never, isOpen: false, leaving: false, heardAt: 0, under: new Map(), subs: new Map(),
    }
    const timer = setTimeout(() => line.socket.destroy(`not connected within ${dialMs} ms`), dialMs)
    this.#line = line
    this.#ends.add(line)
    const handlers: Handlers = {
      opened: () => {
        clearTimeout(timer)
        line.isOpen = true
        line.heardAt = performance.now()
        this.#why = undefined
        this.#refusals = 0
        this.#options.onConnection?.({ connected: true })
        this.#pump()
      },
      heard: () => (line.heardAt = performance.now()),
      message: (text) => this.#message(line, text),
      ended: (end) => {
        clearTimeout(timer)
        this.#ended(line, end)
      },
    }
    try {
      line.socket = open(url, this.#header, handlers)
    } catch (e) { // as a browser does whose page may not connect there
      handlers.ended({ code: 0, reason: sentence(e), status: 0, retryAfterMs: 0 })
    }
  }

  #ended(line: Line, end: End): void {
    const wasOpen = line.isOpen
    line.isOpen = false
    this.#ends.delete(line)
    const why = new ConnectionError(end.code ? `closed by the gateway: ${end.code} ${end.reason}` : end.reason, end.code, end.status)
    for (const entry of [...line.under.values()]) {
      entry.at = undefined
      if (entry.repeat !== 'read') entry.doubt ??= why
      if (this.#final && this.#parent && entry.repeat !== 'never') this.#parent.#take(entry)
      else if (entry.repeat === 'never' || this.#final) this.#giveUp(entry, why)
    }
    line.under.clear()
    if (this.#line === line) {
      this.#line = undefined
      if (wasOpen) this.#options.onConnection?.({ connected: false, why })
      if (!this.#final) this.#failed(end)
    }
    for (const sub of line.subs.values()) sub.lost()
    this.#idle?.()
  }

  /** #failed decides, after an attempt or a connection ended, whether and when there is another. */
  #failed(end: End): void {
    const { code, reason, status } = end
    const why = this.#why = new ConnectionError(code ? `closed by the gateway: ${code} ${reason}` : reason, code, status)
    if (this.#parent) return this.#retire(this.#parent, why, code >= 4500 || status === 401)
    const fresh = this.#options.ticket !== undefined // the next attempt has another credential
    if (code >= 4500 && !(code === 4501 && fresh)) return this.#stop(why)
    if (status === 401 && (!fresh || ++this.#refusals > 1)) return this.#stop(why)
    if (status === 400 || status === 403 || status === 404 || status === 405) {
      // Somebody must mend that. What was not sent is told so; the connection is tried on.
      for (const entry of [...this.#table.values()]) if (entry.doubt === undefined && !entry.patient) this.#giveUp(entry, why)
    }
    const most = Math.min(200 * 2 ** this.#failures++, 10_000)
    this.#later(Math.max(Math.random() * most, Math.min(end.retryAfterMs, longestAway)))
  }

  #later(ms: number): void {
    clearTimeout(this.#redial)
    this.#redial = setTimeout(() => void this.#dial(), ms)
  }

  /** #leave has later requests go over another connection; this one ends with its last answer. */
  #leave(line: Line): void {
    if (line.leaving) return
    line.leaving = true
    if (this.#line !== line) return
    this.#line = undefined
    for (const sub of line.subs.values()) sub.lost()
    line.subs.clear()
    if (this.#parent) return this.#retire(this.#parent, new Error('the gateway is draining'), false)
    this.#later(Math.random() * 200)
  }

  /** #listen ends lines that are silent. */
  #listen(): void {
    for (const line of this.#ends) {
      if (!line.isOpen) continue
      const silent = performance.now() - line.heardAt
      // Whoever has asked hears something sooner. Browsers do not tell of pings.
      if (silent > (line.under.size > 0 ? unansweredMs : headers ? silentMs : Infinity)) line.socket.destroy('the gateway is silent')
    }
  }

  #message(line: Line, text: string): void {
    let message: Message
    try {
      message = JSON.parse(text)
    } catch {
      return line.socket.destroy('the gateway sent no JSON')
    }
    if (message.method !== undefined) return line.subs.get(message.params?.subscription ?? '')?.event(message.params?.result ?? {})
    const entry = line.under.get(message.id ?? 0)
    if (!entry) return
    this.#failures = 0
    line.under.delete(entry.id)
    if (message.error) return this.#refused(entry, line, message.error)
    entry.live?.(message.result, line)
    this.#settle(entry, { result: message.result, sentAt: entry.sentAt! })
  }

  #refused(entry: Entry, line: Line, error: { code: number; message: string; data?: ErrorData }): void {
    const r = new Refused(entry.method, error)
    const { reason, data } = r
    entry.at = undefined
    if (reason === 'draining') this.#leave(line)
    let again = passing.has(reason) || (reason === 'hold_limit' && data.cause === 'window' && r.retryAfterMs > 0)
      || (reason === 'duplicate_submit' && entry.doubt !== undefined) // it may be the lost try of this call that runs
    if (reason === 'unavailable' && data.outcome !== 'none' && entry.repeat !== 'read') {
      again = entry.repeat === 'same'
      if (entry.doubt === undefined) entry.doubt = r
      else entry.last = r
    } else entry.last = r
    if (!this.#table.has(entry.id)) return this.#rest() // its caller does not wait any more
    if (!again) {
      const lost = entry.doubt !== undefined && reason !== 'conflict'
      return this.#settle(entry, lost ? new Unknown(entry.method, entry.doubt, entry.requestId, entry.doubt === r ? undefined : r) : r)
    }
    const root = this.#parent ?? this
    const owner = data.ownerUrl?.replace(/^http/, 'ws') ?? ''
    if (reason === 'not_owner') {
      root.#routes.delete(entry.signer)
      if (this === root && this.#ownerAt(owner)) this.#remember(entry.signer, owner)
      if (this.#routes.has(entry.signer) && !entry.followed) {
        entry.followed = true
        return this.#again(entry)
      }
    } else if (reason === 'unavailable' && this === root && this.#ownerAt(owner)) entry.hint = owner // tried beside this
    const pause = Math.max(r.retryAfterMs * (1 + Math.random() / 4), Math.random() * Math.min(100 * 2 ** entry.tries, 1_000))
    if (performance.now() + pause >= entry.until || this.#final)
      return this.#giveUp(entry, this.#final ?? new Error('no time for another try'))
    entry.timer = setTimeout(() => {
      entry.timer = undefined
      root.#again(entry)
    }, pause)
    this.#rest()
    this.#pump()
  }
}

/** A response, or a notice of a subscription. */
interface Message {
  id?: number
  result?: unknown
  error?: { code: number; message: string; data?: ErrorData }
  method?: string
  params?: { subscription: string; result: Record<string, unknown> }
}

/** checked is the URL of a gateway's WebSocket. */
function checked(url: string): string {
  let u: URL
  try {
    u = new URL(url)
  } catch {
    throw new NotDone('', `url: ${JSON.stringify(url)} is none; it looks like ws://HOST:8080/ws`)
  }
  if (u.protocol !== 'ws:' && u.protocol !== 'wss:')
    throw new NotDone('', `url: must begin with ws:// or wss://, is ${JSON.stringify(url)}`)
  if (u.hash) throw new NotDone('', 'url: must not have a fragment')
  if (u.pathname === '/') u.pathname = '/ws'
  return u.href
}
