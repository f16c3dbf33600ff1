import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { node, startGateway } from './lab.mjs'

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
