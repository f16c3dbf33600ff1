import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Contract, ContractFactory, FallbackProvider, FetchRequest, JsonRpcProvider, Network, Wallet } from 'ethers'
import { Gateway, NotDone, Refused, signerOf } from 'noncegate'
import { GatewaySigner, SendError } from 'noncegate/ethers'
import { node, proxy, startGateway, thrown, until, way } from './lab.mjs'

const to = '0x00000000000000000000000000000000000000aa'
const code = '0x6005600c60003960056000f3602a60005260206000f3'
const send = 'eth_sendRawTransaction'

/** provider is one of ethers that asks as soon as it can. */
function provider(t, url, id = 31337) {
  const request = new FetchRequest(url)
  request.setThrottleParams({ maxAttempts: 1 })
  const network = Network.from(id)
  const p = new JsonRpcProvider(request, network, { staticNetwork: network, batchMaxCount: 1, cacheTimeout: -1, pollingInterval: 20 })
  t.after(() => p.destroy())
  return p
}

async function bench(t, own) {
  const n = own ?? await node(t)
  const p = await proxy(t, n.url)
  const server = await startGateway(t, `--chain=eip155:31337=${n.ws}`, '--chain-poll=50ms', '--sweep-interval=100ms')
  const w = await way(t, server)
  const gateway = new Gateway(w.url)
  t.after(() => gateway.close())
  const wallet = new Wallet(Wallet.createRandom().privateKey, provider(t, p.url))
  await n.rpc('anvil_setBalance', wallet.address, '0xde0b6b3a7640000')
  const signer = new GatewaySigner(wallet, gateway)
  const name = signerOf(31337, wallet.address)
  await until('the gateway knows what the chain says of the account', async () => (await gateway.status(name)).chain)
  const row = async (nonce) => {
    const [r] = (await gateway.list({ signer: name, from: nonce, limit: 1 })).allocations
    return r ? `${r.status}#${r.attempt}` : 'none'
  }
  const mined = async (response, nonce) => {
    assert.equal(response.nonce, nonce)
    assert.equal((await response.wait()).status, 1)
    await until(`${nonce} is used`, async () => (await row(nonce)) === 'CONSUMED#1')
  }
  return { n, p, server, w, gateway, wallet, signer, name, row, mined }
}

