import type { Handlers, Socket } from './socket.js'

/** A browser sends no headers of ours with a WebSocket. */
export const headers = false

/** Opens the WebSocket of the browser. */
export function open(url: string, _: Record<string, string>, h: Handlers): Socket {
  const ws = new WebSocket(url)
  let over = false
  const end = (code: number, reason: string) => {
    if (over) return
    over = true
    h.ended({ code, reason, status: 0, retryAfterMs: 0 })
  }
  ws.onopen = () => over || h.opened()
  ws.onmessage = (e) => {
    if (over) return
    h.heard()
    if (typeof e.data === 'string') h.message(e.data)
  }
  // 1005 and 1006 are no codes that a peer sent.
  ws.onclose = (e) => end(e.code === 1005 || e.code === 1006 ? 0 : e.code, e.reason || 'the connection broke, or was not opened')
  return {
    send: (text) => ws.send(text),
    close: () => ws.close(1000),
    destroy(reason) {
      end(0, reason)
      ws.close()
    },
  }
}
