// What the protocol says, as docs/methods.md of the gateway has it. A test holds the names against
// the gateway's own.
import type { ConnectionError } from './errors.js'

/** How a {@link Gateway} connects. */
export interface GatewayOptions {
  /** An API key, sent in a header: in Node only. In a browser use `ticket`. */
  key?: string
  /** Returns a ticket (`POST /ticket`) for one connection; asked before each. In Node and in browsers. */
  ticket?: () => Promise<string>
  /** How long a call lasts at most, with all its tries, in milliseconds. Default 30000. */
  timeoutMs?: number
  /** How many requests may be under way. Default 256, as the gateway's `maxInflight`. */
  maxInflight?: number
  /** Told when the connection is there, and when it is lost. It comes back by itself. */
  onConnection?: (state: { connected: boolean; why?: ConnectionError }) => void
}

/** Of every call. */
export interface CallOptions {
  /** Ends the wait. A write that was sent by then is {@link Unknown}. */
  signal?: AbortSignal
  /** Instead of that of {@link GatewayOptions}. */
  timeoutMs?: number
}

/** Names a submission: meanwhile the gateway refuses others of the same name (`duplicate_submit`). */
export interface Guard {
  /** 1 to 128 visible ASCII characters, shared by all signers. */
  key: string
  /** 100 to 600000, default 10000: after so many milliseconds the name is free again. */
  intervalMs?: number
  /** The name stays taken for the interval also when the call has ended. */
  keep?: boolean
}

/** One nonce in one attempt: what marks are about. */
export interface Hold {
  /** `eip155:CHAINID:0xADDRESS` of an Ethereum account; see {@link signerOf}. */
  signer: string
  nonce: number
  /** How often this nonce was handed out, from 1. A mark of another attempt than the present one is a `conflict`. */
  attempt: number
}

export interface AllocateParams {
  signer: string
  /** 1 to 256, all or nothing. Default 1. */
  count?: number
  /** The same id is answered the same, also by another process. Default: a random one. */
  requestId?: string
  /** Milliseconds, 1000 to the gateway's `maxHoldMs`. Default: the gateway's. */
  holdMs?: number
  guard?: Guard
  /** A promise: nothing is sent before {@link Gateway.markSigned} has recorded its hash. A hold without a hash is free at its end. */
  recordFirst?: boolean
}

/** An earlier hold of the nonce ended without a word of its holder, whose transaction may still turn up. */
export interface Reissued {
  attempt: number
  reason: 'unseen' | 'repair' | (string & {})
  txHash?: string
}

interface Held extends Hold {
  fencingToken: number
  /** The deadline by the store's clock, for people. Use {@link leftMs}. */
  heldUntil: string
  /** Milliseconds that were left, to be counted from when the request was sent. */
  holdMs: number
  /** How many milliseconds are left now, by this machine's clocks; negative: it is over. */
  leftMs(): number
}

export interface Allocation extends Held {
  requestId: string
  /** All of them, ascending, when more than one was asked for; `nonce` is the lowest. */
  nonces?: { nonce: number; attempt: number; reissued?: Reissued }[]
  reissued?: Reissued
}

export type Extension = Held

export interface RepairParams {
  signer: string
  /** Default: the lowest that the chain has not used. */
  nonce?: number
  holdMs?: number
  requestId?: string
}

export interface Repair extends Held {
  requestId: string
  was?: { status: Status; attempt: number; reason?: string }
  reissued?: Reissued
  /** Those recorded for it, newest first; each may still be mined. */
  txHashes?: string[]
  /** What the transaction pays that nodes have, as quantities. A replacement pays a tenth more, of blobs twice as much. */
  offer?: Offer
}

/** In wei, as hexadecimal quantities. */
export interface Offer {
  gasPrice?: string
  maxFeePerGas?: string
  maxPriorityFeePerGas?: string
  maxFeePerBlobGas?: string
}

export type Status = 'HELD' | 'RELEASED' | 'CONSUMED' | 'UNKNOWN'

export interface Mark extends Hold {
  status: Status
  /** The newest hash that is recorded. */
  txHash?: string
  /** All, newest first, when there are several. */
  txHashes?: string[]
  /** The newest one before this mark, when it added another. */
  replaced?: string
  heldUntil?: string
  holdMs?: number
}

/** What the chain says of a signer. */
export interface ChainStatus {
  mined: number
  final?: number
  claimed?: number
  window?: number
  head: number
  gap?: Gap
  stuck?: Gap
  dropped?: Gap
  stopped?: boolean
  partial?: boolean
}

/** The lowest nonce that the chain has not used, and how many above it wait. */
export interface Gap {
  nonce: number
  since: string
  status?: Status
  attempt?: number
  txHash?: string
  blocked: number
}

export interface SignerStatus {
  signer: string
  next: number
  floor: number
  held: number
  unknown: number
  released: number
  consumed: number
  lowestHeld?: number
  owner?: string
  ownerUrl?: string
  fencingToken: number
  version: number
  leaseUntil?: string
  engine?: 'reliable' | 'performance'
  /** Absent where no chain is asked, and until a node of it has answered. */
  chain?: ChainStatus
}

export interface ListParams {
  signer: string
  status?: Status
  from?: number
  /** 1 to 1000, default 100. */
  limit?: number
}

export type ChainState = 'sent' | 'seen' | 'dropped' | 'mined' | 'final' | 'used' | 'external'

export interface ListedNonce {
  nonce: number
  status: Status
  attempt: number
  txHash?: string
  txHashes?: string[]
  reason?: string
  reissued?: Reissued
  heldUntil?: string
  requestId?: string
  holder?: string
  chain?: ChainState
  updatedAt?: string
}

export interface Page {
  allocations: ListedNonce[]
  /** Where the next page begins; absent on the last. */
  nextFrom?: number
  partial?: boolean
}

export interface Floor { signer: string; floor: number; next: number }

export interface Limits {
  maxCount: number
  maxBatch: number
  maxMessageBytes: number
  maxInflight: number
  maxHolds: number
  minHoldMs: number
  maxHoldMs: number
  defaultHoldMs: number
  maxListLimit: number
}

export interface Info {
  node: string
  incarnation: number
  version: string
  engine: string
  store: 'sqlite' | 'postgres' | (string & {})
  mode: string
  redis?: string
  engineState?: string
  engineGeneration?: number
  limits: Limits
  nodeCount?: number
  nodes?: {
    node: string; url: string; mode?: string; state: 'live' | 'left' | 'silent' | (string & {})
    incarnation: number; shards: number; startedAt: string; seenAt: string
  }[]
}

export type EventType =
  | 'allocated' | 'used' | 'released' | 'expired' | 'floor' | 'replaced' | 'signed' | 'extended' | 'unknown' | 'sent'
  | 'mined' | 'final' | 'dropped' | 'gap' | 'gapClosed' | 'external' | 'reorg' | 'stuck'

export interface NonceEvent {
  type: EventType
  signer: string
  nonce: number
  attempt: number
  txHash?: string
  reason?: string
  /** That of the signer after the commit. */
  version: number
  at: string
  gap?: Gap
}

/** Events are missing here: read `status` or `list` anew. It comes before the next event, and after each interruption. */
export interface Missed {
  type: 'missed'
  /** How many; absent after an interruption, when that is not known. */
  missed?: number
}
