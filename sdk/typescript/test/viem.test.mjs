import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { Gateway, NotDone, Refused, signerOf } from 'noncegate'
import { SendError, endpoint, hashOf, noncegate } from 'noncegate/viem'
import { createPublicClient, createWalletClient, defineChain, fallback, http, createNonceManager, keccak256 } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { jsonRpc } from 'viem/nonce'
import { gradeTexts, textsOf } from '../dist/grade.js'
import { node, proxy, startGateway, thrown, until, way } from './lab.mjs'

const to = '0x00000000000000000000000000000000000000aa'
const code = '0x6005600c60003960056000f3602a60005260206000f3' // a contract that answers nothing of note
const abi = [{ type: 'function', name: 'anything', inputs: [], outputs: [], stateMutability: 'payable' }]

/** bench is a node, a faulty way to it, a gateway that asks the node itself, and a wallet of an account of its own, which has paid so often. */
async function bench(t, own, history = 0) {
  const n = own ?? await node(t)
  const p = await proxy(t, n.url)
  const server = await startGateway(t, `--chain=eip155:31337=${n.ws}`, '--chain-poll=50ms', '--sweep-interval=100ms')
  const w = await way(t, server)
  const gateway = new Gateway(w.url)
  t.after(() => gateway.close())
  const chain = defineChain({ id: 31337, name: 'anvil', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [p.url] } } })
  const account = privateKeyToAccount(generatePrivateKey())
  await n.rpc('anvil_setBalance', account.address, '0xde0b6b3a7640000') // 1 ether
  const plain = createWalletClient({ account, chain, transport: http(p.url, { retryCount: 3, retryDelay: 1, timeout: 60_000 }), pollingInterval: 20 })
  const wallet = plain.extend(noncegate(gateway))
  const reader = createPublicClient({ chain, transport: http(n.url), pollingInterval: 20 })
  for (let i = 0; i < history; i++) await reader.waitForTransactionReceipt({ hash: await plain.sendTransaction({ to, value: 1n }) })
  const signer = signerOf(31337, account.address)
  await until('the gateway knows what the chain says of the account', async () => (await gateway.status(signer)).chain)
  const row = async (nonce) => {
    const [r] = (await gateway.list({ signer, from: nonce, limit: 1 })).allocations
    return r ? `${r.status}#${r.attempt}` : 'none'
  }
  const becomes = (nonce, want) => until(`${nonce} becomes ${want}`, async () => (await row(nonce)) === want)
  const mined = async (hash, nonce) => {
    const receipt = await reader.waitForTransactionReceipt({ hash })
    assert.equal(receipt.status, 'success')
    assert.equal((await reader.getTransaction({ hash })).nonce, nonce)
    await becomes(nonce, 'CONSUMED#1')
  }
  return { n, p, server, w, gateway, chain, account, plain, wallet, reader, signer, row, becomes, mined }
}

const send = 'eth_sendRawTransaction'

test('what nodes answer means the same as to the gateway', () => {
  for (const { message, data, ...want } of JSON.parse(readFileSync(new URL('answers.json', import.meta.url)))) {
    const g = gradeTexts([message, ...textsOf(data)])
    assert.deepEqual({ class: g.outcome, ...(g.missing && { missing: true }), ...(g.later && { later: true }) }, want, message)
  }
})

