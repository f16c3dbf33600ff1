// A WebSocket client for Node, which has none of its own in version 20; those of later versions tell
// neither the HTTP status of a refusal nor of pings. It speaks as much of RFC 6455 as a client needs
// that sends text frames.
import { createHash, randomBytes } from 'node:crypto'
import { request as plain, type IncomingMessage } from 'node:http'
import { request as secure } from 'node:https'
import type { Duplex } from 'node:stream'
import type { Handlers, Socket } from './socket.js'

/** Node sends headers with a WebSocket. */
export const headers = true

const maxMessage = 16 << 20
const maxRefusal = 256 // bytes of a refusal's body that are shown
const [continued, text, close, ping, pong] = [0, 1, 8, 9, 10]

/** Opens a WebSocket. A user in the URL becomes basic authorization. */
export function open(url: string, header: Record<string, string>, h: Handlers): Socket {
  let over = false, stream: Duplex | undefined, said: { code: number; reason: string } | undefined
  const end = (reason: string, code = 0, status = 0, retryAfterMs = 0) => {
    if (over) return
    over = true
    req.destroy()
    stream?.destroy()
    h.ended({ code, reason, status, retryAfterMs })
  }
  const key = randomBytes(16).toString('base64')
  const target = new URL(url)
  target.protocol = target.protocol.replace('ws', 'http')
  const req = (target.protocol === 'https:' ? secure : plain)(target, {
    headers: { ...header, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': key },
    agent: false,
  })
  req.on('error', (e) => end(e.message))
  req.on('response', (res) => refusal(res, end))
  req.on('upgrade', (res, socket: Duplex, head: Buffer) => {
    const accept = createHash('sha1').update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
    if (over) return void socket.destroy()
    stream = socket
    if (res.headers['sec-websocket-accept'] !== accept) return end('the answer to the upgrade is not a WebSocket server\'s')
    const read = frames((opcode, data) => {
      if (opcode === text) h.message(data.toString())
      else if (opcode === ping) write(pong, data)
      else if (opcode === close) {
        if (!said) write(close, data.subarray(0, 2))
        said ??= { code: data.length < 2 ? 0 : data.readUInt16BE(), reason: data.toString('utf8', 2) }
        socket.end()
      }
    })
    const take = (data: Buffer) => {
      h.heard()
      try {
        read(data)
      } catch (e) {
        end((e as Error).message)
      }
    }
    socket.on('data', take)
    socket.on('error', (e) => end(said?.reason ?? e.message, said?.code))
    socket.on('close', () => end(said?.reason ?? 'the connection broke', said?.code))
    if ('setNoDelay' in socket) (socket as Duplex & { setNoDelay(on: boolean): void }).setNoDelay(true)
    h.opened()
    if (head.length > 0) take(head)
  })
  req.end()

  function write(opcode: number, data: Buffer): void {
    if (stream?.writable) stream.write(frame(opcode, data))
  }
  return {
    send: (message) => write(text, Buffer.from(message)),
    close() {
      if (!stream) return end('closed')
      if (said) return
      said = { code: 1000, reason: 'closed' }
      write(close, Buffer.from([3, 232]))
    },
    destroy: (reason) => end(reason),
  }
}

/** refusal reads an HTTP answer that came instead of the upgrade. */
function refusal(res: IncomingMessage, end: (reason: string, code: number, status: number, retryAfterMs: number) => void): void {
  const status = res.statusCode ?? 0
  const after = Number(res.headers['retry-after'])
  let body = ''
  res.setEncoding('utf8')
  const done = () => {
    const line = body.split('\n')[0]?.replace(/[^\x20-\x7e]/g, '').slice(0, maxRefusal)
    end(`HTTP status ${status}${line ? `: ${line}` : ''}`, 0, status, after > 0 ? after * 1000 : 0)
  }
  res.on('data', (piece: string) => (body += piece).length > maxRefusal && done())
  res.on('end', done)
  res.on('error', done)
}

/** frame is a masked frame in one piece. */
function frame(opcode: number, data: Buffer): Buffer {
  const n = data.length, wide = n < 126 ? 0 : n < 65536 ? 2 : 8
  const out = Buffer.alloc(6 + wide + n)
  out[0] = 0x80 | opcode
  out[1] = 0x80 | (wide === 0 ? n : wide === 2 ? 126 : 127)
  if (wide === 2) out.writeUInt16BE(n, 2)
  if (wide === 8) out.writeBigUInt64BE(BigInt(n), 2)
  const mask = randomBytes(4), from = 6 + wide
  mask.copy(out, 2 + wide)
  for (let i = 0; i < n; i++) out[from + i] = data[i]! ^ mask[i & 3]!
  return out
}

/** frames returns what takes in the bytes of a connection, and calls take with each whole message. */
function frames(take: (opcode: number, data: Buffer) => void): (data: Buffer) => void {
  let kept: Buffer[] = [], size = 0 // not read yet
  let parts: Buffer[] = [], partsSize = 0 // of a message in several frames
  let need = 2 // bytes, before there is anything to read
  return (data) => {
    kept.push(data)
    size += data.length
    if (size < need) return
    let buf = kept.length === 1 ? data : Buffer.concat(kept)
    for (need = 2; buf.length >= need; need = 2) {
      const short = buf[1]! & 127, wide = short < 126 ? 0 : short === 126 ? 2 : 8
      need = 2 + wide
      if (buf.length < need) break
      const n = wide === 0 ? short : wide === 2 ? buf.readUInt16BE(2) : Number(buf.readBigUInt64BE(2))
      if (n + partsSize > maxMessage || buf[1]! & 128) throw new Error('the gateway sent what no client can read')
      need += n
      if (buf.length < need) break
      const opcode = buf[0]! & 15, last = buf[0]! & 128, payload = buf.subarray(need - n, need)
      buf = buf.subarray(need)
      if (opcode >= close) take(opcode, payload)
      else if (last && opcode !== continued) take(opcode, payload)
      else {
        parts.push(payload)
        partsSize += n
        if (!last) continue
        const message = Buffer.concat(parts)
        parts = []
        partsSize = 0
        take(text, message)
      }
    }
    kept = buf.length > 0 ? [buf] : []
    size = buf.length
  }
}
