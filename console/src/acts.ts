// The acts of operators: what is asked, what goes back of what was shown, and who may.
import { whyNot } from './api.js'
import type { Act, Inputs } from './dialog.js'
import { plural } from './format.js'
import type { Engine, Key, Shard, SignerView } from './types.js'

type Answer = Record<string, unknown>
const marked = (s: Answer): string => `Nonce ${s['nonce']}, attempt ${s['attempt']}, is ${s['status']}.`
const began = (s: Answer, what: string): string =>
  s['count'] ? `Job ${s['id']} began, with ${plural(Number(s['count']), what)}.` : `There is no ${what} to do it to.`

const lines = (i: Inputs): [signer: string, floor: string][] =>
  i['lines']!.split('\n')
    .map((l) => l.trim().split(/\s+/))
    .filter(([s]) => s)
    .map(([s, f, more]) => [s!, more ? '' : (f ?? '')])

/** noFloor is what is wrong with a floor that somebody typed. */
const noFloor = (text: string): string =>
  /^\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? '' : `floor: must be a whole number from 0 on, is ${JSON.stringify(text)}.`

/** What an act on a nonce is about. */
export interface OfNonce {
  nonce: number
  attempt: number
  status: string
  txHash?: string | undefined
  reason?: string | undefined
}

/** Reads the signer anew. */
export type Reader = () => Promise<SignerView | undefined>

/** nonceOf finds a nonce in what is shown of a signer. */
export function nonceOf(view: SignerView, nonce: number): OfNonce | undefined {
  const c = view.status.chain
  const gap = [c?.gap, c?.stuck, c?.dropped].find((g) => g?.nonce === nonce)
  const listed = [...(view.holds ?? []), ...(view.last ?? [])].find((a) => a.nonce === nonce)
  if (listed) return listed
  return gap && { nonce, attempt: gap.attempt ?? 0, status: gap.status ?? '', txHash: gap.txHash }
}

const open = (n: OfNonce): boolean => n.status === 'HELD' || n.status === 'UNKNOWN'

/** onNonce is an act that is made again of the nonce as it is when that has changed. */
function onNonce(
  view: SignerView,
  read: Reader,
  n: OfNonce,
  make: (view: SignerView, n: OfNonce) => Act,
  can: (n: OfNonce) => boolean,
): Act {
  return {
    ...make(view, n),
    again: async () => {
      const now = await read()
      const same = now && nonceOf(now, n.nonce)
      return now && same && can(same) ? onNonce(now, read, same, make, can) : undefined
    },
  }
}

export function release(view: SignerView, n: OfNonce, read: Reader): Act | undefined {
  if (!open(n)) return undefined
  return onNonce(
    view,
    read,
    n,
    ({ status: { signer } }, n) => ({
      name: `Release nonce ${n.nonce}`,
      path: 'signer/release',
      whyNot: whyNot('mark-any', signer),
      about: `Only if it is certain that no transaction with nonce ${n.nonce} was sent: the next client gets it.`,
      inputs:
        n.txHash || n.reason === 'repair'
          ? [
              {
                name: 'unsent',
                label: n.txHash
                  ? 'A hash is recorded, and no node has that transaction (else the nonce counts as used)'
                  : 'No node has a transaction of its holder before the repair',
                kind: 'check',
              },
            ]
          : [],
      body: (i) => ({ signer, nonce: n.nonce, attempt: n.attempt, ...(i['unsent'] && { unsent: true }) }),
      said: marked,
    }),
    open,
  )
}

export function consume(view: SignerView, n: OfNonce, read: Reader): Act | undefined {
  if (n.status === 'CONSUMED' || !n.attempt) return undefined
  return onNonce(
    view,
    read,
    n,
    ({ status: { signer } }, n) => ({
      name: `Consume nonce ${n.nonce}`,
      path: 'signer/consume',
      whyNot: whyNot('mark-any', signer),
      about: 'It was used by a transaction: it is never handed out again.',
      inputs: [
        { name: 'txHash', label: 'Hash of the transaction', kind: 'text', hint: '0x and 64 digits, if it is known.', optional: true },
        { name: 'sure', label: 'It was used, although nothing shows that', kind: 'check' },
      ],
      body: (i) => ({
        signer,
        nonce: n.nonce,
        attempt: n.attempt,
        ...(i['txHash']?.trim() && { txHash: i['txHash'].trim() }),
        ...(i['sure'] && { sure: true }),
      }),
      said: marked,
    }),
    (n) => n.status !== 'CONSUMED',
  )
}

