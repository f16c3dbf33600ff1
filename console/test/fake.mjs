// What a gateway says on its admin address, as a test wants it: for what real ones say seldom, or only after hours.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { fileURLToPath, pathToFileURL } from 'node:url'

const file = (path) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8')
const policy = [.../policy = (?:"([^"]*)" \+\n\t)"([^"]*)"/.exec(file('../console.go'))].slice(1).join('')
const files = {
  '/': ['index.html', 'text/html'],
  '/console.js': ['console.js', 'text/javascript'],
  '/console.css': ['console.css', 'text/css'],
}

export const axe = process.env.AXE && readFileSync(process.env.AXE, 'utf8')
const { chromium } = await import(process.env.PLAYWRIGHT ? pathToFileURL(process.env.PLAYWRIGHT) : 'playwright-core')

/** The browser of all tests. */
export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium' })

export const iso = (ms = 0) => new Date(Date.now() + ms).toISOString()
export const account = 'eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb'
export const markup = '<img/src=x/onerror=alert(1)>'

/** What the fake says where a test says nothing else. A function gets the query or the body. */
export const usual = () => ({
  me: { node: 'a', version: 'v1', principal: 'ops', credential: 'key:1', console: 'on', acts: true, all: true },
  session: { token: 'T' },
  'session/end': {},
  wsTicket: { ticket: 'once' },
  overview: () => ({
    asOf: iso(),
    node: 'a',
    version: 'v1',
    uptimeMs: 3_600_000,
    mode: 'worker-queue',
    engine: { state: 'RELIABLE', goal: 'RELIABLE', available: true },
    stages: ['admission', 'worker', 'commit', 'encode', 'postDb', 'write'].map((name, i) => ({
      name,
      ratePerS: 100 + i,
      p50Ms: 1,
      p99Ms: 3 + i,
      ...(i !== 2 && { fill: i, capacity: 64 }),
    })),
    refusals: [{ reason: 'server_busy', stage: 'worker', total: 12, perS: 0.2 }],
    connections: { open: 12, max: 10_000, slow: 1 },
    slowClients: [{ principal: 'relayer', remote: '10.0.0.1:3', queuedBytes: 70_000, paused: true }],
    chains: [
      {
        chain: 'eip155:1',
        nodes: [
          { name: 'n1', up: true, head: 12, lagBlocks: 0 },
          { name: 'n2', up: false, error: 'refused', backingOffUntil: iso(9_000) },
        ],
      },
    ],
    store: { kind: 'PostgreSQL', ok: true, latencyMs: 0.8 },
    redis: { ok: false, error: 'does not answer' },
    findings: [
      {
        id: 'g',
        severity: 'fix',
        what: 'Nonce 6 blocks 2 later ones.',
        why: 'It was given back.',
        do: 'Have a client ask.',
        page: 'signer',
        signer: account,
      },
    ],
  }),
  nodes: () => ({
    nodeCount: 2,
    nodes: ['a', 'b'].map((node) => ({
      node,
      url: `ws://${node}/ws`,
      mode: 'worker-queue',
      state: node === 'a' ? 'live' : 'silent',
      incarnation: 1,
      shards: 2,
      startedAt: iso(-9e6),
      seenAt: iso(-500),
    })),
  }),
  shards: { node: 'a', shards: [0, 1, 2, 3].map((id) => ({ id, owner: id === 3 ? '' : 'a', token: 7, mine: true, preferred: 'a' })) },
  signers: {
    node: 'a',
    signers: [account, markup].map((signer, i) => ({
      signer,
      next: 9,
      floor: 0,
      held: 1,
      unknown: 1,
      released: 1,
      ...(!i && { mined: 6, gap: 6, trouble: 'gap', since: iso(-60_000) }),
    })),
  },
  signer: ({ signer }) => view(signer),
  engine: {
    node: 'a',
    available: true,
    state: 'RELIABLE',
    goal: 'RELIABLE',
    generation: 3,
    shards: 4,
    shardsLogged: 0,
    logsLost: 0,
    redis: 'ok',
    changedAt: iso(-1e6),
    logsHere: [{ shard: 1, serves: true, head: 9, shipped: 8, unshippedSigners: 1, behind: '3ms', grant: '' }],
  },
  keys: {
    keys: [{ id: '575ba144', principal: 'relayer', state: 'live', createdAt: iso(-1e9), expiresAt: iso(1e8), lastUsedAt: iso(-1e4) }],
  },
  principals: {
    principals: [
      {
        principal: 'relayer',
        connections: 2,
        holds: 3,
        keys: 1,
        rights: [{ signers: '*', rights: ['read'] }],
        quota: { openHolds: 1000, burst: 0 },
        lastSeenAt: iso(-1e4),
      },
    ],
  },
  audit: ({ after }) => ({
    lines: after
      ? []
      : [
          {
            seq: 1,
            at: iso(-1000),
            event: 'call',
            principal: 'ops',
            method: 'nonce_setFloor',
            signer: markup,
            outcome: 'forbidden',
            why: markup,
          },
        ],
  }),
  settings: {
    settings: [
      { name: '--listen', value: ':8080', from: 'flag' },
      { name: '--store', from: 'environment', secret: true },
      { name: '--mode', value: 'worker-queue', from: 'default' },
    ],
  },
  jobs: { jobs: [{ id: 'j1', kind: 'floors', state: 'running', count: 10, done: 3, failed: 1, left: 6, startedAt: iso(-1e4) }] },
  job: ({ after }) => ({ outcomes: Number(after) ? [] : [{ signer: account, floor: 3, outcome: 'done' }] }),
})

/** view is a signer whose nonce 6 blocks, and whose nonce 8 is an unknown hold of this attempt. */
export const view = (signer, attempt = 1) => ({
  known: true,
  holders: true,
  status: {
    signer,
    next: 9,
    floor: 0,
    held: 1,
    unknown: 1,
    released: 1,
    consumed: 7,
    owner: 'a',
    ownerUrl: 'ws://a/ws',
    fencingToken: 1,
    version: 8,
    leaseUntil: iso(4_000),
    engine: 'reliable',
    chain: { mined: 6, window: 16, head: 6, gap: { nonce: 6, since: iso(-60_000), status: 'RELEASED', attempt: 1, blocked: 2 } },
  },
  holds: [{ nonce: 8, status: 'UNKNOWN', attempt, heldUntil: iso(50_000), requestId: 'payout-8', holder: markup }],
  last: [
    { nonce: 7, status: 'CONSUMED', chain: 'sent', attempt: 1, updatedAt: iso(-5_000), txHash: `0x${'5c'.repeat(32)}` },
    { nonce: 6, status: 'RELEASED', attempt: 1, updatedAt: iso(-5_000), reason: 'gas too low' },
  ],
})

/** fake serves the console, and answers of say: a value, a function of what was asked, [status, body], or null: the answer is lost. */
export async function fake(t, say = {}) {
  const f = { say: { ...usual(), ...say }, asked: [], away: false, key: true }
  const server = createServer(async (req, res) => {
    let body = ''
    for await (const piece of req) body += piece
    if (f.away) return res.destroy()
    const u = new URL(req.url, 'http://x'),
      [name, kind] = files[u.pathname] ?? []
    if (name) return res.writeHead(200, { 'Content-Type': kind, 'Content-Security-Policy': policy }).end(file(`../dist/${name}`))
    const path = u.pathname.replace('/admin/v1/', ''),
      asked = body ? JSON.parse(body) : Object.fromEntries(u.searchParams)
    const bearer = req.headers.authorization?.replace('Bearer ', '')
    f.asked.push({ path, asked, bearer, method: req.method, type: req.headers['content-type'] })
    let said = f.say[path] ?? [404, { error: `there is no ${path}` }]
    if (path !== 'session' && f.key && bearer !== 'T') said = [401, { error: 'a key is needed' }]
    if (typeof said === 'function') said = said(asked, bearer)
    if (said === null) return res.destroy()
    const [status, text] = Array.isArray(said) ? said : [200, said]
    res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(text))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(async () => {
    await Promise.all(browser.contexts().map((c) => c.close())) // pages that ask while it ends would say so
    server.closeAllConnections()
    server.close()
  })
  f.url = `http://127.0.0.1:${server.address().port}`
  /** of is what was asked of a path. */
  f.of = (path) => f.asked.filter((a) => a.path === path).map((a) => a.asked)
  return f
}

/**
 * look opens a page whose errors, violations of the policy and requests elsewhere fail the test. While expected is set, what the
 * browser itself says of answers that are lost or refused is let pass.
 */
export async function look(t, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options })
  const page = await context.newPage()
  const wrong = []
  page.expected = undefined
  page.on('pageerror', (e) => wrong.push(String(e)))
  page.on('console', (m) => {
    if (['error', 'warning'].includes(m.type()) && !page.expected?.test(m.text())) wrong.push(m.text())
  })
  page.on('request', (r) => {
    if (!r.url().startsWith(new URL(url).origin) && !r.url().startsWith('data:')) wrong.push(`asked ${r.url()}`)
  })
  await page.addInitScript(() =>
    addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)),
  )
  t.after(async () => {
    await context.close()
    assert.deepEqual(wrong, [])
  })
  return page
}

