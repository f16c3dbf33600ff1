// What the tests start: gateways, and a way to them that can lose answers.
import { execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createServer as createHttp } from 'node:http'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const program = process.env.NONCEGATE ?? fileURLToPath(new URL('../../../bin/gateway', import.meta.url))

// A shell between: it kills the program when this process is gone, however that ended, and else
// gives it the signal that it is told.
const guard = 'exec 3<&0; "$@" </dev/null 3<&- & pid=$!; { read -r signal; kill -"${signal:-KILL}" $pid; } <&3 & reader=$!; wait $pid; kill $reader'

/**
 * run starts a program, which ends with the test, and waits until it says what fits the expression. It writes to a file:
 * a pipe is full after some hundred lines while this process waits for a command (execFileSync), and the program stands still.
 */
export async function run(t, expression, command, ...args) {
  const dir = mkdtempSync(join(tmpdir(), 'noncegate-log-'))
  const file = join(dir, 'log')
  const fd = openSync(file, 'a')
  const child = spawn('sh', ['-c', guard, 'sh', command, ...args], { stdio: ['pipe', fd, fd] })
  closeSync(fd)
  let ended = false
  const exit = once(child, 'exit').then(() => (ended = true))
  const end = async (signal) => {
    child.stdin.end(`${signal}\n`)
    await exit
  }
  child.stdin.on('error', () => {}) // it has ended already
  t.after(async () => {
    await end('KILL')
    rmSync(dir, { recursive: true, force: true })
  })
  const log = () => readFileSync(file, 'utf8')
  const found = await until(`${command} to say ${expression}`, () => {
    if (ended) throw new Error(`${command} ended:\n${log()}`)
    return expression.exec(log())
  })
  return { found, end, log }
}

/** startGateway starts a gateway on a file of its own; where DATABASES hands out databases of PostgreSQL, two on one of these, of which it returns the first. */
export async function startGateway(t, ...flags) {
  if (!process.env.DATABASES) {
    const dir = mkdtempSync(join(tmpdir(), 'noncegate-'))
    t.after(() => rmSync(dir, { recursive: true, force: true }))
    return startOn(t, `sqlite:${join(dir, 'n.db')}`, dir, ...flags)
  }
  const [a] = await startTwo(t, ...flags)
  // A node that comes later may have committed before it was asked for its events, so that a subscriber is told of a gap.
  await until('the first is linked to the second', async () => /^noncegate_peers_linked 1$/m.test(await figures(a)))
  return a
}

const figures = async (g) => (await fetch(`${g.process.found[2]}/metrics`)).text()

/** startNodes starts two gateways on a database of DATABASES, each of which owns shards. */
export async function startNodes(t, ...flags) {
  const nodes = await startTwo(t, ...flags)
  const owns = async (n) => /^noncegate_shards_owned [1-9]/m.test(await figures(n))
  await until('both own shards', async () => (await Promise.all(nodes.map(owns))).every(Boolean))
  return nodes
}

