import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { node, startGateway } from './lab.mjs'

// Pasted as it stands, in two processes at a time, twice.
test('the first payment of the README', async (t) => {
  const page = readFileSync(new URL('../README.md', import.meta.url), 'utf8')
  const [, lines] = /^```js\n(.*?)^```$/ms.exec(page)
  assert.ok(lines.trim().split('\n').length <= 10, 'it has more than ten lines')
  const n = await node(t, true)
  const server = await startGateway(t, `--chain=eip155:31337=${n.url}`)
  const program = fileURLToPath(new URL(`readme-${process.pid}.mjs`, import.meta.url))
  writeFileSync(program, lines.replace('ws://127.0.0.1:8080/ws', server.url).replace('http://127.0.0.1:8545', n.url))
  t.after(() => rmSync(program))
  const run = async () => {
    for (let i = 0; i < 2; i++) await promisify(execFile)(process.execPath, [program])
  }
  await Promise.all([run(), run()])
  assert.equal(await n.rpc('eth_getTransactionCount', '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266', 'latest'), '0x4')
  assert.equal(await n.rpc('eth_getBalance', '0x00000000000000000000000000000000000000aa', 'latest'), '0x4')
})

test('the tutorial prints what it says', async (t) => {
  const page = readFileSync(process.env.TUTORIAL ?? new URL('../../../docs/tutorial.md', import.meta.url), 'utf8')
  const blocks = (kind) => [...page.matchAll(new RegExp(`^\`\`\`${kind}\n(.*?)^\`\`\`$`, 'gms'))].map((m) => m[1]).join('')
  assert.ok(page.split(/\s+/).length <= 1200, 'it has more than 1,200 words')
  const program = fileURLToPath(new URL(`tutorial-${process.pid}.mjs`, import.meta.url))
  writeFileSync(program, blocks('js'))
  t.after(() => rmSync(program))
  const n = await node(t, true)
  const server = await startGateway(t, `--chain=eip155:31337=${n.ws}`)
  const { stdout } = await promisify(execFile)(process.execPath, [program], { env: { ...process.env, NODE: n.url, GATEWAY: server.url } })
  assert.equal(stdout, blocks('text'))
})
