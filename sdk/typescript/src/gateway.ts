/// <reference lib="esnext.disposable" preserve="true" />
import { NotDone, Unknown } from './errors.js'
import { Subscription } from './events.js'
import { withNonce, type NonceHold, type NonceOptions } from './hold.js'
import { Link, leftOf, type Answer, type Repeat } from './link.js'
import type {
  AllocateParams, Allocation, CallOptions, Extension, Floor, GatewayOptions, Guard, Hold, Info, ListParams, Mark, Missed, NonceEvent,
  Page, Repair, RepairParams, SignerStatus,
} from './types.js'

/**
 * A gateway, over a connection that is kept: when it breaks it comes back, for ever, but for a close
 * code of 4500 or more and a refused credential. One object serves a whole program. Every call ends
 * with its result or one of {@link NotDone}, {@link Unknown}, {@link Refused}, after
 * {@link CallOptions.timeoutMs} at the latest; reads, marks, and allocations and repairs (by their
 * request id) are repeated by themselves meanwhile. All times are milliseconds.
 */
export class Gateway {
  #link: Link

  /** Connects. A mistake in the URL or the options throws {@link NotDone}. Of several URLs each is tried in turn. */
  constructor(url: string | readonly string[], options: GatewayOptions = {}) {
    this.#link = new Link(url, options)
  }

  /** Hands out nonces of a signer, held until they are marked or the hold ends. Repeated with the same request id. */
  async allocate(params: AllocateParams, options?: CallOptions): Promise<Allocation> {
    const requestId = params.requestId ?? randomId()
    return this.#held<Allocation>('nonce_allocate', { ...params, requestId }, options, requestId)
  }

  /** Says that a transaction with this nonce was sent. With another hash it is a replacement, recorded beside the first. */
  markUsed(hold: Hold, txHash?: string, options?: CallOptions & { guard?: Guard }): Promise<Mark> {
    return this.#mark('nonce_markUsed', hold, { txHash }, options)
  }

  /**
   * Records the hash of a transaction before it is sent. Send it only when this resolves: after
   * {@link Refused} another may hold the nonce, and after {@link Unknown} the same call tells.
   */
  markSigned(hold: Hold, txHash: string, options?: CallOptions & { guard?: Guard }): Promise<Mark> {
    return this.#mark('nonce_markSigned', hold, { txHash }, options)
  }

  /**
   * Gives a nonce back. Only when no transaction with it was sent; where a hash is recorded with
   * `unsent`, which says that no node has that transaction.
   */
  markRecyclable(hold: Hold, options: CallOptions & { reason?: string; unsent?: boolean; guard?: Guard } = {}): Promise<Mark> {
    return this.#mark('nonce_markRecyclable', hold, { reason: options.reason, unsent: options.unsent }, options)
  }

  /** Gives a hold that runs a new deadline, so many milliseconds from now. */
  extend(hold: Hold, holdMs: number, options?: CallOptions): Promise<Extension> {
    return this.#held<Extension>('nonce_extend', { ...named(hold), holdMs }, options)
  }

  /** Hands out the nonce that blocks others, whatever its state, to replace or cancel its transaction. */
  async repair(params: RepairParams, options?: CallOptions): Promise<Repair> {
    const requestId = params.requestId ?? randomId()
    return this.#held<Repair>('nonce_repair', { ...params, requestId }, options, requestId)
  }

  /** A signer's state in numbers. */
  status(signer: string, options?: CallOptions): Promise<SignerStatus> {
    return this.#ask('nonce_status', { signer }, 'read', options)
  }

  /** One page of a signer's nonces, in their order. */
  list(params: ListParams, options?: CallOptions): Promise<Page> {
    return this.#ask('nonce_list', params, 'read', options)
  }

  /** Raises the lowest nonce that may be handed out; never lowers it. */
  setFloor(signer: string, floor: number, options?: CallOptions): Promise<Floor> {
    return this.#ask('nonce_setFloor', { signer, floor }, 'same', options)
  }

