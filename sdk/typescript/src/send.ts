// Sending a transaction with a nonce of the gateway, whatever library made it.
import { NoncegateError, NotDone, Refused, sentence } from './errors.js'
import type { Gateway } from './gateway.js'
import type { Grade, Outcome } from './grade.js'
import { leftOf, now } from './link.js'
import type { Hold } from './types.js'

/** A transaction was sent, and the node did not take it, or did not say so. `cause` is the library's error. */
export class SendError extends Error {
  /** What the answer means, and what was done with the nonce. */
  readonly outcome: Outcome
  /** The same bytes may be taken later. */
  readonly later: boolean
  readonly hold: Hold
  readonly txHash: string
  /** The signed transaction. The same bytes may be sent again at any time. */
  readonly raw: string
  /** The nonce was given back, so that others get it. */
  readonly givenBack: boolean
  constructor(grade: Grade, { hold, txHash, raw }: Signed, givenBack: boolean, cause: unknown) {
    const back = givenBack ? ', and the nonce was given back' : ''
    super(`nonce ${hold.nonce} of ${hold.signer}: ${meaning[grade.outcome]}${back}: ${brief(cause)}`, { cause })
    this.name = 'SendError'
    this.outcome = grade.outcome
    this.later = grade.later ?? false
    this.hold = { signer: hold.signer, nonce: hold.nonce, attempt: hold.attempt }
    this.txHash = txHash
    this.raw = raw
    this.givenBack = givenBack
  }
}

/** A transaction that is signed, and not recorded and sent yet. */
export interface Signed {
  hold: Hold
  txHash: string
  raw: string
}

/** brief is what a library's error says, without the whole request. */
function brief(cause: unknown): string {
  const { shortMessage, details } = cause as { shortMessage?: string; details?: string }
  return (shortMessage && details ? `${shortMessage} ${details}` : sentence(cause)).slice(0, 1_000)
}

const meaning: Record<Outcome, string> = {
  in_pool: 'the node has the transaction',
  used: 'a block has used the nonce',
  taken: 'another transaction of the nonce waits at the node',
  unknown: 'it is not known whether the node has the transaction',
  refused: 'the node refused the transaction, and the nonce stays held',
  free: 'the node refused the transaction',
  not_reached: 'the node was not reached',
}

export interface Delivery extends Signed {
  /** The nonce is not given back, because this transaction or another of the nonce may have been sent before. */
  keep: boolean
  /** Called before anything else. */
  signed?: ((tx: Signed) => unknown) | undefined
  /** Gives the bytes to the node, once. */
  send(): Promise<unknown>
  grade(error: unknown): Grade
  /** Whether this very transaction is mined or known, where the nonce is used. */
  found(): Promise<boolean>
}

/** deliver records the hash, sends, and says at the gateway what became of it. What it throws first was not sent. */
export async function deliver(gateway: Gateway, d: Delivery): Promise<void> {
  const { hold, txHash, raw } = d
  const back = async () => {
    if (d.keep) return
    await gateway.markRecyclable(hold, { unsent: true, reason: 'not sent', timeoutMs: 10_000 }).catch(() => {}) // then its hold ends
  }
  let begin = now()
  let left = Infinity
  try {
    await d.signed?.({ hold, txHash, raw })
    begin = now()
    const mark = await gateway.markSigned(hold, txHash)
    if (mark.holdMs !== undefined) left = leftOf(mark.holdMs, begin)
  } catch (e) {
    if (!(e instanceof Refused && e.reason === 'conflict')) await back()
    throw e
  }
  if (left <= 0) {
    await back()
    throw new NotDone('', `the hold of nonce ${hold.nonce} has ended; nothing was sent`)
  }
  let grade: Grade
  try {
    await d.send()
    grade = { outcome: 'in_pool' }
  } catch (e) {
    grade = d.grade(e)
    if (grade.outcome === 'used' && await d.found().catch(() => false)) grade = { outcome: 'in_pool' }
    const free = grade.outcome === 'free' || grade.outcome === 'not_reached'
    if (free) await back()
    if (grade.outcome !== 'in_pool') throw new SendError(grade, d, free && !d.keep, e)
  }
  // Not waited for: the hash is recorded, so the nonce counts as used also without this mark.
  gateway.markUsed(hold, txHash).catch(() => {})
}

/** giveBack is for what failed before anything was signed. */
export async function giveBack(gateway: Gateway, hold: Hold, why: unknown): Promise<void> {
  const reason = sentence(why).replace(/[^\x20-\x7e]/g, ' ').slice(0, 100)
  await gateway.markRecyclable(hold, { reason, timeoutMs: 10_000 }).catch(() => {})
}

/** checkSender refuses what another account signed than the one whose nonce it has. */
export function checkSender(hold: Hold, from: string): void {
  if (!hold.signer.endsWith(from.toLowerCase()))
    throw new NotDone('', `signer: it signs as ${from}, and the nonce is of ${hold.signer}; nothing was sent`)
}

/** checkBlobs refuses to replace a transaction with blobs by one without: no node takes that. */
export function checkBlobs({ blobs, kzg }: { blobs?: unknown; kzg?: unknown }): void {
  if (!blobs || !kzg)
    throw new NotDone('', 'blobs: a node does not give them back, and what replaces a transaction with blobs has some; give blobs and kzg')
}

/** noFallback is why one is refused. */
export const noFallback =
  'would send a refused transaction elsewhere; use one node, or list several at the gateway and use its /eth/CHAIN'

/** ownError finds an error of this package among the causes of a library's. */
export function ownError(e: unknown): unknown {
  for (let inner = e, i = 0; inner instanceof Error && i < 8; inner = inner.cause, i++)
    if (inner instanceof SendError || inner instanceof NoncegateError) return inner
  return e
}

/** heldByUs finds the hold of a transaction that was sent through the gateway. */
export async function heldByUs(gateway: Gateway, signer: string, nonce: number, txHash: string): Promise<Hold> {
  const { allocations: [row] } = await gateway.list({ signer, from: nonce, limit: 1 })
  const hashes = row?.txHashes ?? (row?.txHash ? [row.txHash] : [])
  if (row?.nonce !== nonce || !hashes.some((h) => h.toLowerCase() === txHash.toLowerCase()))
    throw new NotDone('', `transaction ${txHash} is not recorded for nonce ${nonce} of ${signer}`)
  if (row.chain === 'mined' || row.chain === 'final' || row.chain === 'external')
    throw new NotDone('', `nonce ${nonce} of ${signer} is used already (${row.chain})`)
  return { signer, nonce, attempt: row.attempt }
}

/** raised is a fee at which a node takes a replacement: an eighth more (blobs: twice as much), and no less than is asked now. */
export function raised(old: bigint | undefined, asked: bigint | undefined, blobs = false): bigint {
  const least = blobs ? (old ?? 0n) * 2n : ((old ?? 0n) * 9n + 7n) / 8n
  return least > (asked ?? 0n) ? least : asked ?? 0n
}

const chainWaitMs = 10_000

/** asksChain waits until the gateway knows what the chain says of a signer that is new to it, and throws when it does not ask. */
export async function asksChain(gateway: Gateway, signer: string): Promise<void> {
  for (const begin = now(); ; await new Promise((r) => setTimeout(r, 100))) {
    const { chain, next, floor } = await gateway.status(signer)
    if (chain || next > 0 || floor > 0) return
    if (leftOf(chainWaitMs, begin) <= 0)
      throw new NotDone('', `chain: the gateway does not ask that of ${signer} (--chain), or no node of it answers; they would begin at 0`)
  }
}
