// The package in a page of a real browser, at CHROMIUM, by playwright-core, at PLAYWRIGHT.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import { Gateway, signerOf } from 'noncegate'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { node, startGateway, until, way } from './lab.mjs'

const { chromium } = await import(process.env.PLAYWRIGHT ? pathToFileURL(process.env.PLAYWRIGHT) : 'playwright-core')

/** site serves the page, tickets for it, and the way to a node. */
async function site(t, nodeURL) {
  const { outputFiles: [script] } = await build({
    entryPoints: [fileURLToPath(new URL('page.mjs', import.meta.url))], bundle: true, format: 'esm', platform: 'browser', write: false,
  })
  const s = { ticket: undefined }
  const server = createServer(async (req, res) => {
    let body = ''
    for await (const piece of req) body += piece
    if (req.url === '/') return res.setHeader('Content-Type', 'text/html').end('<!doctype html><link rel=icon href=data:,><script type=module src=/page.js></script>')
    if (req.url === '/page.js') return res.setHeader('Content-Type', 'text/javascript').end(script.contents)
    if (req.url === '/ticket') return res.end(await s.ticket())
    const answer = await fetch(nodeURL, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })
    res.setHeader('Content-Type', 'application/json').end(await answer.text())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => (server.closeAllConnections(), server.close()))
  s.url = `http://127.0.0.1:${server.address().port}`
  return s
}

test('a page pays, comes back after a gateway was killed, and is told what it slept through', async (t) => {
  const n = await node(t)
  const s = await site(t, n.url)
  const dir = mkdtempSync(join(tmpdir(), 'noncegate-page-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  writeFileSync(join(dir, 'rights.yaml'), 'principals:\n  page:\n    - {rights: [allocate, mark, read, subscribe, repair], signers: ["*"]}\n')
  const server = await startGateway(t, `--chain=eip155:31337=${n.ws}`, '--chain-poll=50ms', '--sweep-interval=100ms', `--rights=${join(dir, 'rights.yaml')}`, `--origins=${s.url}`)
  const apiKey = server.command('key', 'create', 'page').trim()
  s.ticket = async () => {
    for (;;) { // also while the gateway is away, or does not know the key yet
      const res = await fetch(`${server.http}/ticket`, { method: 'POST', headers: { Authorization: `Bearer ${apiKey}` } }).catch(() => undefined)
      if (res?.ok) return (await res.json()).ticket
      await new Promise((r) => setTimeout(r, 50))
    }
  }
  await s.ticket()
  const w = await way(t, server)
  const here = new Gateway(server.url, { key: apiKey }) // another process, which sees the same nonces
  t.after(() => here.close())
  const key = generatePrivateKey(), { address } = privateKeyToAccount(key), signer = signerOf(31337, address)
  await n.rpc('anvil_setBalance', address, '0xde0b6b3a7640000')

  await until('the gateway knows what the chain says of the account', async () => (await here.status(signer)).chain)
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium' })
  t.after(() => browser.close())
  const page = await browser.newPage()
  const errors = []
  let away = false // then the browser itself says that it cannot connect
  page.on('pageerror', (e) => errors.push(String(e)))
  page.on('console', (m) => {
    if (m.type() === 'error' && !(away && /^WebSocket connection to .* failed/.test(m.text()))) errors.push(m.text())
  })
  await page.goto(s.url)
  await page.waitForFunction(() => 'begin' in globalThis)
  await page.evaluate((o) => begin(o), { url: w.url, key, chainId: 31337 })

  // Nonces, marks and events.
  assert.deepEqual(await page.evaluate(async () => {
    const a = await gateway.allocate({ signer: 'alice' })
    const mark = await gateway.markUsed(a, `0x${'2'.repeat(64)}`)
    return [a.nonce, a.attempt, a.leftMs() > 0, mark.status]
  }), [0, 1, true, 'CONSUMED'])
  await page.waitForFunction(() => events.join() === 'allocated,used')
  assert.match((await page.evaluate(() => outcome(Promise.resolve().then(() => new gateway.constructor('ws://127.0.0.1', { key: 'k' }))))).message, /use ticket/)

  // A payment, and one whose gateway is killed between request and answer.
  assert.equal(await page.evaluate(async () => mined(await wallet.sendTransaction({ to: account.address, value: 1n }))), 'success')
  const restart = async () => {
    away = true
    await server.kill()
    w.hears()
    await server.again()
  }
  const lost = w.loses()
  const second = page.evaluate(() => wallet.sendTransaction({ to: account.address, value: 1n }))
  await lost
  await restart()
  const hash = await second
  away = false
  assert.equal(await page.evaluate((hash) => mined(hash), hash), 'success')
  assert.equal((await n.rpc('eth_getTransactionByHash', hash)).nonce, '0x1')
  await until('both are used', async () => (await here.status(signer)).consumed === 2)
  await page.waitForFunction(() => events.includes('missed'))
  assert.deepEqual(await page.evaluate(() => states), [true, false, true])

  // The tab sleeps for an hour, with a hold, and with a transaction that a person was to sign.
  await page.evaluate(() => hold('bob'))
  await page.evaluate(() => void (globalThis.signing = outcome(hesitant.sendTransaction({ to: account.address, value: 1n }))))
  await page.waitForFunction(() => isAsked() && held.nonce === 0)
  const { processInfo } = await (await browser.newBrowserCDPSession()).send('SystemInfo.getProcessInfo')
  const renderers = processInfo.filter((p) => p.type === 'renderer').map((p) => p.id)
  assert.ok(renderers.length > 0)
  for (const pid of renderers) process.kill(pid, 'SIGSTOP')
  for (const [name, nonce] of [['bob', 0], [signer, 2]]) {
    await here.markRecyclable({ signer: name, nonce, attempt: 1 }) // as the end of its time does
    const other = await here.allocate({ signer: name, holdMs: 600_000 })
    assert.deepEqual([other.nonce, other.attempt], [nonce, 2]) // another has it by now
  }
  away = true
  await server.kill()
  await server.again()
  const versions = async () => Promise.all(['bob', signer].map(async (name) => (await here.status(name)).version))
  const slept = await versions()
  for (const pid of renderers) process.kill(pid, 'SIGCONT')
  await page.evaluate(() => (sleepAnHour(), sign()))
  const ended = await page.evaluate(() => ended)
  assert.ok(ended.notDone && /the hold of nonce 0 has ended/.test(ended.message), JSON.stringify(ended))
  const seen = await page.evaluate(() => held)
  assert.ok(seen.left < -3_000_000 && seen.signed.reason === 'conflict', JSON.stringify(seen))
  const signing = await page.evaluate(() => signing)
  assert.deepEqual([signing.error, signing.reason], ['Refused', 'conflict'], JSON.stringify(signing))
  assert.deepEqual(await versions(), slept, 'something was marked')
  assert.equal(await n.rpc('eth_getTransactionCount', address, 'pending'), '0x2')
  await page.waitForFunction(() => states.at(-1) === true)
  away = false

  await page.evaluate(() => gateway.close())
  assert.deepEqual(errors, [])
})