  /** Who the gateway is, and its limits. */
  info(options?: CallOptions): Promise<Info> {
    return this.#ask('gateway_info', [], 'read', options)
  }

  /** Any other method. `repeat`: 'read' where it changes nothing, 'same' where a repeat is answered the same; default 'never'. */
  call<T = unknown>(method: string, params: object, options?: CallOptions & { repeat?: Repeat }): Promise<T> {
    return this.#ask(method, params, options?.repeat ?? 'never', options)
  }

  /**
   * The events of the signers given, or of all, until the loop is left, `signal` is aborted or the
   * object is closed. It comes back after an interruption; where events are missing, a {@link Missed} says so.
   * Resolves once the gateway has taken it up, so that what is changed afterwards is seen.
   */
  async events(options: CallOptions & { signers?: readonly string[] } = {}): Promise<AsyncIterableIterator<NonceEvent | Missed>> {
    const s = new Subscription(this.#link, options.signers, options.signal)
    await s.open(options)
    return s
  }

  /**
   * Allocates a nonce, calls `fn` with it, and says what became of it.
   *
   * - `fn` returns: marked used, with the hash that it returned, else the last that it recorded.
   * - `fn` throws {@link notSent}: given back. With `recordFirst` also whatever it throws before it called `signed`.
   * - `fn` throws anything else: left as it is, because a node may have the transaction. It is marked
   *   by whoever finds out, or its hold ends.
   *
   * `hold.signal` is aborted when the hold ends: send nothing after that. What is thrown before `fn` was
   * called is that of {@link allocate}. When `fn` has returned and the mark fails, its error is thrown; where `fn`
   * had recorded the hash, it does not matter and is not.
   */
  withNonce<T extends string | void>(signer: string, fn: (hold: NonceHold) => Promise<T>, options: NonceOptions = {}): Promise<T> {
    return withNonce(this, signer, fn, options)
  }

  /** Waits for the calls under way (5 s at most), closes the connection, and leaves nothing that keeps the process alive. */
  close(): Promise<void> {
    return this.#link.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #mark(method: string, hold: Hold, more: object, options: (CallOptions & { guard?: Guard }) | undefined): Promise<Mark> {
    return this.#ask(method, { ...named(hold), ...more, guard: options?.guard }, 'same', options)
  }

  async #ask<T>(method: string, params: object, repeat: Repeat, options: CallOptions | undefined): Promise<T> {
    return (await this.#link.call({ method, params, repeat }, options)).result as T
  }

  async #held<T extends { holdMs: number; leftMs(): number }>(
    method: string, params: object, options?: CallOptions, requestId?: string,
  ): Promise<T> {
    const { result, sentAt }: Answer = await this.#link.call({ method, params, repeat: 'same', requestId }, options)
    const held = result as T & { nonce: number }
    // It has happened, and cannot be told.
    if (!Number.isSafeInteger(held?.nonce))
      throw new Unknown(method, new Error(`the nonce ${held?.nonce} is no number that JavaScript can hold`), requestId)
    return Object.assign(held, requestId && { requestId }, { leftMs: () => leftOf(held.holdMs, sentAt) })
  }
}

const named = ({ signer, nonce, attempt }: Hold): Hold => ({ signer, nonce, attempt })

/** randomId is a request id. (A page that came over plain HTTP has no crypto.randomUUID.) */
function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('')
}

/** The signer of an Ethereum account, `eip155:CHAINID:0xaddress`. */
export function signerOf(chainId: number | bigint, address: string): string {
  if (BigInt(chainId) < 1n) throw new NotDone('', `chainId: must be 1 or more, is ${chainId}`)
  if (!/^0x[0-9a-f]{40}$/i.test(address)) throw new NotDone('', `address: must be 0x and 40 hexadecimal digits, is ${address}`)
  return `eip155:${chainId}:${address.toLowerCase()}`
}
