// The console in Chromium, before a gateway that says what a test wants.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { until } from '../../sdk/typescript/test/lab.mjs'
import { account, browser, enter, fake, findings, iso, look, markup, pages, usual, view } from './fake.mjs'

after(() => browser.close())

const signer = pages[account]
const status = /Failed to load resource|^WebSocket connection/ // the browser says so of each refusal
const button = (page, name) => page.locator('main').getByRole('button', { name, exact: true }).first()
const dialog = (page) => page.getByRole('dialog')
const inDialog = (page, name) => dialog(page).getByRole('button', { name, exact: true })

for (const colorScheme of ['light', 'dark']) {
  test(`each page has what it is about, and axe finds nothing, ${colorScheme}`, async (t) => {
    const f = await fake(t)
    const page = await enter(t, f, '#/', { colorScheme })
    const shown = {
      'First look': [
        'Nonce 6 blocks 2 later ones.',
        'worker queue',
        'server_busy, stage worker',
        '70,000',
        'does not answer',
        '1 shard without an owner: 3',
      ],
      Signers: [account, 'nonce 6 blocks it', markup],
      [account]: ['Nonce 6 blocks 2 later ones; it is RELEASED.', 'payout-8', '5c5c5c', 'gas too low', markup],
      'Nodes and shards': ['silent', 'Drain node a', 'Pin shard 3'],
      Engine: ['RELIABLE', 'Switch to the performance engine', '3ms'],
      'Keys and principals': ['575ba144', 'openHolds 1,000', 'Revoke key 575ba144'],
      Jobs: ['j1', 'Cancel job j1'],
      Audit: ['nonce_setFloor', 'forbidden', markup],
      Settings: [':8080', 'left out: a secret'],
    }
    for (const [name, hash] of Object.entries(pages)) {
      await page.evaluate((hash) => (location.hash = hash), hash)
      await page.getByRole('heading', { level: 1, name }).waitFor()
      for (const text of shown[name]) await page.getByText(text).first().waitFor()
      assert.deepEqual(await findings(page), [], name)
    }
    await page.evaluate((hash) => (location.hash = hash), signer)
    f.say['signer/release'] = { wouldDo: 'It is given back.', before: { nonce: { nonce: 8, attempt: 1 } } }
    await button(page, 'Release nonce 8').click()
    await dialog(page).getByText('It is given back.').waitFor()
    assert.deepEqual(await findings(page), [], 'the dialog')
    assert.equal(await page.locator('img').count(), 0, 'a name became an element')
  })
}

