// What docs/chain.md and docs/runbooks.md say of a signer's state, with the act beside it.
import { consume, floor, nonceOf, release, repair, type OfNonce, type Reader } from './acts.js'
import { me } from './api.js'
import type { Act } from './dialog.js'
import { ago, plural, span, now, until } from './format.js'
import type { SignerView } from './types.js'
import type { Tone } from './ui.js'

export interface Advice {
  tone: Tone
  what: string
  todo: string[]
  /** A command for it, of which what stands in capitals is to be filled in. */
  command?: string | undefined
  /** What else helps, below the command. */
  orElse?: string
  acts: (Act | undefined)[]
}

export function advice(view: SignerView, read: Reader): Advice[] {
  const { status: s } = view,
    c = s.chain,
    found: Advice[] = []
  const blocks = c?.gap ?? c?.dropped ?? c?.stuck
  if (blocks) {
    const n = nonceOf(view, blocks.nonce) ?? { nonce: blocks.nonce, attempt: blocks.attempt ?? 0, status: blocks.status ?? '' }
    found.push(
      c?.gap
        ? gap(view, n, blocks.blocked, read)
        : c?.dropped
          ? {
              tone: 'fix',
              what: `No node has the transaction of nonce ${n.nonce} any more.`,
              todo: [
                'Have the client that has the signed bytes send the same bytes again.',
                'If it has them no more, repair the nonce and send another transaction with it.',
              ],
              acts: [repair(view, n, read, false), repair(view, n, read, true)],
            }
          : {
              tone: 'fix',
              what: `The transaction of nonce ${n.nonce} is in the pools, and is not mined.`,
              todo: [
                'Its holder sends it again with the same nonce and higher fees.',
                'Others repair the nonce first: the repair shows what to outbid.',
              ],
              acts: [repair(view, n, read, false)],
            },
    )
  }
  if (c?.stopped)
    found.push({
      tone: 'fix',
      what: 'A final block of the chain fell: the gateway concludes nothing from the chain.',
      todo: ['Check the nodes of the chain: they were reset, or their answers are wrong.'],
      acts: [],
    })
  if (!s.owner)
    found.push({
      tone: 'fix',
      what: 'No node owns its shard.',
      todo: ['It lasts a second or two after a node died. If it stays, look at the nodes and their logs: the store may refuse them.'],
      acts: [],
    })
  const unknown = (view.holds ?? []).filter((h) => h.status === 'UNKNOWN' && h.nonce !== blocks?.nonce)
  if (unknown.length)
    found.push({
      tone: 'look',
      what: `${plural(unknown.length, 'hold')} ended, and it is not known whether the nonces were used.`,
      todo: ['Each ends by itself when the chain uses its nonce, or after --unknown-ttl.', 'If you know what became of it, say so.'],
      acts: unknown.slice(0, 3).flatMap((h) => [release(view, h, read), consume(view, h, read)]),
    })
  const overdue = (view.holds ?? []).filter((h) => h.status === 'HELD' && h.heldUntil && Date.parse(h.heldUntil) < now() - 10_000)
  if (overdue.length)
    found.push({
      tone: 'look',
      what: `${plural(overdue.length, 'hold')} should have ended ${span(now() - Date.parse(overdue[0]!.heldUntil!))} ago.`,
      todo: ['Sweeps are paused after a jump of the clock, or no node can take the shard.'],
      acts: [],
    })
  const repeated = [...(view.holds ?? []), ...(view.last ?? [])].find(
    (a) => a.attempt >= 3 && a.status !== 'CONSUMED' && a.nonce !== blocks?.nonce,
  )
  if (repeated)
    found.push({
      tone: 'look',
      what: `Nonce ${repeated.nonce} was handed out ${repeated.attempt} times${repeated.reason ? ` (${repeated.reason})` : ''}.`,
      todo: ['Usually the chain has used it, and no client marked it: then consume it, or raise the floor to the count of the account.'],
      acts: [consume(view, repeated, read)],
    })
  return found.length ? found : [{ tone: 'good', what: 'Nothing about it needs a person.', todo: [], acts: [] }]
}