/** repair is of the nonce that blocks. */
export function repair(view: SignerView, n: OfNonce, read: Reader, thenRelease: boolean): Act {
  return onNonce(
    view,
    read,
    n,
    ({ status: { signer } }, n) => ({
      name: thenRelease ? `Repair nonce ${n.nonce} and give it back` : `Repair nonce ${n.nonce}`,
      path: 'signer/repair',
      whyNot: whyNot('repair', signer),
      about: thenRelease
        ? `Nonce ${n.nonce} is taken from whoever had it, and the next client that asks gets it. Only if no node has a transaction of it.`
        : `Nonce ${n.nonce} becomes yours for some minutes. Then sign a transaction with exactly this nonce with the key of the account, and send it: the page shows how.`,
      body: () => ({ signer, nonce: n.nonce, attempt: n.attempt, ...(thenRelease && { thenRelease: true }) }),
      said: (s) =>
        s['status'] === 'RELEASED'
          ? `Nonce ${s['nonce']} was given back (attempt ${s['attempt']}): the next client that asks gets it.`
          : s['status'] === 'CONSUMED'
            ? `Nonce ${s['nonce']} is CONSUMED with attempt ${s['attempt']}.`
            : `Nonce ${s['nonce']} is yours with attempt ${s['attempt']}. It still blocks: now sign and send a transaction with exactly this nonce, as the page shows.`,
    }),
    () => true,
  )
}

export function floor(view: SignerView, read: Reader, proposed?: number): Act {
  const { signer, next, version } = view.status
  return {
    name: 'Raise the floor',
    path: 'signer/floor',
    whyNot: whyNot('admin', signer),
    typed: signer,
    about: `No nonce below it is handed out any more, and it is never lowered. Now it is ${view.status.floor}, and next is ${next}.`,
    inputs: [{ name: 'floor', label: 'New floor', kind: 'number', value: proposed === undefined ? '' : String(proposed) }],
    wrong: (i) => noFloor(i['floor']!.trim()),
    body: (i) => ({ signer, floor: Number(i['floor']), version }),
    said: (s) => `The floor is ${s['floor']}, and next is ${s['next']}.`,
    again: async () => {
      const now = await read()
      return now && floor(now, read)
    },
  }
}

export function moveShard(s: Shard, nodes: string[], again: () => Promise<Shard | undefined>): Act {
  const pinned = s.pinned ? `, and it is pinned to ${s.pinned}` : ''
  return {
    name: `Pin shard ${s.id}`,
    path: 'shard/move',
    whyNot: whyNot('admin'),
    about: `Its owner is ${s.owner || 'no node'}${pinned}. The owner gives it up when it looks next.`,
    inputs: [
      {
        name: 'node',
        label: 'Node',
        kind: 'choice',
        choices: ['', ...nodes],
        value: s.pinned ?? '',
        hint: '–: the balance says again which node has it.',
      },
    ],
    body: (i) => ({ shard: s.id, node: i['node'] ?? '', token: s.token }),
    said: () => `Shard ${s.id} moves when its owner looks next.`,
    again: async () => {
      const now = await again()
      return now && moveShard(now, nodes, again)
    },
  }
}

export const drain = (node: string, here: string): Act => ({
  name: `Drain node ${node}`,
  path: 'node/drain',
  typed: node,
  whyNot: node === here ? whyNot('admin') : `Only ${here} answers here: open the console of ${node}.`,
  about: 'It takes no new connections, gives its shards to other nodes, and ends. This console ends with it.',
  body: () => ({ node }),
  said: () => `Node ${node} drains.`,
})

export function switchEngine(e: Engine, again: () => Promise<Engine | undefined>): Act {
  const to = (e.goal || e.state) === 'PERFORMANCE' || e.state === 'DUAL_WRITE' ? 'reliable' : 'performance'
  return {
    name: `Switch to the ${to} engine`,
    path: 'engine/switch',
    typed: to,
    whyNot: to === 'performance' && !e.available ? `It is not available: ${e.why}` : whyNot('admin'),
    about: `The whole cluster answers from ${to === 'reliable' ? 'the store' : 'Redis'} then.`,
    body: () => ({ to, generation: e.generation }),
    said: (s) => `${s['from']} → ${s['to']}${s['done'] === false ? ', under way' : ''}.`,
    again: async () => {
      const now = await again()
      return now && switchEngine(now, again)
    },
  }
}