test('an act is looked at first, needs a reason, and takes back what was shown', async (t) => {
  const f = await fake(t)
  const page = await enter(t, f, signer)
  const want = [
    [
      signer,
      'Release nonce 8',
      'signer/release',
      {},
      { signer: account, nonce: 8, attempt: 1 },
      { nonce: 8, attempt: 1, status: 'RELEASED' },
      'Nonce 8, attempt 1, is RELEASED.',
    ],
    [
      signer,
      'Consume nonce 8',
      'signer/consume',
      { 'Hash of the transaction': '0xab' },
      { signer: account, nonce: 8, attempt: 1, txHash: '0xab' },
      { nonce: 8, attempt: 1, status: 'CONSUMED' },
      'is CONSUMED',
    ],
    [
      signer,
      'Repair nonce 6',
      'signer/repair',
      {},
      { signer: account, nonce: 6, attempt: 1 },
      { nonce: 6, attempt: 2 },
      'Nonce 6 is yours with attempt 2',
    ],
    [
      signer,
      'Raise the floor',
      'signer/floor',
      { 'New floor': '12' },
      { signer: account, floor: 12, version: 8 },
      { floor: 12, next: 12 },
      'The floor is 12',
      account,
    ],
    ['#/nodes', 'Drain node a', 'node/drain', {}, { node: 'a' }, {}, 'Node a drains.', 'a'],
    ['#/nodes', 'Pin shard 3', 'shard/move', { Node: 'a' }, { shard: 3, node: 'a', token: 7 }, {}, 'Shard 3 moves'],
    [
      '#/engine',
      'Switch to the performance engine',
      'engine/switch',
      {},
      { to: 'performance', generation: 3 },
      { from: 'RELIABLE', to: 'PERFORMANCE' },
      'RELIABLE → PERFORMANCE',
      'performance',
    ],
    ['#/keys', 'Revoke key 575ba144', 'key/revoke', {}, { id: '575ba144' }, {}, 'is revoked'],
    [
      '#/keys',
      'Release unknown holds',
      'job',
      {},
      { kind: 'releaseUnknown', principal: 'relayer', olderThan: '0s' },
      { id: 'j2', count: 3 },
      'Job j2 began, with 3 holds.',
    ],
    [
      '#/jobs',
      'Raise floors of signers',
      'job',
      { 'Signers and floors': `${account} 7\nbob 9\n` },
      {
        kind: 'floors',
        floors: [
          { signer: account, floor: 7 },
          { signer: 'bob', floor: 9 },
        ],
      },
      { id: 'j3', count: 2 },
      'Job j3 began',
      'floors',
    ],
    [
      '#/keys',
      'Create an API key',
      'key/create',
      { Principal: 'relayer' },
      { principal: 'relayer', ttl: '2160h' },
      { id: '1', key: 'nck_secret' },
      'nck_secret',
    ],
    ['#/jobs', 'Cancel job j1', 'job/cancel', {}, { id: 'j1' }, {}, 'is cancelled'],
    ['#/engine', 'Compare the logs', 'engine/reconcile', {}, {}, { equal: 2, different: 0 }, '2 signers are equal'],
    ['#/engine', 'Ship the logs', 'engine/replay', {}, {}, { shipped: 1, left: 0 }, '1 logs were shipped'],
  ]
  for (const [hash, name, path, inputs, body, answer, told, typed] of want) {
    f.say[path] = (asked) => (asked.dryRun ? { wouldDo: `It would: ${name}.`, before: { signer: { version: 8 } } } : answer)
    await page.evaluate((hash) => (location.hash = hash), hash)
    await button(page, name).click()
    for (const [label, value] of Object.entries(inputs)) {
      const field = dialog(page).getByLabel(label).first()
      await ((await field.evaluate((e) => e.tagName)) === 'SELECT' ? field.selectOption(value) : field.fill(value))
    }
    const check = dialog(page).locator('button:not([aria-disabled])', { hasText: 'See what would change' }) // not while it is looked at
    await until('it was looked at, or can be', async () => (await check.isVisible()) || (await inDialog(page, name).isVisible()))
    if (await check.isVisible()) await check.click()
    await dialog(page).getByText(`It would: ${name}.`).waitFor()
    const act = inDialog(page, name)
    assert.equal(await act.getAttribute('aria-disabled'), 'true', name)
    await act.click({ force: true }) // without a reason
    await dialog(page).getByLabel('Reason', { exact: true }).fill('because')
    if (typed) {
      await act.click({ force: true }) // without the name
      await dialog(page).getByLabel(`Type ${typed} to confirm`).fill(typed)
    }
    await act.click()
    await dialog(page).getByText('Done.').waitFor()
    await dialog(page).getByText(told).first().waitFor()
    assert.deepEqual(
      f.of(path),
      [
        { ...body, dryRun: true },
        { ...body, reason: 'because' },
      ],
      name,
    )
    f.asked.length = 0
    await page.keyboard.press('Escape')
  }
  assert.ok(f.asked.every((a) => a.method === 'GET' || a.type === 'application/json'))
  for (const [hash, name, label, value, told] of [
    [signer, 'Raise the floor', 'New floor', '1e3', 'floor: must be a whole number from 0 on, is "1e3".'],
    ['#/jobs', 'Raise floors of signers', 'Signers and floors', 'alice 3\nbob', 'bob: floor: must be a whole number from 0 on, is "".'],
  ]) {
    await page.evaluate((hash) => (location.hash = hash), hash)
    await button(page, name).click()
    await dialog(page).getByLabel(label).first().fill(value)
    await inDialog(page, 'See what would change').click()
    await dialog(page).getByText(told).waitFor()
    await page.keyboard.press('Escape')
  }
  assert.deepEqual([f.of('signer/floor'), f.of('job')].flat(), [])

  // Many lines are not shown: Chromium stands still for minutes while so many are put into a field.
  f.say.job = { wouldDo: 'Floors rise.' }
  const many = Array.from({ length: 5_000 }, (_, i) => `erin-${i} 7\n`).join('')
  await button(page, 'Raise floors of signers').click()
  await dialog(page).getByLabel('File: Signers and floors').setInputFiles({ name: 'floors', mimeType: 'text/plain', buffer: Buffer.from(many) })
  await dialog(page).getByText('5,000 lines, too many to be shown.').waitFor()
  assert.deepEqual(await findings(page), [])
  await inDialog(page, 'Empty it').click()
  await dialog(page).getByLabel('Signers and floors', { exact: true }).evaluate((e, many) => {
    const clipboardData = new DataTransfer()
    clipboardData.setData('text/plain', many)
    e.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }))
  }, many)
  await dialog(page).getByText('5,000 lines, too many to be shown.').waitFor()
  await inDialog(page, 'See what would change').click()
  await dialog(page).getByText('Floors rise.').waitFor()
  assert.deepEqual([f.of('job').length, f.of('job')[0].floors.length, f.of('job')[0].floors[4_999]], [1, 5_000, { signer: 'erin-4999', floor: 7 }])
})

