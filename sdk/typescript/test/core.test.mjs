import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { ConnectionError, Gateway, NotDone, Refused, Unknown, notSent, signerOf } from 'noncegate'
import { fakeGateway, startGateway, thrown, until, way } from './lab.mjs'

const hash = (n) => '0x' + String(n).padStart(64, '1')

/** client connects to a gateway, and is closed with the test. */
function client(t, url, options) {
  const g = new Gateway(url, options)
  t.after(() => g.close())
  return g
}

/** row is a nonce of a signer as STATUS#ATTEMPT. */
async function row(g, signer, nonce) {
  const [r] = (await g.list({ signer, from: nonce, limit: 1 })).allocations
  return r ? `${r.status}#${r.attempt}${r.txHash ? ' hash' : ''}` : 'none'
}

describe('the core', { concurrency: 6 }, () => {
  test('the life of a nonce', async (t) => {
    const server = await startGateway(t)
    const g = client(t, server.url)
    const events = await g.events({ signers: ['alice'] })
    const a = await g.allocate({ signer: 'alice', holdMs: 30_000, requestId: 'payment-1' })
    assert.equal(a.nonce, 0)
    assert.equal(a.attempt, 1)
    assert.ok(a.leftMs() > 0 && a.leftMs() <= 30_000)
    for (const [clock, name] of [[Date, 'now'], [performance, 'now']]) { // one of them stands still while a machine sleeps
      const real = clock[name]
      clock[name] = () => real.call(clock) + 3_600_000
      const left = a.leftMs()
      clock[name] = real
      assert.ok(left < 0, `${left} ms are left after an hour`)
    }
    const again = await g.allocate({ signer: 'alice', holdMs: 30_000, requestId: 'payment-1' })
    assert.deepEqual([again.nonce, again.attempt], [0, 1])
    assert.ok((await g.extend(a, 60_000)).leftMs() > 30_000)
    assert.equal((await g.markSigned(a, hash(1))).status, 'HELD')
    assert.equal((await g.markUsed(a, hash(1))).txHash, hash(1))
    const several = await g.allocate({ signer: 'alice', count: 3 })
    assert.deepEqual(several.nonces.map((n) => n.nonce), [1, 2, 3])
    assert.equal((await g.markRecyclable({ ...several, nonce: 2 }, { reason: 'not wanted' })).status, 'RELEASED')
    const status = await g.status('alice')
    assert.deepEqual([status.next, status.held, status.released, status.consumed], [4, 2, 1, 1])
    assert.equal((await g.setFloor('bob', 42)).floor, 42)
    const repaired = await g.repair({ signer: 'alice', nonce: 0 })
    assert.deepEqual([repaired.attempt, repaired.was.status, repaired.txHashes], [2, 'CONSUMED', [hash(1)]])
    assert.ok((await g.info()).limits.maxHolds > 0)

    const guarded = { signer: 'alice', guard: { key: 'k', keep: true, intervalMs: 600_000 } }
    await g.allocate(guarded)
    const twice = await thrown(g.allocate(guarded))
    assert.ok(twice instanceof Refused && twice.reason === 'duplicate_submit' && twice.retryAfterMs > 0, String(twice))
    const wrong = await thrown(g.markUsed({ ...a, attempt: 9 }))
    assert.ok(wrong instanceof Refused && wrong.reason === 'conflict' && wrong.data.attempt === 2, String(wrong))

    const seen = []
    for await (const e of events) {
      seen.push(e.type)
      if (seen.length === 7) break
    }
    assert.deepEqual(seen, ['allocated', 'extended', 'signed', 'used', 'allocated', 'allocated', 'allocated'])
  })

  test('withNonce says what became of the nonce', async (t) => {
    const server = await startGateway(t)
    const g = client(t, server.url)
    assert.equal(await g.withNonce('a', async () => hash(1)), hash(1))
    assert.equal(await row(g, 'a', 0), 'CONSUMED#1 hash')
    const why = new Error('no gas')
    assert.equal(await thrown(g.withNonce('a', async () => { throw notSent(why) })), why)
    assert.equal(await row(g, 'a', 1), 'RELEASED#1')
    assert.equal(await thrown(g.withNonce('a', async () => { throw why })), why)
    assert.equal(await row(g, 'a', 1), 'HELD#2') // a node may have it
    assert.equal(await thrown(g.withNonce('a', async () => { throw why }, { recordFirst: true })), why)
    assert.equal(await row(g, 'a', 2), 'RELEASED#1') // it promised to record first
    await thrown(g.withNonce('a', async (hold) => { await hold.signed(hash(2)); throw why }, { recordFirst: true }))
    assert.equal(await row(g, 'a', 2), 'HELD#2 hash')
    await thrown(g.withNonce('a', async (hold) => { await hold.signed(hash(3)); throw notSent(why) }, { recordFirst: true }))
    assert.equal(await row(g, 'a', 3), 'RELEASED#1')
    await g.withNonce('a', async (hold) => { await hold.signed(hash(4)) }, { recordFirst: true })
    assert.equal(await row(g, 'a', 3), 'CONSUMED#2 hash')

    // The hold ends while the function runs.
    const ended = await thrown(g.withNonce('b', async (hold) => {
      await new Promise((r) => hold.signal.addEventListener('abort', r))
      throw hold.signal.reason
    }, { holdMs: 1000 }))
    assert.ok(ended instanceof NotDone && /has ended/.test(ended.message), String(ended))
    const stop = new AbortController()
    const stopped = thrown(g.withNonce('c', async (hold) => {
      stop.abort(why)
      throw notSent(hold.signal.reason)
    }, { signal: stop.signal }))
    assert.equal(await stopped, why)
    assert.equal(await row(g, 'c', 0), 'RELEASED#1')
  })

  test('an answer that is lost with its connection is asked for again, and nothing is done twice', async (t) => {
    const server = await startGateway(t)
    const w = await way(t, server)
    let connected
    const g = client(t, w.url, { onConnection: (s) => (connected = s.connected) })
    const direct = client(t, server.url)
    await g.info()
    let lost = w.loses()
    const allocated = g.allocate({ signer: 'alice' })
    await lost
    await until('the gateway has handed it out', async () => (await direct.status('alice')).next === 1)
    await server.kill() // between request and answer
    w.hears()
    await server.again()
    const a = await allocated
    assert.deepEqual([a.nonce, a.attempt], [0, 1])

    lost = w.loses()
    const marked = g.markUsed(a, hash(1))
    await lost
    w.hears()
    w.cut()
    assert.equal((await marked).status, 'CONSUMED')
    assert.equal((await direct.status('alice')).next, 1)

    // What may not be repeated is unknown, and so is what is not waited for any longer.
    lost = w.loses()
    const once = thrown(g.call('nonce_allocate', { signer: 'alice' }))
    await lost
    w.hears()
    w.cut()
    const unknown = await once
    assert.ok(unknown instanceof Unknown && unknown.cause instanceof ConnectionError, String(unknown))
    assert.equal((await direct.status('alice')).next, 2)

    await g.info()
    lost = w.loses()
    const stop = new AbortController()
    const broken = thrown(g.allocate({ signer: 'alice', requestId: 'r' }, { signal: stop.signal }))
    await lost
    stop.abort(new Error('enough'))
    const doubt = await broken
    assert.ok(doubt instanceof Unknown && doubt.requestId === 'r' && doubt.cause.message === 'enough', String(doubt))
    w.hears()
    w.cut()
    assert.equal((await g.allocate({ signer: 'alice', requestId: doubt.requestId })).nonce, 2) // which settles it

    // Not sent yet: nothing happened.
    await server.kill()
    await until('the connection is lost', () => !connected)
    const none = await thrown(g.markUsed(a, hash(1), { timeoutMs: 50 }))
    assert.ok(none instanceof NotDone && none.cause instanceof ConnectionError, String(none))
    await server.again()
    assert.equal((await g.status('alice')).next, 3)
  })

  test('requests of a time without gateway are sent in their order when it is back', async (t) => {
    const server = await startGateway(t)
    const states = []
    const g = client(t, server.url, { onConnection: (s) => states.push(s.connected), maxInflight: 4 })
    await g.info()
    await server.kill()
    const all = Promise.all(Array.from({ length: 40 }, () => g.allocate({ signer: 'alice' })))
    await server.again()
    assert.deepEqual((await all).map((a) => a.nonce), Array.from({ length: 40 }, (_, i) => i))
    assert.deepEqual(states, [true, false, true])
  })

  test('a draining gateway is left, and the next one asked', async (t) => {
    const [one, two] = [await startGateway(t), await startGateway(t)]
    const g = client(t, [one.url, two.url])
    assert.equal((await g.allocate({ signer: 'alice' })).nonce, 0)
    const gone = one.stop() // closes with 1012
    await gone
    await g.setFloor('alice', 7)
    assert.equal((await client(t, two.url).status('alice')).floor, 7)
  })

  test('subscriptions come back, and say that events are missing', async (t) => {
    const server = await startGateway(t)
    const g = client(t, server.url)
    const events = await g.events()
    const next = async () => (await events.next()).value
    await g.allocate({ signer: 'alice' })
    assert.equal((await next()).type, 'allocated')
    await server.kill()
    await server.again()
    assert.deepEqual(await next(), { type: 'missed' })
    await g.allocate({ signer: 'alice' })
    assert.equal((await next()).nonce, 1)

    // A consumer that does not read loses events, and is told how many.
    for (let i = 0; i < 4; i++) await g.allocate({ signer: `many-${i}`, count: 100 })
    await g.allocate({ signer: 'last' })
    let got = 0, missed = 0
    await until('all events are accounted for', async () => {
      const e = await next()
      if (e.type === 'missed') missed += e.missed
      else got++
      return got + missed === 401
    })
    assert.ok(got >= 256 && missed > 0, `${got} ${missed}`)
    await events.return()
    assert.equal((await events.next()).done, true)

    const other = await g.events()
    const stopped = other.next()
    await g.close()
    assert.equal((await stopped).done, true)
  })

  test('mistakes are told before anything is sent', async (t) => {
    for (const [url, options, sentence] of [
      ['http://127.0.0.1/ws', {}, /url: must begin with ws/],
      ['nonsense', {}, /url: "nonsense" is none/],
      ['ws://127.0.0.1', { key: 'a b' }, /options.key/],
      ['ws://127.0.0.1', { key: 'a', ticket: async () => 'b' }, /exclude each other/],
      [[], {}, /at least one/],
    ]) assert.throws(() => new Gateway(url, options), (e) => e instanceof NotDone && sentence.test(e.message))
    assert.throws(() => signerOf(1, 'me'), NotDone)
    assert.equal(signerOf(1n, '0xAB16a96D359eC26a11e2C2b3d8f8B8942d5Bfcdb'), 'eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb')

    const server = await startGateway(t)
    const lost = await thrown(client(t, server.url.replace('/ws', '/other')).allocate({ signer: 'a' }))
    assert.ok(lost instanceof NotDone && lost.cause.status === 404, String(lost))
    const g = client(t, server.url)
    const params = await thrown(g.allocate({ signer: '' }))
    assert.ok(params instanceof Refused && params.reason === 'invalid_params' && params.data.field === 'signer', String(params))
    const large = await thrown(g.call('nonce_status', { signer: 'x'.repeat(70_000) }))
    assert.ok(large instanceof NotDone && /longer than/.test(large.message))
    const early = await thrown(g.allocate({ signer: 'a' }, { signal: AbortSignal.abort(new Error('no')) }))
    assert.ok(early instanceof NotDone && early.cause.message === 'no')
    assert.equal((await g.status('a')).next, 0)
    await g.close()
    assert.ok((await thrown(g.status('a'))) instanceof NotDone)
  })

  test('keys go in a header, tickets in the URL, and a revoked key is not tried again', async (t) => {
    const dir = mkdtempSync(join(tmpdir(), 'noncegate-rights-'))
    t.after(() => rmSync(dir, { recursive: true, force: true }))
    writeFileSync(join(dir, 'rights.yaml'), 'principals:\n  payouts:\n    - {rights: [allocate, mark], signers: ["*"]}\n')
    const server = await startGateway(t, `--rights=${join(dir, 'rights.yaml')}`)
    const key = server.command('key', 'create', 'payouts').trim()
    const askForTicket = () => fetch(`${server.http}/ticket`, { method: 'POST', headers: { Authorization: `Bearer ${key}` } })
    await until('the key is valid', async () => (await askForTicket()).ok)
    let lost
    const g = client(t, server.url, { key, onConnection: (s) => (lost = s.why) })
    assert.equal((await g.allocate({ signer: 'a' })).nonce, 0)
    const forbidden = await thrown(g.status('a'))
    assert.ok(forbidden instanceof Refused && forbidden.reason === 'forbidden' && forbidden.data.right === 'read', String(forbidden))
    const nobody = await thrown(client(t, server.url).allocate({ signer: 'a' }))
    assert.ok(nobody instanceof NotDone && nobody.cause.status === 401, String(nobody))

    let asked = 0
    const ticket = async () => {
      asked++
      return (await (await askForTicket()).json()).ticket
    }
    const page = client(t, server.url, { ticket })
    assert.equal((await page.allocate({ signer: 'a' })).nonce, 1)
    await server.kill()
    await server.again()
    assert.equal((await page.allocate({ signer: 'a' })).nonce, 2)
    assert.ok(asked >= 2)
    const broken = await thrown(client(t, server.url, { ticket: async () => { throw new Error('no session') } }).allocate({ signer: 'a' }, { timeoutMs: 100 }))
    assert.ok(broken instanceof NotDone && /no ticket: no session/.test(broken.message), String(broken))

    assert.equal((await g.allocate({ signer: 'b' })).nonce, 0) // its connection is back
    server.command('key', 'revoke', key.split('_')[1])
    await until('the connection is closed', () => lost?.code >= 4500)
    assert.equal(lost.code, 4502)
    const revoked = await thrown(g.allocate({ signer: 'a' }))
    assert.ok(revoked instanceof NotDone && revoked.cause.code === 4502, String(revoked))
  })

  test('what a refusal means for the next try', async (t) => {
    const told = []
    let answers = []
    const fake = await fakeGateway(t, (request) => {
      told.push(request)
      const next = answers.shift()
      if (next === 'silence') return undefined
      if (next === 'cut') return null
      return next ? { error: { code: 1, message: next[0], data: { reason: next[0], ...next[1] } } } : { result: { signer: 'a', nonce: 5, attempt: 1, holdMs: 60_000 } }
    })
    const g = client(t, [fake.url, fake.url])
    const run = async (...script) => {
      answers = script
      told.length = 0
      return g.allocate({ signer: 'a', requestId: 'r' }).then((a) => a, (e) => e)
    }
    for (const reason of ['server_busy', 'fenced', 'not_owner', 'draining']) {
      assert.equal((await run([reason, { retryAfterMs: 1 }])).nonce, 5)
      assert.equal(told.length, 2, reason)
      assert.equal(told[1].params.requestId, 'r')
    }
    assert.equal(fake.connections, 2, 'one for the gateway, and one after it drained')
    assert.equal((await run(['hold_limit', { cause: 'window', retryAfterMs: 1 }])).nonce, 5)
    assert.equal((await run(['unavailable', { outcome: 'none' }], ['unavailable', { outcome: 'none' }])).nonce, 5)
    for (const reason of ['hold_limit', 'invalid_params', 'duplicate_submit', 'conflict', 'a_new_one']) {
      const e = await run([reason, { retryAfterMs: 1 }])
      assert.ok(e instanceof Refused && e.reason === reason, String(e))
      assert.equal(told.length, 1, reason)
    }
    // After an unknown outcome only a result or a conflict settles it.
    assert.equal((await run(['unavailable', { outcome: 'unknown' }], 'cut', ['duplicate_submit', { retryAfterMs: 1 }])).nonce, 5)
    const conflict = await run('cut', ['conflict', {}])
    assert.ok(conflict instanceof Refused && conflict.reason === 'conflict', String(conflict))
    const lost = await run('cut', ['hold_limit', {}])
    assert.ok(lost instanceof Unknown && lost.requestId === 'r' && lost.last.reason === 'hold_limit', String(lost))
    // A time that is up.
    answers = [['server_busy', { retryAfterMs: 60_000 }]]
    const busy = await thrown(g.allocate({ signer: 'a' }))
    assert.ok(busy instanceof Refused && busy.reason === 'server_busy', String(busy))
    answers = ['silence', 'silence']
    const late = await thrown(g.markUsed({ signer: 'a', nonce: 5, attempt: 1 }, hash(1), { timeoutMs: 20 }))
    assert.ok(late instanceof Unknown, String(late))
    const read = await thrown(g.status('a', { timeoutMs: 20 }))
    assert.ok(read instanceof NotDone, String(read))
  })

  test('the owner that a gateway names is asked, and remembered', async (t) => {
    const held = { result: { signer: 'a', nonce: 5, attempt: 1, holdMs: 60_000 } }
    const no = (reason, data) => ({ error: { code: 1, message: reason, data: { reason, ...data } } })
    const told = { first: [], owner: [] }
    const fakes = {}
    const script = { first: () => held, owner: () => held }
    for (const name of ['first', 'owner']) {
      fakes[name] = await fakeGateway(t, (request) => {
        told[name].push(`${request.params.signer} ${request.params.requestId}`)
        return script[name](request)
      })
    }
    const { first, owner } = fakes, { url } = owner
    let states = 0
    const g = client(t, first.url, { onConnection: () => states++ })
    const ask = async (signer, requestId) => {
      for (const name of ['first', 'owner']) told[name].length = 0
      const a = await g.allocate({ signer, requestId }).catch((e) => e)
      return [a.nonce ?? a, told.first.join(), told.owner.join()]
    }
    script.first = () => no('not_owner', { ownerNode: 'b', ownerUrl: url.replace('ws', 'http') })
    assert.deepEqual(await ask('a', '1'), [5, 'a 1', 'a 1']) // at once, with the same request id
    assert.deepEqual(await ask('a', '2'), [5, '', 'a 2'])
    script.first = () => held
    assert.deepEqual(await ask('b', '3'), [5, 'b 3', '']) // of which nothing is known
    // It has moved back, and the answer of the owner is lost with it.
    script.owner = () => no('not_owner', { ownerNode: 'a', ownerUrl: first.url })
    assert.deepEqual(await ask('a', '4'), [5, 'a 4', 'a 4'])
    script.first = () => no('not_owner', { ownerUrl: url })
    script.owner = () => {
      script.first = () => held
      return null
    }
    assert.deepEqual(await ask('a', '5'), [5, 'a 5,a 5', 'a 5'])
    // What may not be repeated is unknown then.
    script.first = () => no('not_owner', { ownerUrl: url })
    script.owner = () => null
    const once = await thrown(g.call('nonce_allocate', { signer: 'a' }))
    assert.ok(once instanceof Unknown, String(once))
    // Nobody is there, or it is none that may be followed: here again.
    for (const ownerUrl of ['ws://127.0.0.1:1/ws', 'ws://user@127.0.0.1:1/ws', 'nonsense', undefined]) {
      let asked = 0
      script.first = () => (asked++ === 0 ? no('not_owner', { ownerUrl }) : held)
      assert.deepEqual(await ask('a', '6'), [5, 'a 6,a 6', ''], ownerUrl)
    }
    // One that the gateway does not reach is tried beside the call.
    script.first = () => no('unavailable', { outcome: 'none', retryAfterMs: 100, ownerUrl: url })
    script.owner = () => held
    assert.deepEqual((await ask('a', '7')).slice(0, 1).concat(told.owner), [5, 'a 7'])
    // It drains, and is left.
    script.owner = () => no('draining', { retryAfterMs: 1 })
    script.first = () => held
    assert.deepEqual(await ask('a', '8'), [5, 'a 8', 'a 8'])
    script.first = () => no('not_owner', { ownerUrl: url })
    const stop = new AbortController()
    script.owner = () => stop.abort()
    const silent = await thrown(g.allocate({ signer: 'a', requestId: '9' }, { signal: stop.signal }))
    assert.ok(silent instanceof Unknown && silent.requestId === '9', String(silent))
    assert.equal(first.connections, 1)
    assert.equal(states, 1, 'connections to owners are told of to nobody')
    await g.close()
    await until('the connection to the owner is closed', () => owner.open() === 0)
  })

  test('a retry after a refusal waits as long as the gateway says, and a 401 is final', async (t) => {
    let hits = 0
    const answers = [[503, { 'Retry-After': '1' }], [401, {}]]
    const server = createServer().on('upgrade', (req, socket) => {
      const [status, headers] = answers[Math.min(hits++, 1)]
      const body = 'the key was revoked\n'
      socket.end(`HTTP/1.1 ${status} No\r\n${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join('')}Content-Length: ${body.length}\r\n\r\n${body}`)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.after(() => server.close())
    const begin = performance.now()
    const g = client(t, `ws://127.0.0.1:${server.address().port}/ws`, { key: 'nck_x' })
    const e = await thrown(g.allocate({ signer: 'a' }))
    assert.ok(e instanceof NotDone && e.cause.status === 401 && /the key was revoked/.test(e.message), String(e))
    assert.ok(performance.now() - begin >= 1000)
    assert.equal(hits, 2)
    assert.ok((await thrown(g.status('a'))) instanceof NotDone)
    assert.equal(hits, 2)
  })

  test('a program whose gateway object is closed ends, also beside a gateway that is away', async (t) => {
    const server = await startGateway(t)
    for (const url of [server.url, 'ws://127.0.0.1:1/ws']) {
      const away = url !== server.url
      const child = spawn(process.execPath, ['--input-type=module', '-e', `
        import { Gateway } from 'noncegate'
        const g = new Gateway('${url}')
        await g.info(${away ? '{ signal: AbortSignal.timeout(300) }' : ''}).then(() => console.log('info'), (e) => console.log(e.name))
        await g.close()
        console.log('closed')`], { cwd: new URL('.', import.meta.url) })
      let out = ''
      child.stdout.on('data', (d) => (out += d))
      child.stderr.on('data', (d) => (out += d))
      await once(child, 'close')
      assert.equal(out, away ? 'NotDone\nclosed\n' : 'info\nclosed\n')
    }
  })
})
