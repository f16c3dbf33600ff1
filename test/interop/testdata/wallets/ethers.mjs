// A wallet back end with ethers. Nothing but the URL says that there is a gateway.
import assert from 'node:assert/strict'
import { ContractFactory, JsonRpcProvider, NonceManager, Wallet, WebSocketProvider } from 'ethers'

const { URL: url, KEY, TO, CODE } = process.env
// By itself ethers takes an answer that is a quarter of a second old, and blocks come faster here.
const provider = url.startsWith('ws') ? new WebSocketProvider(url, undefined, { cacheTimeout: -1 })
  : new JsonRpcProvider(url, undefined, { pollingInterval: 100, cacheTimeout: -1 })
const wallet = new Wallet(KEY, provider)

const blocks = []
await provider.on('block', (n) => blocks.push(n))

for (let i = 0; i < 3; i++) {
  const sent = await wallet.sendTransaction({ to: TO, value: 1n })
  assert.equal((await sent.wait(1, 30_000)).status, 1)
  assert.equal(await provider.getTransactionCount(wallet.address, 'pending'), i + 1)
}

// Three at once, with ethers' own nonces.
const counted = new NonceManager(wallet)
const all = await Promise.all([1n, 2n, 3n].map((value) => counted.sendTransaction({ to: TO, value })))
for (const sent of all) assert.equal((await sent.wait(1, 30_000)).status, 1)

const contract = await new ContractFactory([], CODE, wallet).deploy()
await contract.deploymentTransaction().wait(1, 30_000)
const address = await contract.getAddress()
assert.equal(BigInt(await provider.call({ to: address })), 42n)

// Events of the contract: over HTTP ethers asks for a filter first, is told that there is
// none, and looks for logs by itself.
const heard = new Promise((resolve) => provider.once({ address }, resolve))
if (!url.startsWith('ws')) while (blocks.length < 2) await new Promise((resolve) => setTimeout(resolve, 50))
const called = await (await wallet.sendTransaction({ to: address })).wait(1, 30_000)
assert.equal((await heard).transactionHash, called.hash)
assert.equal((await provider.getLogs({ address, fromBlock: called.blockNumber, toBlock: called.blockNumber })).length, 1)

await assert.rejects(wallet.sendTransaction({ to: TO, nonce: 0 }), { code: 'NONCE_EXPIRED' })
while (blocks.length < 2) await new Promise((resolve) => setTimeout(resolve, 50))
console.log('next', await provider.getTransactionCount(wallet.address, 'pending'))
process.exit(0)