describe('viem', { concurrency: 4 }, () => {
  test('payments, contracts and their events', async (t) => {
    const b = await bench(t)
    await b.mined(await b.wallet.sendTransaction({ to, value: 1n }), 0)
    assert.equal((await b.wallet.sendTransactionSync({ to, value: 1n })).status, 'success')
    const deployed = await b.reader.waitForTransactionReceipt({ hash: await b.wallet.deployContract({ abi: [], bytecode: code }) })
    const contract = { address: deployed.contractAddress, abi, functionName: 'anything' }
    await b.mined(await b.wallet.writeContract({ ...contract, value: 1n }), 3)
    assert.equal((await b.wallet.writeContractSync(contract)).status, 'success')
    await b.wallet.sendTransactionSync({ to: b.account.address, type: 'eip1559', value: 0n })
    const all = await Promise.all(Array.from({ length: 8 }, () => b.wallet.sendTransaction({ to, value: 1n })))
    for (const hash of all) await b.reader.waitForTransactionReceipt({ hash })
    assert.equal(await b.reader.getTransactionCount({ address: b.account.address }), 14)
    const status = await b.gateway.status(b.signer)
    assert.deepEqual([status.next, status.released], [14, 0])
  })

  test('a transaction with an authorization, one of a legacy type, and one that was signed elsewhere', async (t) => {
    const b = await bench(t)
    const other = privateKeyToAccount(generatePrivateKey())
    const authorization = await b.plain.signAuthorization({ account: other, contractAddress: to, nonce: 0 })
    await b.mined(await b.wallet.sendTransaction({ to: other.address, authorizationList: [authorization] }), 0)
    await b.mined(await b.wallet.sendTransaction({ to, value: 1n, type: 'legacy' }), 1)
    const hold = await b.gateway.allocate({ signer: b.signer, recordFirst: true })
    const request = await b.plain.prepareTransactionRequest({ to, value: 2n, nonce: hold.nonce })
    const raw = await b.account.signTransaction(request)
    assert.ok((await thrown(b.wallet.sendRawTransaction({ serializedTransaction: raw }))) instanceof NotDone)
    assert.ok((await thrown(b.wallet.sendRawTransaction({ serializedTransaction: raw, hold: { ...hold, nonce: 9 } }))) instanceof NotDone)
    const foreign = await privateKeyToAccount(generatePrivateKey()).signTransaction(request)
    assert.match((await thrown(b.wallet.sendRawTransaction({ serializedTransaction: foreign, hold }))).message, /signer: it signs as/)
    await b.mined(await b.wallet.sendRawTransaction({ serializedTransaction: raw, hold }), 2)
    // Of a transaction with blobs the hash is that without them: a vector of EIP-4844's shape, made by hand.
    const inner = '0x03c101', wrapped = '0x03c5c101c0c0c0'
    assert.equal(hashOf(wrapped), keccak256(inner))
    assert.equal(hashOf(inner), keccak256(inner))
  })

  test('a transaction with an authorization is bumped, and one is cancelled', async (t) => {
    const n = await node(t, true)
    const b = await bench(t, n)
    await n.rpc('evm_setAutomine', false)
    const other = privateKeyToAccount(generatePrivateKey())
    const set = async (nonce) => ({
      to: other.address, authorizationList: [await b.plain.signAuthorization({ account: other, contractAddress: to, nonce })],
    })
    const first = await b.wallet.bump({ hash: await b.wallet.sendTransaction(await set(0)) })
    const second = await b.wallet.cancel({ hash: await b.wallet.sendTransaction(await set(1)) })
    await n.rpc('anvil_mine', '0x1')
    for (const hash of [first, second]) assert.equal((await b.reader.waitForTransactionReceipt({ hash })).status, 'success')
    assert.equal((await b.reader.getTransaction({ hash: first })).authorizationList.length, 1)
    assert.equal(await b.reader.getCode({ address: other.address }), `0xef0100${to.slice(2)}`)
    assert.equal(await b.reader.getTransactionCount({ address: other.address }), 1) // the second authorization is not used
  })

  if (!process.env.GETH) test('a node that signs: its accounts need no key here', async (t) => {
    const b = await bench(t)
    const [address] = await b.n.rpc('eth_accounts')
    const wallet = createWalletClient({ account: address, chain: b.chain, transport: http(b.p.url) }).extend(noncegate(b.gateway))
    const hash = await wallet.sendTransaction({ to, value: 1n })
    assert.equal((await b.reader.waitForTransactionReceipt({ hash })).status, 'success')
    assert.equal(b.p.counts.eth_sendTransaction, undefined)
  })

  test('what fails before it is sent costs no nonce', async (t) => {
    const b = await bench(t)
    const much = 5_000n * 10n ** 18n
    await thrown(b.wallet.sendTransaction({ data: '0xfe' })) // it cannot be run, so its gas cannot be estimated
    await thrown(b.wallet.deployContract({ abi: [], bytecode: '0xfe' }))
    assert.equal(await b.row(0), 'none')
    const pool = await thrown(b.wallet.sendTransaction({ to, value: much, gas: 21_000n }))
    assert.ok(pool instanceof SendError && pool.outcome === 'free', String(pool))
    assert.equal(await b.row(0), 'RELEASED#1')
    const broken = { ...b.account, signTransaction: async () => { throw new Error('no key') } }
    assert.match((await thrown(b.wallet.sendTransaction({ account: broken, to }))).message, /no key/)
    await b.becomes(0, 'RELEASED#2')
    const stranger = privateKeyToAccount(generatePrivateKey())
    const foreign = await thrown(b.wallet.sendTransaction({ account: { ...stranger, address: b.account.address }, to, gas: 21_000n }))
    assert.ok(foreign instanceof NotDone && foreign.message.startsWith(`signer: it signs as ${stranger.address}`), String(foreign))
    await b.becomes(0, 'RELEASED#3')
    for (const status of [401, 429]) {
      b.p.fault = { method: send, answer: () => status }
      const before = await thrown(b.wallet.sendTransaction({ to, value: 1n }))
      assert.ok(before instanceof SendError && before.outcome === 'not_reached', String(before))
      assert.match(await b.row(0), /^RELEASED/)
    }
    b.p.fault = undefined
    const hash = await b.wallet.sendTransaction({ to, value: 1n })
    await b.reader.waitForTransactionReceipt({ hash })
    assert.equal((await b.reader.getTransaction({ hash })).nonce, 0)
  })

  test('mistakes are told before a nonce is taken', async (t) => {
    const b = await bench(t)
    const as = (config, options) => createWalletClient({ account: b.account, chain: b.chain, transport: http(b.p.url), ...config }).extend(noncegate(b.gateway, options))
    const manager = createNonceManager({ source: jsonRpc() })
    const elsewhere = await startGateway(t)
    const other = new Gateway(elsewhere.url)
    t.after(() => other.close())
    for (const [wallet, args, sentence] of [
      [b.wallet, { nonce: 3 }, /nonce: it comes from the gateway/],
      [as({ account: { ...b.account, nonceManager: manager } }), {}, /nonceManager/],
      [as({ transport: fallback([http(b.p.url), http(b.n.url)]) }), {}, /fallback/],
      [as({ chain: { ...b.chain, id: 1 } }), {}, /chain: the wallet's is 1, and that of the node 31337/],
      [as({ account: undefined }), {}, /account: the client has none/],
    ]) {
      const e = await thrown(wallet.sendTransaction({ to, value: 1n, ...args }))
      assert.ok(e instanceof NotDone && sentence.test(e.message), String(e))
    }
    assert.equal(await b.row(0), 'none')
    assert.equal(b.p.counts[send], undefined)
    assert.ok(await b.plain.extend(noncegate(other, { unwatched: true })).sendTransaction({ to, value: 1n }))
  })

  test('a node whose answer is lost, or wrong, leaves the nonce with its transaction', async (t) => {
    const b = await bench(t)
    b.p.fault = { method: send, answer: async (_, ask) => void await ask() } // it has it, and does not say so
    const lost = await thrown(b.wallet.sendTransaction({ to, value: 1n }))
    assert.ok(lost instanceof SendError && lost.outcome === 'unknown' && lost.hold.nonce === 0, String(lost))
    assert.equal(b.p.counts[send], 1, 'it is sent once')
    await b.reader.waitForTransactionReceipt({ hash: lost.txHash })
    b.p.fault = { method: send, answer: async (_, ask) => (await ask(), { error: { code: -32000, message: 'already known' } }) }
    await b.mined(await b.wallet.sendTransaction({ to, value: 1n }), 1)
    // It came before on another way, and is mined when this one comes.
    b.p.fault = { method: send, answer: async (_, ask) => {
      await b.reader.waitForTransactionReceipt({ hash: (await ask()).result })
      return { error: { code: -32000, message: 'nonce too low' } }
    } }
    await b.mined(await b.wallet.sendTransaction({ to, value: 1n }), 2)
    b.p.fault = { method: send, answer: () => ({ error: { code: -32000, message: 'nonce too low' } }) }
    const used = await thrown(b.wallet.sendTransaction({ to, value: 1n }))
    assert.ok(used instanceof SendError && used.outcome === 'used', String(used))
    assert.match(await b.row(3), /^HELD/)
    b.p.fault = undefined
    await b.n.rpc(send, lost.raw).catch(() => {}) // the same bytes may be sent again at any time
    await b.n.rpc(send, used.raw)
    await b.reader.waitForTransactionReceipt({ hash: used.txHash })
  })

  test('a gateway that is killed between request and answer, and between sign and send', async (t) => {
    const b = await bench(t)
    await b.gateway.info()
    const restart = async () => {
      await b.server.kill()
      b.w.hears()
      await b.server.again()
    }
    await b.mined(await b.wallet.sendTransaction({ to, value: 1n }), 0)
    const lost = b.w.loses() // the next that is asked is the nonce
    const sent = b.wallet.sendTransaction({ to, value: 1n })
    await lost
    await restart()
    await b.mined(await sent, 1)
    // It is away when the node is asked: the hash is recorded, and the mark is repeated.
    b.p.fault = { method: send, answer: async (_, ask) => (await b.server.kill(), ask()) }
    const hash = await b.wallet.sendTransaction({ to, value: 1n })
    await b.server.again()
    b.p.fault = undefined
    await b.mined(hash, 2)
    assert.equal(b.p.counts[send], 3)
    // It is killed when the transaction is signed, and not recorded yet.
    const signed = async () => (await b.server.kill(), b.server.again())
    await b.mined(await b.plain.extend(noncegate(b.gateway, { signed })).sendTransaction({ to, value: 1n }), 3)
    assert.equal(b.p.counts[send], 4)
    // It stays away: nothing is sent.
    await b.server.kill()
    const impatient = new Gateway(b.server.url, { timeoutMs: 200 })
    t.after(() => impatient.close())
    const none = await thrown(b.plain.extend(noncegate(impatient)).sendTransaction({ to, value: 1n }))
    assert.ok(none instanceof NotDone, String(none))
    assert.equal(b.p.counts[send], 4)
  })

  test('a hold that another has by now is not sent with', async (t) => {
    const b = await bench(t)
    const slow = { ...b.account, signTransaction: async (...args) => {
      await b.gateway.repair({ signer: b.signer, nonce: 0 }) // as an operator does who is tired of waiting
      return b.account.signTransaction(...args)
    } }
    const e = await thrown(b.wallet.sendTransaction({ account: slow, to, value: 1n }))
    assert.ok(e instanceof Refused && e.reason === 'conflict', String(e))
    assert.equal(b.p.counts[send], undefined)
  })

  test('an account that has paid before, and another program that pays with its key', async (t) => {
    const b = await bench(t, undefined, 2)
    await b.mined(await b.wallet.sendTransaction({ to, value: 1n }), 2)
    const elsewhere = await b.account.signTransaction(await b.plain.prepareTransactionRequest({ to, value: 2n, nonce: 3 }))
    const slow = { ...b.account, signTransaction: async (...args) => { // it comes between the nonce and the transaction
      await b.reader.waitForTransactionReceipt({ hash: await b.n.rpc(send, elsewhere) })
      return b.account.signTransaction(...args)
    } }
    const e = await thrown(b.wallet.sendTransaction({ account: slow, to, value: 3n, gas: 21_000n }))
    // The gateway may have seen it before the hash was recorded.
    assert.ok(e instanceof SendError ? e.outcome === 'used' && !e.givenBack : e instanceof Refused && e.reason === 'conflict', String(e))
    await until('the gateway has seen it', async () => (await b.gateway.status(b.signer)).chain.mined === 4)
    const hash = await b.wallet.sendTransaction({ to, value: 3n })
    await b.reader.waitForTransactionReceipt({ hash })
    assert.equal((await b.reader.getTransaction({ hash })).nonce, 4)
  })

  test('a stuck transaction is bumped, one that is not wanted is cancelled, and a gap is filled', async (t) => {
    const n = await node(t, true) // whose blocks this test makes
    const b = await bench(t, n)
    await n.rpc('evm_setAutomine', false)
    const first = await b.wallet.sendTransaction({ to, value: 7n })
    await b.becomes(0, 'CONSUMED#1')
    const old = await b.reader.getTransaction({ hash: first })
    const second = await b.wallet.bump({ hash: first })
    const unwanted = await b.wallet.sendTransaction({ to, value: 9n })
    const cancelled = await b.wallet.cancel({ hash: unwanted })
    assert.ok((await thrown(b.wallet.bump({ hash: `0x${'1'.repeat(64)}` }))))
    const gap = await b.gateway.allocate({ signer: b.signer, recordFirst: true }) // and is never sent
    const above = await b.wallet.sendTransaction({ to, value: 1n })
    await n.rpc('anvil_mine', '0x1')
    const receipt = await b.reader.waitForTransactionReceipt({ hash: second })
    assert.equal(receipt.status, 'success')
    const replaced = await b.reader.getTransaction({ hash: second })
    assert.deepEqual([replaced.nonce, replaced.value, replaced.to], [0, 7n, to])
    assert.ok(replaced.maxFeePerGas > old.maxFeePerGas)
    assert.equal((await b.reader.getTransaction({ hash: cancelled })).value, 0n)
    assert.equal((await b.reader.waitForTransactionReceipt({ hash: cancelled })).status, 'success')
    const wrong = await thrown(b.wallet.cancel({ hold: { ...gap, signer: signerOf(31337, to) } }))
    assert.ok(wrong instanceof NotDone && /hold: it is of/.test(wrong.message), String(wrong))
    await until('the gateway has seen the block', async () => (await b.gateway.status(b.signer)).chain.mined === 2)
    const repaired = await b.gateway.repair({ signer: b.signer, nonce: gap.nonce })
    await b.wallet.cancel({ hold: repaired })
    await n.rpc('anvil_mine', '0x1')
    assert.equal((await b.reader.waitForTransactionReceipt({ hash: above })).status, 'success')
    const settled = await thrown(b.wallet.bump({ hash: second }))
    assert.ok(settled instanceof NotDone && /used already/.test(settled.message), String(settled))
  })

  test('a client without the extension sends through /eth/CHAIN', async (t) => {
    const b = await bench(t)
    const transport = endpoint(b.server.url, 31337, { key: undefined })
    const wallet = createWalletClient({ account: b.account, chain: b.chain, transport })
    await b.mined(await wallet.sendTransaction({ to, value: 1n }), 0)
  })
})