/** enter opens a page of the console with a session. */
export async function enter(t, f, hash = '#/', options = {}) {
  const page = await look(t, f.url, options)
  page.sockets = []
  await page.routeWebSocket(/\/ws/, (ws) => {
    page.sockets.push(ws)
    ws.onMessage((text) => {
      const { id, method } = JSON.parse(text)
      if (id !== undefined) ws.send(JSON.stringify({ jsonrpc: '2.0', id, result: method === 'nonce_subscribe' ? 's1' : true }))
    })
  })
  await page.addInitScript(() => sessionStorage.setItem('noncegate.session', 'T'))
  await page.goto(`${f.url}/${hash}`)
  await page.locator('h1').waitFor()
  return page
}

/** findings are what axe has to say of a page. */
export async function findings(page) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  return violations.map(
    (v) =>
      `${v.id}: ${v.nodes
        .map((n) => `${n.html} ${n.failureSummary}`)
        .slice(0, 3)
        .join('; ')}`,
  )
}

export const pages = {
  'First look': '#/',
  Signers: '#/signers',
  [account]: `#/signer?signer=${encodeURIComponent(account)}`,
  'Nodes and shards': '#/nodes',
  Engine: '#/engine',
  'Keys and principals': '#/keys',
  Jobs: '#/jobs',
  Audit: '#/audit',
  Settings: '#/settings',
}