test('what was shown and is not so any more is shown anew, and what became of an act is said', async (t) => {
  const f = await fake(t)
  const page = await enter(t, f, signer)
  page.expected = status
  let attempt = 1
  f.say.signer = ({ signer }) => view(signer, attempt)
  f.say['signer/release'] = (asked) => {
    if (asked.attempt !== attempt) return [409, { error: `nonce 8 has attempt ${attempt}` }]
    return asked.dryRun ? { wouldDo: `Attempt ${attempt} ends.`, before: { nonce: { attempt } } } : null
  }
  await button(page, 'Release nonce 8').click()
  await dialog(page).getByText('Attempt 1 ends.').waitFor()
  attempt = 2
  await dialog(page).getByLabel('Reason').fill('because')
  await inDialog(page, 'Release nonce 8').click()
  await dialog(page).getByText('it has changed since it was shown (nonce 8 has attempt 2)').waitFor()
  await dialog(page).getByText('Attempt 2 ends.').waitFor()
  await inDialog(page, 'Release nonce 8').click()
  await dialog(page).getByText('Unknown.').waitFor() // the answer was lost
  await dialog(page).getByText('it may have happened').waitFor()
  await page.keyboard.press('Escape')

  for (const [answer, told] of [
    [[403, { error: 'the right mark-any is missing' }], 'Not done. The gateway refused: the right mark-any is missing. Nothing happened.'],
    [[503, { error: 'the store is away', outcome: 'unknown' }], 'Unknown. It is not known whether this was done (the store is away)'],
    [[503, { error: 'the store is away', outcome: 'none' }], 'Not done: the store is away. Nothing happened; this is no refusal.'],
    [[400, { error: 'reason: 256 bytes at most' }], 'Not done. The gateway refused: reason: 256 bytes at most.'],
  ]) {
    f.say['signer/release'] = (asked) => (asked.dryRun ? { wouldDo: 'It ends.' } : answer)
    await button(page, 'Release nonce 8').click()
    await dialog(page).getByText('It ends.').waitFor()
    await dialog(page).getByLabel('Reason').fill('x'.repeat(4096))
    await inDialog(page, 'Release nonce 8').click()
    await dialog(page).getByText(told).waitFor()
    await page.keyboard.press('Escape')
  }
  assert.equal(await page.getByRole('dialog').count(), 0)
})

