// The console in Chromium, before real gateways: two on PostgreSQL with Redis and a chain, and one on a file that is killed.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { node, startGateway, startNodes, until } from '../../sdk/typescript/test/lab.mjs'
import { browser, findings, look } from './fake.mjs'

after(() => browser.close())

const refusals = /Failed to load resource|^WebSocket connection/ // the browser says so of each
const rich = 'eip155:31337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266' // anvil signs for it
const main = (page, name) => page.locator('main').getByRole('button', { name, exact: true }).first()
const dialog = (page) => page.getByRole('dialog')
const admin = (g) => g.process.found[2]
const shown = async (page, name) => process.env.IMAGES && page.screenshot({ path: join(process.env.IMAGES, `console-${name}.png`) })

/** go shows a page of the console. */
async function go(page, hash) {
  await page.evaluate((hash) => (location.hash = hash), hash)
  await page.locator('main h1').waitFor()
}
const signerPage = (signer) => `#/signer?signer=${encodeURIComponent(signer)}`

/** open begins an act, fills in what it asks for, and looks at what would change. */
async function open(page, name, inputs = {}) {
  await main(page, name).click()
  for (const [label, value] of Object.entries(inputs)) {
    const field = dialog(page).getByLabel(label).first()
    if (value === true) await field.check()
    else await ((await field.evaluate((e) => e.tagName)) === 'SELECT' ? field.selectOption(value) : field.fill(value))
  }
  if (Object.keys(inputs).length) await dialog(page).getByRole('button', { name: 'See what would change' }).click()
  await dialog(page).getByLabel('Reason', { exact: true }).waitFor()
}

/** finish does what was looked at, and returns what came of it. */
async function finish(page, name, typed) {
  await dialog(page).getByLabel('Reason', { exact: true }).fill('a test of the console')
  if (typed) await dialog(page).getByLabel(`Type ${typed} to confirm`).fill(typed)
  await dialog(page).getByRole('button', { name, exact: true }).click()
  const end = dialog(page).locator('.end')
  await end.waitFor()
  const text = await end.innerText()
  await dialog(page).getByRole('button', { name: 'Close' }).click()
  return text
}

async function act(page, name, inputs, typed) {
  await open(page, name, inputs)
  return finish(page, name, typed)
}

