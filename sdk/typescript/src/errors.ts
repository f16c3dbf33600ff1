/**
 * What a call can end with beside its result. Exactly one of three:
 * {@link NotDone}, {@link Unknown} or {@link Refused}.
 */
export class NoncegateError extends Error {
  /** The method of the protocol, such as `nonce_allocate`; empty where none was called. */
  readonly method: string
  constructor(method: string, message: string, cause?: unknown) {
    super(method ? `${method}: ${message}` : message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
    this.method = method
  }
}

/**
 * Nothing happened: the request was never sent, or it only reads. `cause` says why, such as a
 * {@link ConnectionError}. The call may be made again.
 */
export class NotDone extends NoncegateError {}

/**
 * The request was sent, and it is not known what became of it: it may have happened, and may still
 * happen. It is no refusal. Only an answer to the same request settles it: make the call again, an
 * allocation or a repair with this {@link requestId}.
 */
export class Unknown extends NoncegateError {
  /** Of an allocation or a repair, what to repeat it with. Marks need none: the same mark again is enough. */
  readonly requestId: string | undefined
  /** What the last try was told, if there was another. It settles nothing. */
  readonly last: Refused | undefined
  constructor(method: string, cause: unknown, requestId?: string, last?: Refused) {
    const id = requestId ? ` (request id ${requestId})` : ''
    super(method, `outcome unknown${id}: ${sentence(cause)}${last ? `; last try: ${last.message}` : ''}`, cause)
    this.requestId = requestId
    this.last = last
  }
}

/** The words of {@link Refused.reason}. Later gateways may know further ones. */
export type Reason =
  | 'parse_error' | 'invalid_request' | 'method_not_found' | 'invalid_params' | 'internal' | 'server_busy'
  | 'not_owner' | 'fenced' | 'unavailable' | 'conflict' | 'not_found' | 'hold_limit' | 'duplicate_submit'
  | 'unauthorized' | 'forbidden' | 'draining'

/** What a refusal says beside its reason; which members there are depends on the reason. */
export interface ErrorData {
  reason?: Reason | (string & {})
  field?: string
  stage?: string
  retryAfterMs?: number
  ownerNode?: string
  ownerUrl?: string
  outcome?: 'none' | 'unknown'
  cause?: string
  signer?: string
  nonce?: number
  attempt?: number
  status?: string
  txHash?: string
  heldUntil?: string
  limit?: number
  right?: string
  nonces?: { nonce: number; attempt: number; status: string; txHash?: string }[]
  [member: string]: unknown
}

/**
 * The gateway said no, and this call changed nothing. A `conflict` may be about an earlier call with
 * the same request id, which did: `data` has the state.
 */
export class Refused extends NoncegateError {
  /** The number of the error, such as -32013. */
  readonly code: number
  /** The word to branch on, such as `conflict`. */
  readonly reason: Reason | (string & {})
  readonly data: ErrorData
  /** How long to wait at least before the same call again, in milliseconds; 0 where waiting does not help. */
  readonly retryAfterMs: number
  constructor(method: string, error: { code: number; message: string; data?: ErrorData }) {
    super(method, error.message)
    this.code = error.code
    this.data = error.data ?? {}
    this.reason = this.data.reason ?? ''
    this.retryAfterMs = this.data.retryAfterMs ?? 0
  }
}

/** Why there is no connection: the `cause` of a {@link NotDone} or an {@link Unknown}. */
export class ConnectionError extends Error {
  /** The close code of the WebSocket; 0: it was never open, or it broke. */
  readonly code: number
  /** The HTTP status that came instead of the WebSocket; 0: none, or a browser does not tell. */
  readonly status: number
  constructor(message: string, code = 0, status = 0) {
    super(message)
    this.name = 'ConnectionError'
    this.code = code
    this.status = status
  }
}

/** sentence is the text of anything that was thrown. */
export function sentence(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message || thrown.name : String(thrown)
}