test('what the rights forbid is disabled with the reason, and an outage is no refusal', async (t) => {
  const f = await fake(t)
  for (const [me, why] of [
    [{ all: false, rights: [{ signers: 'eip155:1:*', rights: ['read', 'repair'] }] }, 'Needs the right mark-any on this signer.'],
    [{ console: 'read' }, 'This gateway runs with --console read: look only.'],
    [{ acts: false, why: 'The admin key names nobody.' }, 'The admin key names nobody.'],
  ]) {
    f.say.me = { node: 'a', version: 'v1', credential: 'key:1', console: 'on', acts: true, all: true, ...me }
    const page = await enter(t, f, signer)
    const release = button(page, 'Release nonce 8')
    await release.waitFor()
    assert.equal(await release.getAttribute('aria-disabled'), 'true')
    await page.getByText(why).first().waitFor()
    await release.click({ force: true })
    assert.equal(await page.getByRole('dialog').count(), 0)
    const repair = await button(page, 'Repair nonce 6').getAttribute('aria-disabled')
    assert.equal(repair, me.rights ? null : 'true')
  }
  const page = await enter(t, f, '#/settings')
  page.expected = status
  f.say.keys = [403, { error: 'the right read is missing' }]
  f.say.principals = [503, { error: 'the store is away', outcome: 'none' }]
  await page.evaluate(() => (location.hash = '#/keys'))
  await page.getByText('The gateway refuses this page: the right read is missing').waitFor()
  await page.getByText('Not known: the store is away. It is asked again.').waitFor()
})

test('what is gone is told as long as the console is open, and who may see what', async (t) => {
  const f = await fake(t)
  const page = await enter(t, f, signer)
  await page.getByText('This gateway asks for no names: you may look, and do every act.').waitFor()
  await page.getByText('Nonce 6 blocks 2 later ones; it is RELEASED.').waitFor()
  await page.getByText('holdernone is named').waitFor()
  await page.getByText('Events are shown from').waitFor()
  await page.getByRole('group', { name: 'Its nonces when this page was opened' }).getByText('CONSUMED, sent').waitFor()
  await page.evaluate(() => (location.hash = '#/'))
  await page.getByText('Nonce 6 blocks 2 later ones.').waitFor()

  const { overview, signer: was } = f.say
  const hash = `0x${'6d'.repeat(32)}`
  f.say.overview = () => ({ ...overview(), findings: [] })
  f.say.signer = (asked) => {
    const v = was(asked)
    delete v.status.chain.gap
    v.last[1] = { nonce: 6, status: 'CONSUMED', chain: 'external', attempt: 1, txHash: hash, updatedAt: iso() }
    return { ...v, holders: false }
  }
  await page.getByText(/gone at .* UTC: Nonce 6 blocks 2 later ones\./).waitFor()
  assert.deepEqual(await findings(page), [])
  await page.evaluate((hash) => (location.hash = hash), signer)
  await page.getByText(/Nonce 6 blocks no more: closed at .* UTC\./).waitFor()
  await page.getByText(`It is CONSUMED by transaction ${hash} (external), attempt 1.`).waitFor()
  await page.getByRole('button', { name: /^nonce 6,/ }).click()
  await page.getByText('holdernot shown: you have none of mark-any, repair and admin on this signer').waitFor()
  await page.getByText('external: the chain used it with a transaction that was not sent through this gateway').waitFor()
  assert.deepEqual(await findings(page), [])
  f.say.signer = was // it blocks again
  await page.getByText('Nonce 6 blocks 2 later ones; it is RELEASED.').waitFor()
  assert.equal(await page.getByText('blocks no more').count(), 0)

  // A nonce that the reader holds himself, for which he has to sign.
  f.say.signer = (asked) => {
    const v = was(asked)
    v.status.chain.gap.status = 'HELD'
    return { ...v, holds: [{ nonce: 6, status: 'HELD', attempt: 2, holder: 'ops', heldUntil: iso(290_000) }] }
  }
  await page.getByText(/Nonce 6 blocks 2 later ones; you hold it, and your hold ends in 4 min/).waitFor()
  await page.getByText('http://a/eth/1').waitFor()
  for (const [me, told] of [
    [{ all: false, rights: [] }, 'You act as ops, by its rights.'],
    [{ all: false, acts: false, principal: '', credential: 'admin' }, 'admin: it has no principal, so you may look only.'],
    [{ console: 'read' }, 'ops: you may look only (--console read).'],
  ]) {
    f.say.me = { ...usual().me, ...me }
    await page.reload()
    await page.getByText(told).waitFor()
  }
})

