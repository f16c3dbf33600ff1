import type { Gateway } from './gateway.js'
import { NotDone, sentence } from './errors.js'
import type { Allocation, CallOptions, Guard, Mark } from './types.js'

/** How {@link Gateway.withNonce} takes its nonce. */
export interface NonceOptions extends CallOptions {
  /** Milliseconds; default: the gateway's. */
  holdMs?: number
  /**
   * With the id of a call that ended without a word, as in a process that was killed, the same hold is
   * found again while it runs: look what was sent with it before you send.
   */
  requestId?: string
  guard?: Guard
  /** See {@link AllocateParams.recordFirst}; call `hold.signed` before you send. */
  recordFirst?: boolean
}

/** The nonce that the function of {@link Gateway.withNonce} has. */
export interface NonceHold extends Allocation {
  /** Aborted when the hold ends, or the caller's signal is aborted. */
  readonly signal: AbortSignal
  /** Records the hash of a transaction that is about to be sent. Send it only when this resolves. */
  signed(txHash: string): Promise<Mark>
}

class NotSent extends Error {}

/** Makes the error that says that the transaction was given to nobody: {@link Gateway.withNonce} gives the nonce back, and throws `why`. */
export function notSent(why: unknown): Error {
  return new NotSent(sentence(why), { cause: why })
}

export async function withNonce<T extends string | void>(
  gateway: Gateway, signer: string, fn: (hold: NonceHold) => Promise<T>, options: NonceOptions,
): Promise<T> {
  const { signal, timeoutMs, ...params } = options
  const a = await gateway.allocate({ signer, ...params }, { ...(signal && { signal }), ...(timeoutMs !== undefined && { timeoutMs }) })
  let signed = false, recorded: string | undefined
  const back = async (why: unknown) => {
    // The mark does not depend on the caller's signal. When it fails, the hold ends by itself, and free.
    await gateway.markRecyclable(a, { reason: 'handler_error', unsent: signed, timeoutMs: 10_000 }).catch(() => {})
    return why
  }
  const ended = new NotDone('', `the hold of nonce ${a.nonce} has ended`)
  if (a.leftMs() <= 0) throw options.requestId && !options.recordFirst ? ended : await back(ended)
  const ends = new AbortController()
  const abort = () => ends.abort(signal?.reason)
  signal?.addEventListener('abort', abort)
  let timer: ReturnType<typeof setTimeout>
  const watch = () => { // again and again: a timer may stand still while the machine sleeps
    const left = a.leftMs()
    if (left <= 0) ends.abort(ended)
    else timer = setTimeout(watch, Math.min(left, 1_000))
  }
  watch()
  let used: T
  try {
    if (signal?.aborted) throw notSent(signal.reason)
    used = await fn({
      ...a,
      signal: ends.signal,
      async signed(txHash) {
        signed = true
        const mark = await gateway.markSigned(a, txHash)
        recorded = txHash
        return mark
      },
    })
  } catch (e) {
    if (e instanceof NotSent) throw await back(e.cause)
    throw options.recordFirst && !signed ? await back(e) : e
  } finally {
    clearTimeout(timer!)
    signal?.removeEventListener('abort', abort)
  }
  const txHash = typeof used === 'string' ? used : recorded
  const mark = gateway.markUsed(a, txHash, { timeoutMs: 10_000 })
  // Where its hash is recorded, the nonce counts as used also without this mark.
  await (recorded !== undefined && txHash === recorded ? mark.catch(() => {}) : mark)
  return used
}
