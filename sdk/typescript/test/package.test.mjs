import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

const bundle = async (entry, platform) => {
  const { outputFiles: [file] } = await build({
    stdin: { contents: `export * from '${entry}'`, resolveDir: fileURLToPath(new URL('.', import.meta.url)) },
    bundle: true, minify: true, format: 'esm', platform, write: false, external: ['node:*', 'viem', 'ethers'],
  })
  return file.contents
}

test('the core is small, and nothing of Node is in it for a browser', async () => {
  const core = await bundle('noncegate', 'browser')
  const size = gzipSync(core, { level: 9 }).length
  assert.ok(size <= 6 << 10, `${size} bytes`)
  assert.doesNotMatch(Buffer.from(core).toString(), /node:/)
})