async function startTwo(t, ...flags) {
  const dir = mkdtempSync(join(tmpdir(), 'noncegate-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const store = await (await fetch(process.env.DATABASES)).text()
  const nodes = []
  const shared = ['--node-secret=of-the-nodes-of-a-test', '--lease-ttl=3s', ...flags] // with rights, nodes without a secret do not talk
  for (const name of ['a', 'b']) nodes.push(await startOn(t, store, dir, `--node-id=${name}`, ...shared))
  return nodes
}

async function startOn(t, store, dir, ...flags) {
  const g = { url: '', process: undefined }
  const start = async (listen) => {
    g.process = await run(t, /Noncegate listens on (ws:\S+)\s+\(metrics: (http\S+)\/metrics/, program, 'serve',
      `--listen=${listen}`, '--admin-listen=127.0.0.1:0', `--store=${store}`, ...flags)
    g.url = g.process.found[1]
    g.http = g.url.replace('ws://', 'http://').replace('/ws', '')
  }
  await start('127.0.0.1:0')
  g.dir = dir
  /** command runs another command of the program on its store, and returns what that printed. */
  g.command = (...args) => execFileSync(program, [...args, `--store=${store}`], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  /** kill ends it as a crash does. */
  g.kill = () => g.process.end('KILL')
  /** stop has it drain. */
  g.stop = () => g.process.end('TERM')
  /** again starts it on the same file and address. */
  g.again = () => start(new URL(g.url).host)
  return g
}

/** way is a TCP proxy to a gateway. With deaf set, what the gateway says is thrown away. */
export async function way(t, g) {
  const sockets = new Set()
  const w = { deaf: false, connections: 0, cut: () => sockets.forEach((s) => s.destroy()) }
  const server = createServer((client) => {
    w.connections++
    const there = connect(Number(new URL(g.url).port), '127.0.0.1')
    for (const [s, other] of [[client, there], [there, client]]) {
      sockets.add(s)
      s.on('error', () => {})
      s.on('close', () => (sockets.delete(s), other.destroy()))
    }
    client.on('data', (d) => there.write(d))
    there.on('data', (d) => {
      if (!w.deaf) return client.write(d)
      w.lost?.()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => (w.cut(), server.close()))
  w.url = `ws://127.0.0.1:${server.address().port}/ws`
  /** loses has the next answers be lost, and resolves when one was. */
  w.loses = () => new Promise((resolve) => { w.deaf = true; w.lost = resolve })
  /** hears lets answers pass again. */
  w.hears = () => { w.deaf = false; w.lost = undefined }
  return w
}

/**
 * fakeGateway answers requests as a function says: with a result or an error, with nothing (undefined), or by the end of
 * the connection (null).
 */
export async function fakeGateway(t, answer) {
  const fake = { connections: 0 }
  const sockets = new Set()
  const server = createHttp().on('upgrade', (req, socket) => {
    fake.connections++
    sockets.add(socket)
    socket.on('error', () => {})
    const accept = createHash('sha1').update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`)
    let buf = Buffer.alloc(0)
    socket.on('data', (data) => {
      buf = Buffer.concat([buf, data])
      for (;;) { // frames of less than 64 KiB, masked
        const from = (buf[1] & 127) < 126 ? 2 : 4
        if (buf.length < from + 4) return
        const opcode = buf[0] & 15, size = from === 2 ? buf[1] & 127 : buf.readUInt16BE(2), mask = buf.subarray(from, from + 4)
        if (buf.length < from + 4 + size) return
        const payload = Buffer.from(buf.subarray(from + 4, from + 4 + size).map((b, i) => b ^ mask[i & 3]))
        buf = buf.subarray(from + 4 + size)
        if (opcode === 8) return socket.end(Buffer.from([0x88, 0]))
        if (opcode === 1) reply(socket, JSON.parse(payload.toString()))
      }
    })
  })
  const reply = (socket, request) => {
    const said = answer(request)
    if (said === null) return socket.destroy()
    if (said === undefined) return
    const text = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: request.id, ...said })), half = text.length >> 1
    // In two frames, with a ping between them, as a proxy may do.
    for (const [first, part] of [[1, text.subarray(0, half)], [0x89, Buffer.from('x')], [0x80, text.subarray(half)]])
      socket.write(Buffer.concat([Buffer.from(part.length < 126 ? [first, part.length] : [first, 126, part.length >> 8, part.length & 255]), part]))
  }
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => (sockets.forEach((s) => s.destroy()), server.close()))
  /** open is how many connections there are. */
  fake.open = () => [...sockets].filter((s) => !s.destroyed).length
  fake.url = `ws://127.0.0.1:${server.address().port}/ws`
  return fake
}

/** until waits for what a function finds true. */
export async function until(what, f) {
  for (let i = 0; i < 9000; i++) {
    const found = await f()
    if (found) return found
    await new Promise((r) => setTimeout(r, 10))
  }
  throw new Error(`in vain: ${what}`)
}

/** thrown is what a promise is rejected with. */
export async function thrown(promise) {
  try {
    await promise
  } catch (e) {
    return e
  }
  throw new Error('nothing was thrown')
}

/** node is anvil, at ANVIL, or one of the test's own. ANVIL_PROGRAM is where it is. Where GETH starts them, it is go-ethereum's. */
export async function node(t, own = !process.env.ANVIL) {
  const url = process.env.GETH ? await (await fetch(process.env.GETH)).text()
    : own ? `http://${(await run(t, /Listening on (127\S+)/, process.env.ANVIL_PROGRAM ?? 'anvil', '--port', '0')).found[1]}` : process.env.ANVIL
  const rpc = async (method, ...params) => {
    const res = await fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }) })
    const { result, error } = await res.json()
    if (error) throw new Error(error.message)
    return result
  }
  return { url, ws: process.env.GETH ? url : url.replace('http', 'ws'), rpc }
}

/**
 * proxy is an HTTP proxy to a node. Its fault, if it has one, gets each call, and a function that asks the node; what it
 * returns is the answer: { result }, { error }, an HTTP status as a number, or undefined for none at all.
 */
export async function proxy(t, to) {
  const p = { fault: undefined, counts: {} }
  const server = createHttp(async (req, res) => {
    let body = ''
    for await (const piece of req) body += piece
    const call = JSON.parse(body)
    p.counts[call.method] = (p.counts[call.method] ?? 0) + 1
    const ask = async () => (await fetch(to, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).json()
    const said = p.fault?.method === call.method ? await p.fault.answer(call, ask) : await ask()
    if (said === undefined) return res.destroy()
    if (typeof said === 'number') return res.writeHead(said).end()
    res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ ...said, jsonrpc: '2.0', id: call.id }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => (server.closeAllConnections(), server.close()))
  p.url = `http://127.0.0.1:${server.address().port}`
  return p
}