/** cluster is two gateways with keys for a principal of each kind. */
async function cluster(t) {
  const n = await node(t, true)
  const dir = mkdtempSync(join(tmpdir(), 'noncegate-console-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  writeFileSync(
    join(dir, 'rights.yaml'),
    `principals:
  ops: [{rights: [allocate, mark, mark-any, read, subscribe, repair, admin, chain], signers: ["*"]}]
  reader: [{rights: [read, subscribe], signers: ["*"]}]
  nobody: []
`,
  )
  const [a, b] = await startNodes(
    t,
    `--rights=${join(dir, 'rights.yaml')}`,
    '--node-secret=0123456789abcdef0123456789abcdef',
    `--chain=eip155:31337=${n.ws}`,
    '--chain-poll=50ms',
    '--sweep-interval=100ms',
    '--chain-gap-after=1s',
    '--unknown-ttl=1h',
    '--engine-rehearsal=1s',
    `--redis=${process.env.REDIS}`,
  )
  const key = (principal) => a.command('key', 'create', principal).trim()
  const keys = { ops: key('ops'), reader: key('reader'), nobody: key('nobody') }
  const call = (method, params) => {
    const out = execFileSync(process.env.NONCEGATE, ['call', '--timeout', '60s', '--url', a.url, '--token', keys.ops, method, JSON.stringify(params)], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    return JSON.parse(out)
  }
  const operator = (...args) => {
    const out = execFileSync(process.env.NONCEGATE, [...args, '--json', '--admin', admin(a), '--token', keys.ops], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
    return JSON.parse(out)
  }
  await until('the keys are known', () => {
    try {
      return call('gateway_info', [])
    } catch {
      return false
    }
  })
  return { n, a, b, keys, call, operator }
}

/** login pastes a key. */
async function login(t, url, key) {
  const page = await look(t, url)
  page.expected = refusals
  await page.goto(url)
  await page.getByRole('button', { name: 'Log in with a key' }).click() // what needs no key here is shown already
  await page.getByLabel('API key or admin key').fill(key)
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Log out' }).waitFor()
  return page
}

test('two gateways on PostgreSQL, with Redis and a chain', async (t) => {
  const { n, a, b, keys, call, operator } = await cluster(t)
  const link = execFileSync(process.env.NONCEGATE, ['console', '--admin', admin(a), '--token', keys.ops], { encoding: 'utf8' }).match(
    /http\S+#ticket=\S+/,
  )[0]

  // A gap: nonce 0 was given back, and nonce 1 waits in the pool.
  const held = [0, 1].map(() => call('nonce_allocate', { signer: rich }))
  const send = (nonce) => n.rpc('eth_sendTransaction', { from: rich.slice(-42), to: rich.slice(-42), value: '0x1', nonce: `0x${nonce}` })
  call('nonce_markUsed', { signer: rich, nonce: 1, attempt: 1, txHash: await send(1) })
  call('nonce_markRecyclable', { signer: rich, nonce: 0, attempt: 1, reason: 'gas too low' })
  assert.deepEqual(
    held.map((h) => h.nonce),
    [0, 1],
  )
  await until('the gap is found', async () => (await n.rpc('anvil_mine', '0x1'), call('nonce_status', { signer: rich }).chain?.gap))

  const page = await look(t, admin(a))
  await page.goto(link)
  await page.locator('.findings').getByRole('link', { name: rich }).first().waitFor()
  assert.ok(!page.url().includes('ticket'))
  await page.getByText('worker queue').waitFor()
  assert.deepEqual(await findings(page), [])
  await shown(page, 'first-look')

  await t.test('a gap is mended', async () => {
    await page.locator('.findings').getByRole('link', { name: rich }).first().click()
    await page.getByText('Nonce 0 blocks 1 later one; it is RELEASED.').waitFor()
    await page.locator('.word', { hasText: /live$/ }).waitFor()
    await shown(page, 'gap')
    assert.deepEqual(await findings(page), [])
    assert.match(await act(page, 'Repair nonce 0'), /^Done. Nonce 0 is yours with attempt 2/)
    const txHash = await send(0)
    call('nonce_markUsed', { signer: rich, nonce: 0, attempt: 2, txHash })
    await page.getByRole('cell', { name: 'used', exact: true }).first().waitFor() // its event
    await until(
      'the gap is closed',
      async () => (await n.rpc('anvil_mine', '0x1'), page.getByText('Nothing about it needs a person.').isVisible()),
    )
    await page.getByText(/Nonce 0 blocks no more: closed at .* UTC\./).waitFor()
    await page.getByText(`It is CONSUMED by transaction ${txHash}`).waitFor()
  })

  await t.test('a nonce whose transaction is lost goes to the next client', async () => {
    const lost = 'eip155:31337:0x70997970c51812dc3a010c7d01b50e0d17dc79c8'
    const send = (nonce) => n.rpc('eth_sendTransaction', { from: lost.slice(-42), to: lost.slice(-42), value: '0x1', nonce: `0x${nonce}` })
    for (let i = 0; i < 2; i++) call('nonce_allocate', { signer: lost })
    call('nonce_markUsed', { signer: lost, nonce: 0, attempt: 1, txHash: `0x${'1d'.repeat(32)}` }) // no node ever gets it
    call('nonce_markUsed', { signer: lost, nonce: 1, attempt: 1, txHash: await send(1) })
    const blocks = () => {
      const c = call('nonce_status', { signer: lost }).chain
      return c?.gap ?? c?.dropped
    }
    await until('the gap is found', async () => (await n.rpc('anvil_mine', '0x1'), blocks()))
    await go(page, signerPage(lost))
    const name = 'Repair nonce 0 and give it back'
    await open(page, name)
    await dialog(page).getByText(`nonce 0 of ${lost}, which is CONSUMED, becomes yours with a new attempt, and is given back at once`).waitFor()
    const first = () => call('nonce_list', { signer: lost, limit: 1 }).allocations.map((x) => [x.nonce, x.attempt, x.status].join(' '))[0]
    assert.equal(first(), '0 1 CONSUMED') // a look changes nothing
    assert.match(await finish(page, name), /^Done. Nonce 0 was given back \(attempt 2\)/)
    assert.equal(first(), '0 2 RELEASED')
    const next = call('nonce_allocate', { signer: lost })
    assert.deepEqual([next.nonce, next.attempt], [0, 3])
    call('nonce_markUsed', { signer: lost, nonce: 0, attempt: 3, txHash: await send(0) })
    await until('nothing blocks', async () => (await n.rpc('anvil_mine', '0x1'), !blocks()))
    await page.getByText('Nonce 0 blocks no more').waitFor()
  })

  await t.test('nonces and floors of a signer', async () => {
    const list = () => call('nonce_list', { signer: 'alice' }).allocations.map((x) => [x.nonce, x.attempt, x.status].join(' '))
    for (let i = 0; i < 3; i++) call('nonce_allocate', { signer: 'alice', holdMs: 600_000 })
    await go(page, '#/signers')
    await page.getByLabel('Name begins with').fill('ali')
    await page.getByRole('link', { name: 'alice' }).click()
    const cell = (nonce) => page.getByRole('button', { name: new RegExp(`^nonce ${nonce},`) })
    await cell(0).click()
    assert.match(await act(page, 'Release nonce 0'), /Done. Nonce 0, attempt 1, is RELEASED/)
    // Somebody else acts while the dialog is open.
    await cell(1).click()
    await open(page, 'Release nonce 1')
    call('nonce_markRecyclable', { signer: 'alice', nonce: 1, attempt: 1 })
    assert.deepEqual(
      [0, 1].map(() => call('nonce_allocate', { signer: 'alice', holdMs: 600_000 }).nonce),
      [0, 1],
    )
    page.expected = refusals
    await dialog(page).getByLabel('Reason').fill('stale')
    await dialog(page).getByRole('button', { name: 'Release nonce 1' }).click()
    await dialog(page).getByText('it has changed since it was shown').waitFor()
    assert.deepEqual(list(), ['0 2 HELD', '1 2 HELD', '2 1 HELD'])
    assert.match(await finish(page, 'Release nonce 1'), /Done. Nonce 1, attempt 2, is RELEASED/)
    await cell(2).click()
    assert.match(
      await act(page, 'Consume nonce 2', { 'It was used, although nothing shows that': true }),
      /Done. Nonce 2, attempt 1, is CONSUMED/,
    )
    assert.deepEqual(list(), ['0 2 HELD', '1 2 RELEASED', '2 1 CONSUMED'])
    await open(page, 'Raise the floor', { 'New floor': '10' })
    call('nonce_allocate', { signer: 'alice' }) // the version is another one by now
    await dialog(page).getByLabel('Reason', { exact: true }).fill('stale')
    await dialog(page).getByLabel('Type alice to confirm').fill('alice')
    await dialog(page).getByRole('button', { name: 'Raise the floor' }).click()
    await dialog(page).getByText('it has changed since it was shown').waitFor()
    assert.match(await finish(page, 'Raise the floor', 'alice'), /Done. The floor is 10/)
    assert.equal(call('nonce_status', { signer: 'alice' }).floor, 10)
  })

  await t.test('a reason that is too long is refused in words', async () => {
    for (const [floor, reason, told] of [
      ['11', 'x'.repeat(4096), /bytes/],
      ['11', 'x'.repeat(300), /reason: must be at most 256 bytes/],
    ]) {
      await main(page, 'Raise the floor').click()
      await dialog(page).getByLabel('New floor').fill(floor)
      await dialog(page).getByRole('button', { name: 'See what would change' }).click()
      const reasons = dialog(page).getByLabel('Reason', { exact: true }),
        end = dialog(page).locator('.end')
      await reasons.or(end).first().waitFor()
      if (await reasons.isVisible()) {
        await reasons.fill(reason)
        await dialog(page).getByLabel('Type alice to confirm').fill('alice')
        await dialog(page).getByRole('button', { name: 'Raise the floor' }).click()
      }
      await end.waitFor()
      assert.match(await end.innerText(), /^Not done\. /)
      assert.match(await end.innerText(), told)
      await page.keyboard.press('Escape')
    }
    assert.equal(call('nonce_status', { signer: 'alice' }).floor, 10)
  })

  await t.test('jobs', async () => {
    await go(page, '#/jobs')
    assert.match(
      await act(page, 'Raise floors of signers', { 'Signers and floors': 'carol 7\ndave 9' }, 'floors'),
      /Done. Job \S+ began, with 2/,
    )
    await until(
      'the floors are raised',
      () => call('nonce_status', { signer: 'dave' }).floor === 9 && call('nonce_status', { signer: 'carol' }).floor === 7,
    )
    call('nonce_allocate', { signer: rich, holdMs: 1000 })
    await until('its use is unknown', () => call('nonce_status', { signer: rich }).unknown === 1)
    assert.match(
      await act(page, 'Release unknown holds', { Principal: 'ops', 'Signer last written longer ago than': '1ms' }),
      /Done. Job \S+ began, with 1/,
    )
    await until('it is released', () => call('nonce_status', { signer: rich }).released === 1)
    await page.getByRole('table').getByRole('button').first().click()
    await page.getByRole('group', { name: 'Outcomes' }).getByText('done').first().waitFor()
    assert.deepEqual(await findings(page), [])

    // One that takes minutes is cancelled; until then there is no other.
    const file = join(a.dir, 'floors')
    writeFileSync(file, Array.from({ length: 50_000 }, (_, i) => `erin-${i} 1\n`).join(''))
    const { id } = operator('job', 'floors', file, '--reason=a long one')
    await main(page, 'Release unknown holds').click()
    await dialog(page).getByLabel('Principal').fill('ops')
    await dialog(page).getByRole('button', { name: 'See what would change' }).click()
    await dialog(page).getByText('The gateway refused: conflict: a job runs at this node, and only one does at a time').waitFor()
    await page.keyboard.press('Escape')
    const cancel = `Cancel job ${id}`
    await open(page, cancel)
    await dialog(page).getByText(/the job ends with \d+ items that are not begun/).waitFor()
    assert.equal(operator('job', 'show', id).job.state, 'running')
    assert.match(await finish(page, cancel), /^Done/)
    await page.getByRole('row').filter({ hasText: id }).getByText('cancelled').waitFor()
    const { job } = operator('job', 'show', id)
    assert.ok(job.left > 0 && job.done + job.failed + job.left === 50_000, JSON.stringify(job))

    // Ten jobs are kept: the oldest of them goes for an eleventh, also while it is shown.
    await page.getByRole('button', { name: id, exact: true }).click()
    await page.getByRole('heading', { name: `Outcomes of job ${id}` }).waitFor()
    writeFileSync(file, 'erin-0 2\n')
    for (let i = 0; i < 10; i++) {
      const begun = operator('job', 'floors', file, '--reason=one of many')
      await until('it has ended', () => operator('job', 'show', begun.id).job.state === 'done')
    }
    await page.getByRole('button', { name: id, exact: true }).waitFor({ state: 'hidden' })
    assert.equal(await page.getByRole('group', { name: 'Jobs' }).getByRole('row').count(), 11)
    await page.getByText(`The node does not keep job ${id} any more: it keeps the last 10.`).waitFor()
  })

  await t.test('shards', async () => {
    await go(page, '#/nodes')
    await page.getByText('2 nodes live.').waitFor()
    assert.match(await act(page, 'Pin shard 0', { Node: 'b' }), /Done. Shard 0 moves/)
    await until(
      'b has it',
      () =>
        call('gateway_info', []).nodes.some((x) => x.node === 'b') &&
        page
          .getByRole('group', { name: 'Shards' })
          .getByRole('row')
          .filter({ hasText: /^0/ })
          .filter({ hasText: /b.*b.*b/s })
          .isVisible(),
    )
  })

  await t.test('keys, and what their principals may do', async () => {
    await go(page, '#/keys')
    await page.getByRole('group', { name: 'API keys' }).getByText('reader').waitFor()
    await main(page, 'Create an API key').click()
    await dialog(page).getByLabel('Principal').fill('reader')
    await dialog(page).getByRole('button', { name: 'See what would change' }).click()
    await dialog(page).getByLabel('Reason', { exact: true }).fill('a test of the console')
    await dialog(page).getByRole('button', { name: 'Create an API key' }).click()
    const made = await dialog(page).locator('.secret').innerText()
    await page.keyboard.press('Escape')
    const id = /^nck_([0-9a-f]+)_/.exec(made)[1]

    const reader = await login(t, admin(a), await until('the key is known', () => made))
    await go(reader, signerPage('alice'))
    await reader.getByText('Needs the right admin on this signer.').waitFor()
    assert.equal(await main(reader, 'Raise the floor').getAttribute('aria-disabled'), 'true')
    await go(reader, '#/settings')
    await reader.getByText('left out: a secret').first().waitFor()
    assert.ok(!(await reader.content()).includes('0123456789abcdef'))

    const nobody = await login(t, admin(a), keys.nobody)
    await nobody
      .getByText(/The gateway refuses this page: .*read/)
      .first()
      .waitFor()

    assert.match(await act(page, `Revoke key ${id}`), /Done. Key \S+ is revoked/)
    await reader.getByRole('heading', { name: 'Your session ended' }).waitFor()
  })

  await t.test('the audit has the acts', async () => {
    await go(page, '#/audit')
    await page.getByText('a test of the console').first().waitFor()
    assert.deepEqual(await findings(page), [])
  })

  await t.test('the engine', async () => {
    await go(page, '#/engine')
    await page.locator('.word', { hasText: /available$/ }).waitFor()
    const { generation } = operator('engine', 'status')
    await open(page, 'Switch to the performance engine')
    await dialog(page).getByText(`the whole cluster goes from RELIABLE to PERFORMANCE, as generation ${generation + 1}`).waitFor()
    await page.keyboard.press('Escape')
    const { state, goal, generation: still } = operator('engine', 'status')
    assert.deepEqual([state, goal, still], ['RELIABLE', 'RELIABLE', generation]) // a look changes nothing
    assert.match(await act(page, 'Switch to the performance engine', {}, 'performance'), /^Done/)
    await page.locator('strong', { hasText: /^PERFORMANCE$/ }).waitFor()
    await page.getByRole('group', { name: 'Logs of this node' }).waitFor()
    await shown(page, 'engine')
    assert.deepEqual(await findings(page), [])
    assert.match(await act(page, 'Compare the logs'), /Done. \d+ signers are equal, 0 are different/)
    assert.match(await act(page, 'Ship the logs'), /Done. \d+ logs were shipped, 0 have/)
    assert.match(await act(page, 'Switch to the reliable engine', {}, 'reliable'), /^Done/)
    await page.locator('strong', { hasText: /^RELIABLE$/ }).waitFor()
  })

  await t.test('how long the first page takes', async () => {
    const all = []
    await go(page, '#/')
    await page.addInitScript(() => {
      new MutationObserver((_, o) => {
        if (!document.querySelector('.findings')) return
        globalThis.shownAt = performance.now()
        o.disconnect()
      }).observe(document, { childList: true, subtree: true })
    })
    for (let i = 0; i < 10; i++) {
      await page.reload()
      await page.locator('.findings').waitFor()
      all.push(
        await page.evaluate(() => {
          const [n] = performance.getEntriesByType('navigation')
          return { loaded: n.loadEventEnd, data: globalThis.shownAt }
        }),
      )
    }
    const median = (of) => all.map(of).sort((a, b) => a - b)[5].toFixed(0)
    t.diagnostic(`ten times the first page, medians: loaded after ${median((x) => x.loaded)} ms, with its data after ${median((x) => x.data)} ms`)
  })

  await t.test('a node drains', async () => {
    await go(page, '#/nodes')
    assert.match(await act(page, 'Drain node a', {}, 'a'), /Done. Node a drains/)
    const other = await login(t, admin(b), keys.ops)
    await go(other, '#/nodes')
    await other.getByRole('row').filter({ hasText: 'left' }).waitFor()
    await until('all shards are of b', async () => !(await other.getByRole('group', { name: 'Shards' }).innerText()).includes('none'))
  })
})

test('a gateway that asks for no key is killed while it is shown, and comes back', async (t) => {
  const g = await startGateway(t)
  const server = createServer((client) => {
    const there = connect(Number(new URL(admin(g)).port), '127.0.0.1')
    for (const s of [client, there]) s.on('error', () => (client.destroy(), there.destroy()))
    client.pipe(there).pipe(client)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const page = await look(t, `http://127.0.0.1:${server.address().port}`)
  const call = (method, params) =>
    JSON.parse(execFileSync(process.env.NONCEGATE, ['call', '--url', g.url, method, JSON.stringify(params)], { encoding: 'utf8' }))
  call('nonce_allocate', { signer: 'alice' })
  await page.goto(`http://127.0.0.1:${server.address().port}/${signerPage('alice')}`)
  const live = page.locator('.word', { hasText: /live$/ })
  await live.waitFor()
  page.expected = refusals
  await g.kill()
  await page.getByText('No news for more than 5 s').waitFor()
  await page.locator('main.old').getByText('Nothing about it needs a person.').waitFor() // what was seen last
  await g.again()
  await live.waitFor()
  await page.locator('main:not(.old)').waitFor()
  await page.getByText('events are missing here').waitFor()
  call('nonce_allocate', { signer: 'alice' })
  await page.getByRole('cell', { name: 'allocated', exact: true }).waitFor()
  await page.getByRole('button', { name: /^nonce 1,/ }).waitFor()
})