describe('ethers', { concurrency: 4 }, () => {
  test('payments and contracts', async (t) => {
    const b = await bench(t)
    await b.mined(await b.signer.sendTransaction({ to, value: 1n }), 0)
    const contract = await new ContractFactory([], code, b.signer).deploy()
    await contract.waitForDeployment()
    const called = new Contract(await contract.getAddress(), ['function anything() payable'], b.signer)
    await b.mined(await called.anything({ value: 1n }), 2)
    const all = await Promise.all(Array.from({ length: 8 }, () => b.signer.sendTransaction({ to, value: 1n })))
    for (const response of all) await response.wait()
    assert.equal(await b.wallet.provider.getTransactionCount(b.wallet.address), 11)
    const status = await b.gateway.status(b.name)
    assert.deepEqual([status.next, status.released], [11, 0])
  })

  test('what fails before it is sent costs no nonce', async (t) => {
    const b = await bench(t)
    await thrown(b.signer.sendTransaction({ data: '0xfe' }))
    assert.equal(await b.row(0), 'none')
    const pool = await thrown(b.signer.sendTransaction({ to, value: 5_000n * 10n ** 18n, gasLimit: 21_000n }))
    assert.ok(pool instanceof SendError && pool.outcome === 'free', String(pool))
    assert.equal(await b.row(0), 'RELEASED#1')
    for (const status of [401, 429]) {
      b.p.fault = { method: send, answer: () => status }
      const before = await thrown(b.signer.sendTransaction({ to, value: 1n }))
      assert.ok(before instanceof SendError && before.outcome === 'not_reached', String(before))
      assert.match(await b.row(0), /^RELEASED/)
    }
    b.p.fault = undefined
    assert.equal((await b.signer.sendTransaction({ to, value: 1n })).nonce, 0)

    for (const [signer, tx, sentence] of [
      [b.signer, { from: to }, /from: it is 0x00000000000000000000000000000000000000[aA]{2}, and the account is/],
      [b.signer, { nonce: 3 }, /nonce: it comes from the gateway/],
      [b.signer.connect(new FallbackProvider([b.wallet.provider])), {}, /FallbackProvider/],
      [b.signer.connect(null), {}, /provider: the signer has none/],
      [b.signer.connect(provider(t, b.p.url, 1)), {}, /its network is 1, and the node's chain 31337/],
    ]) {
      const e = await thrown(signer.sendTransaction({ to, value: 1n, ...tx }))
      assert.ok(e instanceof NotDone && sentence.test(e.message), String(e))
    }
    assert.equal((await b.gateway.status(b.name)).next, 1)
  })

  test('a node whose answer is lost, or wrong, and a gateway that is killed', async (t) => {
    const b = await bench(t)
    b.p.fault = { method: send, answer: async (_, ask) => void await ask() }
    const lost = await thrown(b.signer.sendTransaction({ to, value: 1n }))
    assert.ok(lost instanceof SendError && lost.outcome === 'unknown', String(lost))
    assert.equal(b.p.counts[send], 1, 'it is sent once')
    assert.equal((await b.wallet.provider.waitForTransaction(lost.txHash)).status, 1)
    for (const [nonce, message] of [[1, 'already known'], [2, 'nonce too low']]) {
      b.p.fault = { method: send, answer: async (_, ask) => (await ask(), { error: { code: -32000, message } }) }
      await b.mined(await b.signer.sendTransaction({ to, value: 1n }), nonce)
    }
    b.p.fault = { method: send, answer: async (_, ask) => (await b.server.kill(), ask()) }
    const sent = await b.signer.sendTransaction({ to, value: 1n })
    await b.server.again()
    b.p.fault = undefined
    await b.mined(sent, 3)
    await b.gateway.info()
    const gone = b.w.loses()
    const repeated = b.signer.sendTransaction({ to, value: 1n })
    await gone
    await b.server.kill()
    b.w.hears()
    await b.server.again()
    await b.mined(await repeated, 4)
  })

  test('a transaction with an authorization is bumped, one that was signed is sent, and what is written down is what is sent', async (t) => {
    const n = await node(t, true)
    const b = await bench(t, n)
    await n.rpc('evm_setAutomine', false)
    const other = Wallet.createRandom()
    const authorizationList = [await other.authorize({ address: to, nonce: 0, chainId: 31337 })]
    const first = await b.signer.bump((await b.signer.sendTransaction({ to: other.address, authorizationList })).hash)
    assert.deepEqual([first.type, first.nonce], [4, 0])
    const written = []
    let full = false
    const careful = new GatewaySigner(b.wallet, b.gateway, { signed: (tx) => {
      if (full) throw new Error('the disk is full')
      written.push(tx)
    } })
    const second = await careful.sendTransaction({ to, value: 2n })
    assert.deepEqual(written.map((w) => [w.txHash, w.hold.nonce]), [[second.hash, 1]])
    full = true
    const sent = b.p.counts[send]
    assert.match((await thrown(careful.sendTransaction({ to, value: 3n }))).message, /the disk is full/)
    assert.equal(b.p.counts[send], sent)
    assert.equal(await b.row(2), 'RELEASED#1')
    const hold = await b.gateway.allocate({ signer: b.name, recordFirst: true })
    const raw = await b.wallet.signTransaction(await b.wallet.populateTransaction({ to, value: 4n, nonce: hold.nonce }))
    const strange = await Wallet.createRandom().signTransaction({ to, value: 4n, nonce: hold.nonce, chainId: 31337, gasLimit: 21_000n, gasPrice: 10n ** 10n })
    assert.match((await thrown(b.signer.broadcastTransaction(strange, hold))).message, /signer: it signs as/)
    const wrong = await thrown(b.signer.broadcastTransaction(raw, { ...hold, nonce: 7 }))
    assert.ok(wrong instanceof NotDone && /hold: its nonce is 7/.test(wrong.message), String(wrong))
    b.p.fault = { method: send, answer: () => 429 } // it may have been sent before, so that its nonce stays
    const later = await thrown(b.signer.broadcastTransaction(raw, hold))
    assert.ok(later instanceof SendError && later.outcome === 'not_reached' && !later.givenBack, String(later))
    assert.equal(await b.row(2), 'HELD#2')
    b.p.fault = undefined
    const third = await b.signer.broadcastTransaction(raw, hold)
    await n.rpc('anvil_mine', '0x1')
    for (const response of [first, second, third]) assert.equal((await response.wait()).status, 1)
    assert.equal(await n.rpc('eth_getCode', other.address, 'latest'), `0xef0100${to.slice(2)}`)
  })

  test('a transaction that is stuck, one that is not wanted, a gap, and a hold that is gone', async (t) => {
    const n = await node(t, true)
    const b = await bench(t, n)
    await n.rpc('evm_setAutomine', false)
    const first = await b.signer.sendTransaction({ to, value: 7n })
    const second = await b.signer.bump(first.hash)
    assert.ok(second.maxFeePerGas > first.maxFeePerGas)
    assert.deepEqual([second.nonce, second.value], [0, 7n])
    const cancelled = await b.signer.cancel((await b.signer.sendTransaction({ to, value: 9n })).hash)
    const gap = await b.gateway.allocate({ signer: b.name, recordFirst: true })
    const above = await b.signer.sendTransaction({ to, value: 1n })
    await n.rpc('anvil_mine', '0x1')
    for (const r of [second, cancelled]) assert.equal((await r.wait()).status, 1)
    await until('the gateway has seen the block', async () => (await b.gateway.status(b.name)).chain.mined === 2)
    await b.signer.cancel(await b.gateway.repair({ signer: b.name, nonce: gap.nonce }))
    await n.rpc('anvil_mine', '0x1')
    assert.equal((await above.wait()).status, 1)
    const strange = await thrown(b.signer.cancel({ ...gap, signer: signerOf(31337, to) }))
    assert.ok(strange instanceof NotDone && /hold: it is of/.test(strange.message), String(strange))

    const slow = new GatewaySigner(Object.assign(b.wallet.connect(b.wallet.provider), {
      async signTransaction(tx) {
        await b.gateway.repair({ signer: b.name, nonce: 4 })
        return Wallet.prototype.signTransaction.call(this, tx)
      },
    }), b.gateway)
    const before = b.p.counts[send]
    const e = await thrown(slow.sendTransaction({ to, value: 1n }))
    assert.ok(e instanceof Refused && e.reason === 'conflict', String(e))
    assert.equal(b.p.counts[send], before)
  })
})
