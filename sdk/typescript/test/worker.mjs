// Pays a folder of jobs, as examples/relayer.mjs does, by a wallet client with the extension: it may be killed at any moment.
import { readFile, readdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Gateway, Refused, signerOf } from 'noncegate'
import { SendError, noncegate } from 'noncegate/viem'
import { createPublicClient, createWalletClient, defineChain, http, keccak256 } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const [, , folder, part] = process.argv
const [mine, parts] = part.split('/').map(Number)
const { KEY, NODE, GATEWAY, BUMP_AFTER_BLOCKS } = process.env
const chain = defineChain({ id: 31337, name: 'anvil', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [NODE] } } })
const node = createPublicClient({ chain, transport: http() })
const gateway = new Gateway(GATEWAY)
const client = createWalletClient({ account: privateKeyToAccount(KEY), chain, transport: http() })
const signer = signerOf(chain.id, client.account.address)
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

const load = async (name) => JSON.parse(await readFile(join(folder, name), 'utf8'))
async function save(name, job) {
  await writeFile(join(folder, `${name}.new`), JSON.stringify(job))
  await rename(join(folder, `${name}.new`), join(folder, name))
}

/** step does what comes next for a job, whose file says what was signed for it: each { hold, raw, block }. */
async function step(name, job) {
  const signed = job.signed ?? []
  const paying = client.extend(noncegate(gateway, {
    signed: async ({ hold: { signer, nonce, attempt }, raw }) => {
      signed.push({ hold: { signer, nonce, attempt }, raw, block: Number(await node.getBlockNumber({ cacheTime: 0 })) })
      await save(name, { ...job, signed })
    },
  }))
  if (signed.length === 0) {
    try {
      return await paying.sendTransaction({ to: job.to, value: BigInt(job.value) })
    } catch (e) {
      // It was never sent, so that it may be paid anew.
      if (signed.length > 0 && (!(e instanceof SendError) || e.givenBack)) await save(name, { ...job, signed: [] })
      throw e
    }
  }
  for (const { raw } of signed) {
    const hash = keccak256(raw)
    const receipt = await node.getTransactionReceipt({ hash }).catch(() => undefined)
    if (receipt) return save(name, { ...job, done: hash })
  }
  const last = signed.at(-1), hash = keccak256(last.raw)
  try {
    await client.extend(noncegate(gateway)).sendRawTransaction({ serializedTransaction: last.raw, hold: last.hold })
  } catch (e) {
    if (e instanceof Refused && e.reason === 'conflict') await save(name, { ...job, signed: signed.slice(0, -1) })
    throw e
  }
  if (Number(await node.getBlockNumber({ cacheTime: 0 })) < last.block + Number(BUMP_AFTER_BLOCKS)) return
  if (signed.length < 6) await paying.bump({ hash })
  else filling ??= fill().catch((e) => console.error('fill', e.message)).finally(() => (filling = undefined))
}

let filling
const fills = []
/**
 * fill pays nothing to the account itself where a nonce is free below those that wait: a process that was killed had it, and
 * all other payments may be waiting behind it. It is a job with a file, like any other.
 */
async function fill() {
  if ((await gateway.status(signer)).released === 0) return
  const name = `fill-${mine}-${Date.now()}.json`, job = { to: client.account.address, value: '0' }
  await save(name, job)
  await step(name, job).finally(() => fills.push(run(name)))
}

async function run(name) {
  for (;;) {
    const job = await load(name)
    if (job.done) return
    await step(name, job).catch((e) => console.error(name, e.message))
    await pause(200)
  }
}

const files = (await readdir(folder)).filter((name) => name.endsWith('.json')).sort()
fills.push(...files.filter((name) => name.startsWith(`fill-${mine}-`)).map(run))
const names = files.filter((name) => name.startsWith('order-')).filter((_, i) => i % parts === mine)
await Promise.all(Array.from({ length: 8 }, async () => {
  for (let name; (name = names.shift());) await run(name)
}))
while (filling || fills.length > 0) await (filling ?? fills.pop())
await gateway.close()