/** onLogs are the acts on the logs of the node that answers. */
export const onLogs = (again: () => Promise<Engine | undefined>): Act[] => [
  {
    name: 'Compare the logs',
    path: 'engine/reconcile',
    whyNot: whyNot('admin'),
    about: 'Compares the logs of this node in Redis with its memory and the rows. It changes nothing.',
    body: () => ({}),
    said: (s) => `${s['equal']} signers are equal, ${s['different']} are different.`,
  },
  {
    name: 'Ship the logs',
    path: 'engine/replay',
    whyNot: whyNot('admin'),
    about: 'Ships what the logs of this node have to the store.',
    body: () => ({}),
    said: (s) => `${s['shipped']} logs were shipped, ${s['left']} have something left.`,
    again: async () => (await again(), undefined),
  },
]

export const createKey = (again: () => Promise<unknown>): Act => ({
  name: 'Create an API key',
  path: 'key/create',
  whyNot: whyNot('admin'),
  about: 'The key is shown once; the store has its SHA-256 only.',
  inputs: [
    { name: 'principal', label: 'Principal', kind: 'text' },
    { name: 'ttl', label: 'Valid for', kind: 'text', value: '2160h', hint: 'Such as 2160h.' },
  ],
  body: (i) => ({ principal: i['principal']!.trim(), ttl: i['ttl']!.trim() }),
  said: (s) => `Key ${s['id']} was made. Copy it now:`,
  secret: (s) => String(s['key'] ?? ''),
  again: async () => (await again(), undefined),
})

export const revokeKey = (k: Key, again: () => Promise<unknown>): Act => ({
  name: `Revoke key ${k.id}`,
  path: 'key/revoke',
  whyNot: whyNot('admin'),
  about: `It is one of ${k.principal}. Its connections are closed, and it does not come back.`,
  body: () => ({ id: k.id }),
  said: () => `Key ${k.id} is revoked.`,
  again: async () => (await again(), undefined),
})

export const releaseUnknown = (principal: string, again: () => Promise<unknown>): Act => ({
  name: 'Release unknown holds',
  path: 'job',
  whyNot: whyNot('mark-any'),
  about: 'All unknown holds of a principal, each with its own outcome. Only if it is certain that nothing was sent with them.',
  inputs: [
    { name: 'principal', label: 'Principal', kind: 'text', value: principal, optional: true, hint: 'Empty where clients have no names.' },
    {
      name: 'olderThan',
      label: 'Signer last written longer ago than',
      kind: 'text',
      value: '0s',
      hint: 'Such as 30s or 2h; 0s: all. The store does not keep when a hold ended: this counts from the last write to its signer, so holds of a busy signer are left out.',
    },
  ],
  body: (i) => ({ kind: 'releaseUnknown', principal: i['principal']!.trim(), olderThan: i['olderThan']!.trim() }),
  said: (s) => began(s, 'hold'),
  again: async () => (await again(), undefined),
})

export const floors = (again: () => Promise<unknown>): Act => ({
  name: 'Raise floors of signers',
  path: 'job',
  whyNot: whyNot('admin'),
  typed: 'floors',
  about: 'One line a signer: its name, a blank, its floor. A floor is never lowered.',
  inputs: [{ name: 'lines', label: 'Signers and floors', kind: 'area' }],
  wrong: (i) =>
    lines(i)
      .map(([signer, f]) => noFloor(f) && `${signer}: ${noFloor(f)}`)
      .find((w) => w) ?? '',
  body: (i) => ({ kind: 'floors', floors: lines(i).map(([signer, f]) => ({ signer, floor: Number(f) })) }),
  said: (s) => began(s, 'signer'),
  again: async () => (await again(), undefined),
})

export const cancelJob = (id: string, again: () => Promise<unknown>): Act => ({
  name: `Cancel job ${id}`,
  path: 'job/cancel',
  whyNot: whyNot('admin'),
  about: 'What is done stays done; what is left is not begun.',
  body: () => ({ id }),
  said: () => `Job ${id} is cancelled.`,
  again: async () => (await again(), undefined),
})
