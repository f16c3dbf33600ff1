// A relayer to start from: it pays what a folder of jobs says, each exactly once, also when it is killed at any moment.
//
//   echo '{"to":"0x…","value":"1"}' > jobs/order-7.json
//   KEY=0x… NODE=http://127.0.0.1:8545 GATEWAY=ws://127.0.0.1:8080/ws node relayer.mjs jobs 0/3
//
// 0/3: the first of three processes, each of which has a third of the jobs, by their names. Start each part once: a job has
// one process, so what its file says is all that was done for it. Every process may run elsewhere; all pay from one account.
import { open, readFile, readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { Gateway, Refused, signerOf } from 'noncegate'
import { createPublicClient, http, keccak256 } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const [, , folder = 'jobs', part = '0/1'] = process.argv
const [mine, parts] = part.split('/').map(Number)
const { KEY, NODE, GATEWAY, ONCE, WORKERS = '8', BUMP_AFTER_BLOCKS = '5' } = process.env
const node = createPublicClient({ transport: http(NODE), pollingInterval: 200 })
const account = privateKeyToAccount(KEY)
const gateway = new Gateway(GATEWAY)
const chainId = await node.getChainId()
const signer = signerOf(chainId, account.address)
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

// A job is a file: { to, value, data? }, and what became of it: round (how often a nonce was asked for), sent (the
// transactions that were signed, each { nonce, attempt, raw, hash, block }), done (the hash that was mined).
const load = async (name) => JSON.parse(await readFile(join(folder, name), 'utf8'))

/** save returns when the job is on disk, whole. */
async function save(name, job) {
  const whole = join(folder, name)
  const file = await open(`${whole}.new`, 'w')
  await file.writeFile(JSON.stringify(job))
  await file.sync()
  await file.close()
  await rename(`${whole}.new`, whole)
}

/** sign makes a transaction of a job, of which each fee is an eighth above that of an earlier one at least. */
async function sign(job, hold, earlier) {
  const fees = await node.estimateFeesPerGas()
  const fee = (name) => {
    const least = earlier ? (BigInt(earlier[name]) * 9n) / 8n + 1n : 0n
    return fees[name] > least ? fees[name] : least
  }
  const request = { to: job.to, value: BigInt(job.value), data: job.data, chainId, type: 'eip1559', nonce: hold.nonce }
  const maxFeePerGas = fee('maxFeePerGas'), maxPriorityFeePerGas = fee('maxPriorityFeePerGas')
  const gas = job.gas ? BigInt(job.gas) : await node.estimateGas({ account, ...request, nonce: undefined })
  const raw = await account.signTransaction({ ...request, gas, maxFeePerGas, maxPriorityFeePerGas })
  return {
    nonce: hold.nonce, attempt: hold.attempt, raw, hash: keccak256(raw), block: String(await node.getBlockNumber()),
    maxFeePerGas: String(maxFeePerGas), maxPriorityFeePerGas: String(maxPriorityFeePerGas),
  }
}

/** begin has a job get its nonce and its first transaction, which is on disk before anything else knows of it. */
async function begin(name, job) {
  job.gas ??= String(await node.estimateGas({ account, to: job.to, value: BigInt(job.value), data: job.data })) // before a nonce is taken
  let hold
  try {
    hold = await gateway.allocate({ signer, requestId: `${name}#${job.round ?? 0}`, recordFirst: true })
  } catch (e) {
    // An earlier try was given a nonce, and its hold has ended. It has signed nothing, else that would be on disk.
    if (e instanceof Refused && e.reason === 'conflict') return again(name, job)
    throw e
  }
  await save(name, Object.assign(job, { sent: [await sign(job, hold)] }))
}

const again = (name, job) => save(name, Object.assign(job, { round: (job.round ?? 0) + 1, sent: undefined }))

/** send records the last transaction and gives it to the node. The same bytes may be sent at any time. */
async function send(name, job) {
  const { nonce, attempt, hash, raw } = job.sent.at(-1)
  try {
    await gateway.markSigned({ signer, nonce, attempt }, hash)
  } catch (e) {
    // Refused for the first one: the hold had ended before it was recorded, so it was never sent. Throw it away.
    if (e instanceof Refused && e.reason === 'conflict' && job.sent.length === 1) return again(name, job)
    if (e instanceof Refused && e.reason === 'conflict') return void (await save(name, Object.assign(job, { sent: job.sent.slice(0, -1) })))
    throw e
  }
  await node.request({ method: 'eth_sendRawTransaction', params: [raw] }, { retryCount: 0 }).catch(() => {}) // whatever it says: look
  await settle(name, job)
}

/** settle waits until one of the transactions is mined; after some blocks it sends another one with higher fees. */
async function settle(name, job) {
  const { nonce, attempt, block } = job.sent.at(-1)
  for (; ; await pause(200)) {
    for (const { hash } of job.sent) {
      const receipt = await node.getTransactionReceipt({ hash }).catch(() => undefined)
      if (!receipt) continue
      await gateway.markUsed({ signer, nonce, attempt }, hash).catch(() => {}) // recorded: it counts as used anyway
      return save(name, Object.assign(job, { done: hash, status: receipt.status }))
    }
    const head = await node.getBlockNumber({ cacheTime: 0 })
    if (head >= BigInt(block) + BigInt(BUMP_AFTER_BLOCKS) && job.sent.length < 8) break
    await node.request({ method: 'eth_sendRawTransaction', params: [job.sent.at(-1).raw] }, { retryCount: 0 }).catch(() => {})
  }
  // It is not known to be lost, so the nonce stays: a replacement has the same payload.
  await save(name, Object.assign(job, { sent: [...job.sent, await sign(job, { nonce, attempt }, job.sent.at(-1))] }))
}

/** run brings a job to its end. */
async function run(name) {
  for (;;) {
    const job = await load(name)
    if (job.done) return
    try {
      await (job.sent ? send(name, job) : begin(name, job))
    } catch (e) {
      console.error(name, e.message) // the node or the gateway is away, or the account cannot pay: later
      await pause(500 + Math.random() * 500)
    }
  }
}

const ours = (name) => name.endsWith('.json') && [...name].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 65_521, 0) % parts === mine
const begun = new Set(), busy = new Set()
for (let first = true; !ONCE || first || busy.size > 0; first = false) {
  for (const name of (await readdir(folder)).filter(ours)) {
    if (begun.has(name)) continue
    while (busy.size >= Number(WORKERS)) await Promise.race(busy)
    const work = run(name).finally(() => busy.delete(work))
    begun.add(name)
    busy.add(work)
  }
  await Promise.race([pause(200), ...busy])
}
await gateway.close()