test('a session is of one tab: by a link, by a key, until it ends, also in the middle of a dialog', async (t) => {
  const f = await fake(t, {
    session: ({ ticket }, bearer) =>
      ticket === 'good' || bearer === 'nck_good'
        ? { token: 'T' }
        : bearer === 'nck_often'
          ? [429, { error: 'too many failures' }]
          : [401, { error: 'not valid' }],
    'signer/release': { wouldDo: 'It is given back.' },
  })
  const page = await look(t, f.url)
  page.expected = status
  await page.goto(`${f.url}/#ticket=used`)
  await page.getByText('The link was used before').waitFor()
  await page.goto('about:blank')
  await page.goto(`${f.url}/#ticket=good`)
  await page.getByRole('heading', { name: 'First look' }).waitFor()
  assert.ok(!page.url().includes('good'), 'the ticket stays in the address')
  await page.reload()
  await page.getByRole('heading', { name: 'First look' }).waitFor()
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByText('You are logged out.').waitFor()
  assert.equal(f.of('session/end').length, 1)
  for (const [key, told] of [
    ['nck_bad', 'This key is not valid here. (not valid)'],
    ['nck_often', 'Not logged in: too many failures. Try again.'],
    ['nck_good', '1 thing to look at'],
  ]) {
    await page.getByLabel('API key or admin key').fill(key)
    await page.keyboard.press('Enter')
    await page.getByText(told).waitFor()
  }
  assert.deepEqual(await page.evaluate(() => [document.cookie, localStorage.length, Object.values(sessionStorage)]), ['', 0, ['T']])
  await page.evaluate((hash) => (location.hash = hash), signer)
  await button(page, 'Release nonce 8').click()
  await dialog(page).getByText('It is given back.').waitFor()
  f.key = true
  f.say = Object.fromEntries(
    Object.keys(f.say).map((path) => [path, path === 'session' ? f.say.session : [401, { error: 'the session has ended' }]]),
  )
  await page.getByRole('heading', { name: 'Your session ended' }).waitFor()
  await page.getByText('"Release nonce 8" was not done.').waitFor()
  assert.equal(await page.evaluate(() => sessionStorage.length), 0)
})

test('old news are said to be old, and nothing is asked in a hidden tab', async (t) => {
  const f = await fake(t)
  const page = await enter(t, f, '#/')
  await page.getByText('worker queue').waitFor()
  page.expected = status
  f.away = true
  await page.getByText('No news for more than 5 s: the gateway does not answer.').waitFor()
  assert.equal(await page.locator('main.old').count(), 1)
  await page.getByText('worker queue').waitFor() // what was seen last stays
  f.away = false
  await page.locator('main:not(.old)').waitFor()

  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden })
      document.dispatchEvent(new Event('visibilitychange'))
    }, hidden)
  await hide(true)
  await page.waitForTimeout(200) // what is under way
  f.asked.length = 0
  await page.waitForTimeout(5_000) // more than two looks
  assert.deepEqual(f.asked, [])
  await hide(false)
  await until('it is asked at once', () => f.of('overview').length > 0)
})

test('events are shown as they come, and what was missed is read anew', async (t) => {
  const f = await fake(t)
  const page = await enter(t, f, signer)
  await page.locator('.word', { hasText: /live$/ }).waitFor()
  assert.match(page.sockets[0].url(), /\/ws\?ticket=once$/)
  const tell = (result) =>
    page.sockets.at(-1).send(JSON.stringify({ jsonrpc: '2.0', method: 'nonce_subscription', params: { subscription: 's1', result } }))
  const event = { type: 'released', signer: account, nonce: 8, attempt: 1, version: 9, at: iso(), reason: markup }
  const asked = f.of('signer').length
  tell(event)
  await page.getByRole('cell', { name: 'released', exact: true }).waitFor()
  await until('the signer is read', () => f.of('signer').length > asked)
  tell({ ...event, missed: 3 })
  await page.getByText('events are missing here').waitFor()
  page.expected = /WebSocket/
  page.sockets.at(-1).close({ code: 1012, reason: 'restart' })
  await until('it comes back', () => page.sockets.length > 1)
  await page.locator('.word', { hasText: /live$/ }).waitFor()
})

