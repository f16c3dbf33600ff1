// What an answer of a node to eth_sendRawTransaction means, by the gateway's own table.
import { answers, caution } from './answers.js'

/**
 * What a node's answer says of a transaction and its nonce:
 *
 * - `in_pool`: the node has it.
 * - `used`: a block used the nonce, with this transaction or another.
 * - `taken`: another transaction of the nonce is in the node's pool.
 * - `unknown`: nobody knows. Send the same bytes again, or look for the hash; nothing else.
 * - `refused`: the node does not have it. The nonce stays with its holder, who may send another transaction of it, or the same later.
 * - `free`: the node does not have it, for a reason in the transaction alone. The nonce was given back.
 * - `not_reached`: the node was not asked. The nonce was given back.
 */
export type Outcome = 'in_pool' | 'used' | 'taken' | 'unknown' | 'refused' | 'free' | 'not_reached'

export interface Grade {
  outcome: Outcome
  /** A lower nonce is missing. */
  missing?: boolean
  /** The same transaction may be taken later. */
  later?: boolean
}

const table = answers.map((a) => ({ ...a, text: new RegExp(`(?:${a.patterns.join(')|(?:')})`, 'i') }))

/** gradeTexts is the most cautious of what the texts of a refusal mean. */
export function gradeTexts(texts: string[]): Grade {
  let best: Grade | undefined
  for (const text of texts) {
    const g = gradeText(text)
    if (g && (!best || caution.indexOf(g.outcome) < caution.indexOf(best.outcome))) best = g
  }
  return best ?? { outcome: 'unknown' }
}

function gradeText(text: string): Grade | undefined {
  for (const row of table) {
    const found = row.text.exec(text)
    if (!found) continue
    const more = { ...(row.missing && { missing: true }), ...(row.later && { later: true }) }
    if (row.class !== 'numbers') return { outcome: row.class as Outcome, ...more }
    const numbers = Object.entries(found.groups ?? {}).filter(([, n]) => n !== undefined)
    const [tx, next] = ['tx', 'next'].map((name) => BigInt(numbers.find(([key]) => key.startsWith(name))?.[1] ?? 0))
    if (tx! < next!) return { outcome: 'used' }
    return tx! > next! ? { outcome: 'refused', missing: true, later: true } : { outcome: 'unknown' }
  }
  return undefined
}

/** textsOf are the texts in the data of a refusal: some nodes put the reason there. */
export function textsOf(data: unknown): string[] {
  const texts: string[] = []
  const walk = (v: unknown, depth: number) => {
    if (depth > 4 || texts.length >= 16) return
    if (typeof v === 'string') texts.push(v)
    else if (Array.isArray(v)) for (const e of v) walk(e, depth + 1)
    else if (v && typeof v === 'object') for (const key of Object.keys(v).sort()) walk((v as Record<string, unknown>)[key], depth + 1)
  }
  walk(data, 0)
  return texts
}

/** standsBefore reports whether an HTTP status comes from what stands before a node. */
export const standsBefore = (status: number): boolean => status >= 300 && status < 500 && ![408, 409, 425, 499].includes(status)

const unsent = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'])

/** notConnected reports whether an error, or one of its causes, says that no connection was made. */
export function notConnected(error: unknown): boolean {
  let e = error as { code?: string; cause?: unknown; errors?: unknown[] } | undefined
  for (let i = 0; e && i < 8; e = e.cause as typeof e, i++) {
    if (unsent.has(e.code ?? '') || (e.errors?.length && e.errors.every(notConnected))) return true
  }
  return false
}
