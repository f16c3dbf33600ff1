import type { Line, Link } from './link.js'
import type { CallOptions, Missed, NonceEvent } from './types.js'

type Item = NonceEvent | Missed

const room = 256 // events that a consumer may lag behind

/** A subscription that comes back. It has one consumer. */
export class Subscription implements AsyncIterableIterator<Item> {
  #link: Link
  #params: unknown[]
  #signal: AbortSignal | undefined
  #items: Item[] = []
  #missed = 0
  #gap = false
  #waiting: { resolve(r: IteratorResult<Item>): void; reject(e: unknown): void }[] = []
  #ended = false
  #error: unknown
  #at: Line | undefined
  #id = ''

  constructor(link: Link, signers: readonly string[] | undefined, signal: AbortSignal | undefined) {
    this.#link = link
    this.#params = signers ? ['events', { signers }] : ['events']
    this.#signal = signal
    signal?.addEventListener('abort', this.#stop)
  }

  async open(options: CallOptions, patient = false): Promise<void> {
    try {
      await this.#link.call({ method: 'nonce_subscribe', params: this.#params, repeat: 'read', patient, live: this.#live }, options)
    } catch (e) {
      this.#end(e)
      if (!patient) throw e
    }
  }

  next(): Promise<IteratorResult<Item>> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject })
      this.#flush()
    })
  }

  async return(): Promise<IteratorResult<Item>> {
    this.#stop()
    return { done: true, value: undefined }
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #stop = (): void => this.#end(undefined)

  #end(error: unknown): void {
    if (this.#ended) return
    this.#ended = true
    this.#error = error
    this.#signal?.removeEventListener('abort', this.#stop)
    this.#at?.subs.delete(this.#id)
    if (this.#at) this.#link.tell(this.#at, 'nonce_unsubscribe', [this.#id])
    this.#flush()
  }

  #live = (id: unknown, at: Line): void => {
    if (this.#ended) return this.#link.tell(at, 'nonce_unsubscribe', [id])
    this.#at = at
    this.#id = String(id)
    at.subs.set(this.#id, { event: this.#event, lost: this.#lost })
    if (this.#gap) this.#flush()
  }

  #lost = (): void => {
    this.#at = undefined
    this.#gap = true
    if (this.#ended) return
    void this.open({}, true)
  }

  #event = (said: Record<string, unknown>): void => {
    const { missed, ...event } = said
    this.#missed += Number(missed ?? 0)
    if (this.#items.length >= room) return void this.#missed++
    this.#note()
    this.#items.push(event as unknown as NonceEvent)
    this.#flush()
  }

  /** #note puts down what is missing before what comes next. */
  #note(): void {
    if (this.#gap) this.#items.push({ type: 'missed' })
    else if (this.#missed > 0) this.#items.push({ type: 'missed', missed: this.#missed })
    this.#gap = false
    this.#missed = 0
  }

  #flush(): void {
    if (this.#items.length === 0 && (this.#missed > 0 || (this.#gap && this.#at))) this.#note()
    while (this.#waiting.length > 0) {
      const value = this.#items.shift()
      if (value) this.#waiting.shift()!.resolve({ done: false, value })
      else if (!this.#ended) return
      else if (this.#error === undefined || this.#link.closed) this.#waiting.shift()!.resolve({ done: true, value: undefined })
      else {
        this.#waiting.shift()!.reject(this.#error)
        this.#error = undefined
      }
    }
  }
}
