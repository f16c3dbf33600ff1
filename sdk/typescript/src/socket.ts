/** How a connection ended, or why there is none. */
export interface End {
  /** The close code; 0: without one. */
  code: number
  reason: string
  /** The HTTP status instead of an upgrade; 0: not known. */
  status: number
  /** How long the gateway asked to stay away. */
  retryAfterMs: number
}

export interface Handlers {
  opened(): void
  message(text: string): void
  /** Anything was heard, pings too. */
  heard(): void
  /** Called once, whatever happened before. Nothing is called after it. */
  ended(end: End): void
}

/** One WebSocket, on its way or open. */
export interface Socket {
  send(text: string): void
  /** Says goodbye; ended follows. */
  close(): void
  /** Ends at once; ended follows. */
  destroy(reason: string): void
}
