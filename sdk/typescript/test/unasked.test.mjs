// In a process of its own, because its clock jumps.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Gateway, NotDone } from 'noncegate'
import { noncegate } from 'noncegate/viem'
import { createWalletClient, custom, defineChain } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { fakeGateway, thrown } from './lab.mjs'

test('a gateway that does not ask the chain is told of before a nonce is taken, and one that has no answer yet is waited for', async (t) => {
  const told = []
  let answers = 0, jump = 0
  const fake = await fakeGateway(t, ({ method, params: { signer } }) => {
    told.push(method)
    if (method === 'nonce_status') {
      answers++
      if (jump && answers === 2) for (const clock of [Date, performance]) clock.ahead = jump
      return { result: { signer, next: 0, floor: 0, ...(!jump && answers > 2 && { chain: { mined: 0, head: 1 } }) } }
    }
    return { error: { code: -32016, message: 'duplicate_submit: enough', data: { reason: 'duplicate_submit' } } }
  })
  for (const clock of [Date, performance]) {
    const real = clock.now.bind(clock)
    clock.ahead = 0
    clock.now = () => real() + clock.ahead
  }
  const gateway = new Gateway(fake.url, { timeoutMs: 7_200_000 })
  t.after(() => gateway.close())
  const chain = defineChain({ id: 5, name: 'none', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [] } } })
  const node = { request: async ({ method }) => ({ eth_chainId: '0x5', eth_getBlockByNumber: { baseFeePerGas: '0x1' } })[method] ?? '0x1' }
  const wallet = (key) => createWalletClient({ account: privateKeyToAccount(key), chain, transport: custom(node) }).extend(noncegate(gateway))
  const pay = (w) => thrown(w.sendTransaction({ to: '0x00000000000000000000000000000000000000aa', gas: 21_000n }))

  const asked = await pay(wallet(generatePrivateKey()))
  assert.equal(asked.reason, 'duplicate_submit', String(asked)) // it came to the nonce
  assert.deepEqual(told, ['nonce_status', 'nonce_status', 'nonce_status', 'nonce_allocate'])

  told.length = answers = 0
  jump = 3_600_000
  const e = await pay(wallet(generatePrivateKey()))
  assert.ok(e instanceof NotDone && /the gateway does not ask that of eip155:5/.test(e.message), String(e))
  assert.deepEqual(told, ['nonce_status', 'nonce_status'])
})