test('ten thousand signers and three hundred nodes are shown as far as they are seen', async (t) => {
  const all = Array.from({ length: 10_000 }, (_, i) => `eip155:1:0x${String(i).padStart(40, '0')}`)
  const f = await fake(t, {
    signers: ({ after = '', prefix = '', limit }) => {
      const left = all.filter((s) => s > after && s.startsWith(prefix)),
        page = left.slice(0, Number(limit))
      return {
        node: 'a',
        signers: page.map((signer) => ({ signer, next: 1, floor: 0, held: 0, unknown: 0, released: 0 })),
        ...(left.length > page.length && { next: page.at(-1) }),
      }
    },
    nodes: {
      nodeCount: 300,
      nodes: Array.from({ length: 300 }, (_, i) => ({
        node: `n${i}`,
        url: 'ws://x/ws',
        state: i === 250 ? 'silent' : 'live',
        incarnation: 1,
        shards: 1,
        startedAt: iso(),
        seenAt: iso(),
      })),
    },
  })
  const page = await enter(t, f, '#/signers')
  const table = page.getByRole('group', { name: 'Signers' })
  await page.getByText(all[0]).waitFor()
  await until('the last is shown', async () => {
    await table.evaluate((e) => (e.scrollTop = e.scrollHeight))
    return page.getByText(all.at(-1)).isVisible()
  })
  assert.ok((await page.locator('tr').count()) < 100)
  await page.getByLabel('Name begins with').fill(all[1234].slice(0, -1))
  await page.getByText('10 signers.').waitFor()
  await page.getByText(all[1234]).click()
  await page.getByRole('heading', { name: all[1234] }).waitFor()
  await page.evaluate(() => (location.hash = '#/nodes'))
  assert.match(await page.getByRole('group', { name: 'Nodes', exact: true }).getByRole('row').nth(1).innerText(), /n250.*silent/s)
  assert.ok((await page.locator('tr').count()) < 150)
})

test('by the keyboard alone', async (t) => {
  const f = await fake(t, { 'signer/release': { wouldDo: 'It is given back.' } })
  const page = await enter(t, f, '#/')
  const focus = () => page.evaluate(() => (document.activeElement === document.body ? '' : document.activeElement.textContent))
  const tabTo = async (name) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press('Tab')
      if ((await focus()).includes(name)) return
    }
    assert.fail(`no Tab comes to ${name}`)
  }
  await until('the heading has the focus', async () => (await focus()) === 'First look')
  await page.getByText('Nonce 6 blocks 2 later ones.').waitFor()
  await tabTo(account)
  await page.keyboard.press('Enter')
  await until('the heading has the focus', async () => (await focus()) === account)
  await button(page, 'Release nonce 8').waitFor()
  await tabTo('Release nonce 8')
  await page.keyboard.press('Enter')
  await dialog(page).getByText('It is given back.').waitFor()
  await page.keyboard.type('because') // the reason has the focus
  f.say['signer/release'] = { nonce: 8, attempt: 1, status: 'RELEASED' }
  await page.keyboard.press('Enter')
  await dialog(page).getByText('Done.').waitFor()
  assert.equal(await focus(), 'Close')
  await page.keyboard.press('Enter')
  await until('the button has the focus again', async () => (await focus()) === 'Release nonce 8')
  await tabTo('6✕') // the strip is one stop
  await page.keyboard.press('End')
  assert.equal(await focus(), '8?')
  await page.getByRole('heading', { name: 'Nonce 8', exact: true }).waitFor()
})
