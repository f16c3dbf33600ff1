import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
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

test('what npm packs is installed elsewhere, imported, required where Node can, typed, and bundled', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'noncegate-pack-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const root = fileURLToPath(new URL('..', import.meta.url))
  const run = (command, ...args) => execFileSync(command, args, { cwd: dir, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
  const packed = JSON.parse(execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', dir], { cwd: root, encoding: 'utf8' }))
  const [{ filename, files }] = Array.isArray(packed) ? packed : Object.values(packed)
  const names = files.map((f) => f.path)
  assert.ok(names.includes('README.md') && names.includes('dist/viem.d.ts') && !names.some((n) => n.startsWith('test/')), names.join())
  mkdirSync(join(dir, 'node_modules/noncegate'), { recursive: true })
  run('tar', '-xzf', filename, '-C', 'node_modules/noncegate', '--strip-components=1')
  for (const peer of ['viem', 'ethers']) symlinkSync(realpathSync(join(root, 'node_modules', peer)), join(dir, 'node_modules', peer))
  const all = `const names = (await Promise.all(['noncegate', 'noncegate/viem', 'noncegate/ethers'].map((m) => import(m)))).flatMap(Object.keys)
    if (!['Gateway', 'noncegate', 'GatewaySigner'].every((n) => names.includes(n))) throw new Error(names)`
  run(process.execPath, '--input-type=module', '-e', all)
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major > 22 || (major === 22 && minor >= 12)) run(process.execPath, '-e', `new (require('noncegate').Gateway)('ws://127.0.0.1:1').close()`)
  for (const platform of ['browser', 'node']) {
    await build({
      stdin: { contents: "export * from 'noncegate'; export * from 'noncegate/viem'", resolveDir: dir }, bundle: true, format: 'esm', platform,
      write: false, external: ['viem'], logLevel: 'error',
    })
  }
  // TypeScript finds the same types by both ways that it has to find a package.
  writeFileSync(join(dir, 'package.json'), '{"type":"module"}')
  copyFileSync(fileURLToPath(new URL('types.ts', import.meta.url)), join(dir, 'types.ts'))
  const strict = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--lib', 'es2023,dom,esnext.disposable', 'types.ts']
  for (const [module, resolution] of [['nodenext', 'nodenext'], ['esnext', 'bundler']])
    run(join(root, 'node_modules/.bin/tsc'), '--module', module, '--moduleResolution', resolution, ...strict)
  if (!process.env.VITE) return // which the long tests have
  const vite = await import(pathToFileURL(process.env.VITE))
  writeFileSync(join(dir, 'main.js'), "export * from 'noncegate'; export * from 'noncegate/viem'")
  await vite.build({
    root: dir, configFile: false, logLevel: 'error', build: { lib: { entry: 'main.js', formats: ['es'], fileName: 'out' }, rollupOptions: { external: /^viem/ } },
  })
  const bundled = readFileSync(join(dir, 'dist/out.js'), 'utf8')
  assert.match(bundled, /nonce_allocate/)
  assert.doesNotMatch(bundled, /node:/)
})
