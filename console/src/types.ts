// What the admin API answers; internal/admin/openapi.yaml says what each member means.
import type { ChainStatus, ListedNonce, SignerStatus } from 'noncegate'

export interface Me {
  node: string
  version: string
  principal?: string
  credential?: string
  console: 'read' | 'on'
  acts: boolean
  why?: string
  all?: boolean
  rights?: { signers: string; rights: string[] }[]
}

export interface Finding {
  id: string
  severity: 'fix' | 'look'
  what: string
  why: string
  do: string
  page?: string
  signer?: string
  node?: string
  shard?: number
}

export interface Stage {
  name: string
  ratePerS: number
  p50Ms: number
  p99Ms: number
  fill?: number
  capacity?: number
}
export interface ChainNode {
  name: string
  up: boolean
  head?: number
  lagBlocks?: number
  backingOffUntil?: string
  error?: string
}
export interface Reach {
  kind?: string
  ok: boolean
  latencyMs?: number
  error?: string
}

export interface Overview {
  asOf: string
  node: string
  version: string
  uptimeMs: number
  mode: string
  engine: { state: string; goal?: string; available: boolean; why?: string; reason?: string }
  stages?: Stage[]
  refusals?: { reason?: string; stage?: string; total: number; perS: number }[]
  connections: { open: number; max: number; slow: number }
  slowClients?: { principal?: string; remote: string; queuedBytes: number; paused: boolean }[]
  chains?: { chain: string; nodes?: ChainNode[] }[]
  store: Reach
  redis?: Reach
  findings?: Finding[]
}

export interface Node {
  node: string
  url: string
  mode?: string
  state: string
  incarnation: number
  shards: number
  startedAt: string
  seenAt: string
}
export interface Nodes {
  nodeCount: number
  nodes?: Node[]
}

export interface Shard {
  id: number
  owner?: string
  url?: string
  token: number
  mine: boolean
  preferred?: string
  pinned?: string
  stopped?: number
}
export interface Shards {
  node: string
  shards?: Shard[]
}

export interface SignerRow {
  signer: string
  next: number
  floor: number
  held: number
  unknown: number
  released: number
  lowestReleased?: number
  oldestHold?: string
  maxAttempt?: number
  owner?: string
  mined?: number
  gap?: number
  trouble?: string
  since?: string
  stopped?: boolean
  unreadable?: boolean
}
export interface SignerPage {
  node: string
  signers?: SignerRow[]
  next?: string
  others?: boolean
}

export interface SignerView {
  known: boolean
  /** Whether the reader is told who holds nonces. */
  holders?: boolean
  status: SignerStatus & { chain?: ChainStatus }
  holds?: ListedNonce[]
  last?: ListedNonce[]
}

export interface Log {
  shard: number
  serves: boolean
  head: number
  shipped: number
  unshippedSigners: number
  behind: string
  grant: string
  trouble?: string
}
export interface Rehearsal {
  shard: number
  keptUp?: string
  done: boolean
  trouble?: string
}
export interface Check {
  name: string
  ok: boolean
  text: string
}
export interface Engine {
  node: string
  available: boolean
  why?: string
  state: string
  goal?: string
  generation: number
  reason?: string
  changedAt?: string
  shards: number
  shardsLogged: number
  logsLost: number
  redis?: string
  logsHere?: Log[]
  shardsRehearsed?: number
  rehearsal?: string
  rehearsingHere?: Rehearsal[]
}

export interface Key {
  id: string
  principal: string
  state: string
  createdAt?: string
  expiresAt?: string
  lastUsedAt?: string
  revokedAt?: string
}
export interface Principal {
  principal: string
  connections: number
  holds: number
  keys: number
  quota?: Record<string, number>
  rights?: { signers: string; rights: string[] }[]
  lastSeenAt?: string
}
export interface AuditLine {
  seq: number
  at: string
  event?: string
  principal?: string
  credential?: string
  address?: string
  method?: string
  signer?: string
  nonce?: number
  outcome?: string
  right?: string
  before?: string
  after?: string
  why?: string
}
export interface Audit {
  lines?: AuditLine[]
  oldest?: number
}
export interface Setting {
  name: string
  value?: string
  from: string
  secret?: boolean
}
export interface Job {
  id: string
  kind: string
  principal?: string
  reason?: string
  state: string
  why?: string
  count: number
  done: number
  failed: number
  left: number
  startedAt?: string
  endedAt?: string
  cancelled?: boolean
}
export interface JobOutcome {
  signer: string
  nonce?: number
  floor?: number
  outcome: string
  error?: string
}