function gap(view: SignerView, n: OfNonce, blocked: number, read: Reader): Advice {
  const state = n.status === 'UNKNOWN' ? 'UNKNOWN: its hold ended without a word of its holder' : n.status || 'skipped by a floor'
  const what = `Nonce ${n.nonce} blocks ${plural(blocked, 'later one')}; it is ${state}.`
  const key =
    'With the key of the account: repair it, which makes it yours; then sign and send a transaction with exactly this nonce.'
  const hold = view.holds?.find((h) => h.nonce === n.nonce),
    was = view.last?.find((a) => a.nonce === n.nonce)
  const last = [was?.holder && ` by ${was.holder}`, was?.requestId && ` (request ${was.requestId})`].filter(Boolean).join('')
  if (n.status === 'HELD' && hold?.holder && hold.holder === me.value?.principal) {
    const back = release(view, n, read)
    return {
      tone: 'fix',
      what: `Nonce ${n.nonce} blocks ${plural(blocked, 'later one')}; you hold it, and your hold ends ${until(hold.heldUntil)}.`,
      todo: [
        `Sign a transaction with exactly nonce ${n.nonce} with the key of the account, for example one that sends 0 to the account itself, and send it with your API key:`,
      ],
      command: sending(view),
      orElse: 'If you cannot, give the nonce back, or let your hold end: then it blocks as before.',
      acts: [back && { ...back, name: `Give nonce ${n.nonce} back` }],
    }
  }
  const mine = repair(view, n, read, false),
    both = repair(view, n, read, true)
  const of = (todo: string[], acts: (Act | undefined)[]): Advice => ({ tone: 'fix', what, todo, acts })
  switch (n.status) {
    case 'RELEASED':
      return of(
        [
          `Its hold${last} has ended, and no client has asked for a nonce since. Best: have ${was?.holder ?? 'the program that pays from this account'} ask for a nonce. It gets this one, and sends.`,
          `Else, ${key[0]!.toLowerCase()}${key.slice(1)}`,
        ],
        [mine],
      )
    case 'HELD':
      return of(
        ['Ask its holder, if it still runs. If it is gone and has sent nothing, release the nonce; else wait for the deadline.', key],
        [release(view, n, read), mine],
      )
    case 'UNKNOWN':
      return of(
        [
          'If you know that nothing was sent, release it: the next client gets it. If you know that it was used, say so.',
          'Else it is released by itself after --unknown-ttl.',
          key,
        ],
        [release(view, n, read), consume(view, n, read), mine],
      )
    case 'CONSUMED':
      if (was?.updatedAt && now() - Date.parse(was.updatedAt) < 30_000)
        return {
          tone: 'look',
          what: `Nonce ${n.nonce} blocks ${plural(blocked, 'later one')}; its transaction was recorded ${ago(was.updatedAt)}.`,
          todo: ['Wait first: it blocks no more once a block of the chain has it. These are for a transaction that was lost:'],
          acts: [mine, both],
        }
      return of(
        [
          'Have the client that has the signed bytes send the same bytes again.',
          key,
          'Without the key, if the bytes are lost: repair it and give it back, and the next client gets it.',
        ],
        [mine, both],
      )
    default:
      return of(['A nonce below the floor is not handed out again: somebody with the key has to send.', key], [mine])
  }
}

/** sending is a command that sends a signed transaction through the owner of the signer. */
function sending({ status: s }: SignerView): string | undefined {
  const chain = /^eip155:(\d+):/.exec(s.signer)?.[1]
  if (!chain || !s.ownerUrl) return undefined
  const url = `${s.ownerUrl.replace(/^ws/, 'http').replace(/\/ws$/, '')}/eth/${chain}`
  const body = '{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["SIGNED_TRANSACTION"]}'
  return `curl -H 'Authorization: Bearer API_KEY' -H 'Content-Type: application/json' -d '${body}' ${url}`
}

/** stopped is what to do where the signer is refused because the store went back. */
export const stopped = (view: SignerView, read: Reader): Advice => ({
  tone: 'fix',
  what: 'This signer is stopped: the store went back behind what this node has seen.',
  todo: [
    'Find a floor above every nonce that was ever handed out: the count of the account, the records of clients, seen_next in the log.',
  ],
  acts: [floor(view, read)],
})
