// Two gateways on one database of PostgreSQL, which DATABASES hands out.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Gateway } from 'noncegate'
import { startNodes, until, way } from './lab.mjs'

const hash = (n) => '0x' + String(n).padStart(64, '1')

test('not_owner is followed to the owner, and a node that is killed between request and answer costs nothing', async (t) => {
  const [a, b] = await startNodes(t, '--forward=off')
  const g = new Gateway(a.url)
  const direct = new Gateway(b.url)
  t.after(() => Promise.all([g.close(), direct.close()]))
  const owners = {}
  for (let i = 0; i < 40; i++) {
    const held = await g.allocate({ signer: `s${i}`, requestId: 'first' })
    assert.equal((await g.markUsed(held, hash(1))).status, 'CONSUMED')
    owners[`s${i}`] = (await g.status(`s${i}`)).owner
  }
  assert.deepEqual(new Set(Object.values(owners)), new Set(['a', 'b']), 'one node owns everything')
  const ofB = Object.keys(owners).filter((s) => owners[s] === 'b')

  // The owner is killed: the first node takes over, and the same request ids are answered the same.
  const waiting = ofB.map((signer) => g.allocate({ signer, requestId: 'second' }))
  await Promise.all(waiting)
  await b.kill()
  for (const signer of ofB) {
    const [again, next] = await Promise.all(['second', 'third'].map((requestId) => g.allocate({ signer, requestId })))
    assert.deepEqual([again.nonce, again.attempt, next.nonce, next.attempt], [1, 1, 2, 1])
  }
  await b.again()
  await until('the second node owns shards again', async () => (await direct.status(ofB[0])).owner === 'b')
  assert.equal((await g.allocate({ signer: ofB[0] })).nonce, 3)
})

test('a node killed between request and answer: the other one knows the request', async (t) => {
  const [a, b] = await startNodes(t)
  const w = await way(t, a)
  const g = new Gateway([w.url, b.url])
  const direct = new Gateway(b.url)
  t.after(() => Promise.all([g.close(), direct.close()]))
  for (let i = 0; i < 8; i++) await g.allocate({ signer: `s${i}` })
  const lost = w.loses()
  const all = Promise.all(Array.from({ length: 8 }, (_, i) => g.allocate({ signer: `s${i}` })))
  await lost
  await until('all are handed out', async () => (await Promise.all(Array.from({ length: 8 }, (_, i) => direct.status(`s${i}`)))).every((s) => s.next === 2))
  await a.kill()
  assert.deepEqual((await all).map((h) => [h.nonce, h.attempt]), Array(8).fill([1, 1]))
})
