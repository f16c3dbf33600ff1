import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Gateway, signerOf } from 'noncegate'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { node, startGateway } from './lab.mjs'

// Three processes of eight workers each, which are killed again and again, as is the gateway; blocks come slowly.
for (const [what, program] of [['the relayer of the example', '../examples/relayer.mjs'], ['workers with the extension of viem', 'worker.mjs']])
  test(`${what}: each job is paid once, whatever is killed`, (t) => paysOnce(t, fileURLToPath(new URL(program, import.meta.url))))

async function paysOnce(t, program) {
  const n = await node(t, true)
  await n.rpc('evm_setAutomine', false)
  const server = await startGateway(t, `--chain=eip155:31337=${n.ws}`, '--chain-poll=50ms', '--sweep-interval=100ms', '--hold-ttl=2s')
  const key = generatePrivateKey(), { address } = privateKeyToAccount(key)
  await n.rpc('anvil_setBalance', address, '0x56bc75e2d63100000')
  const folder = join(server.dir, 'jobs')
  mkdirSync(folder)
  const jobs = Array.from({ length: Number(process.env.JOBS ?? 60) }, (_, i) => ({ name: `order-${i}.json`, to: `0x${(0xbeef00 + i).toString(16).padStart(40, '0')}`, value: String(i + 1) }))
  for (const { name, ...job } of jobs) writeFileSync(join(folder, name), JSON.stringify(job))

  const children = new Set()
  let finished = 0, killed = 0
  const start = (part) => {
    const child = spawn(process.execPath, [program, folder, `${part}/3`], {
      env: { ...process.env, KEY: key, NODE: n.url, GATEWAY: server.url, ONCE: '1', BUMP_AFTER_BLOCKS: '6' }, stdio: ['ignore', 'ignore', 'pipe'],
    })
    child.log = ''
    child.stderr.on('data', (d) => (child.log = (child.log + d).slice(-2000)))
    children.add(child)
    child.on('exit', (code) => {
      children.delete(child)
      if (code === 0) finished++
      else if (killed < 12) start(part)
    })
  }
  t.after(async () => {
    killed = Infinity
    for (const child of children) child.kill('SIGKILL')
    while (children.size > 0) await once([...children][0], 'exit').catch(() => {})
  })
  for (let i = 0; i < 3; i++) start(i)
  const done = () => jobs.filter(({ name }) => JSON.parse(readFileSync(join(folder, name))).done).length
  for (let round = 0; finished < 3 || children.size > 0; round++) {
    assert.ok(round < 10_000, `${done()} of ${jobs.length} jobs are done; ${[...children].map((c) => c.log)}`)
    await new Promise((r) => setTimeout(r, 150))
    if (round % 3 === 0) await n.rpc('anvil_mine', '0x1')
    if (round % 8 === 7 && killed < 9 && done() < jobs.length && children.size > 0) {
      killed++
      ;[...children][round % children.size].kill('SIGKILL')
    }
    if (round === 20) {
      await server.kill()
      await server.again()
    }
  }
  assert.ok(killed >= 3, `only ${killed} were killed`)
  assert.equal(done(), jobs.length)
  await n.rpc('anvil_mine', '0x2')
  for (const { to, value } of jobs) assert.equal(BigInt(await n.rpc('eth_getBalance', to, 'latest')), BigInt(value), to)
  const count = Number(await n.rpc('eth_getTransactionCount', address, 'latest'))
  const fills = readdirSync(folder).filter((name) => name.startsWith('fill-')).length
  assert.equal(count, jobs.length + fills, 'each payload has used one nonce, and none is missing')
  const gateway = new Gateway(server.url)
  const status = await gateway.status(signerOf(31337, address))
  await gateway.close()
  assert.deepEqual([status.next, status.chain.gap], [count, undefined])
}
