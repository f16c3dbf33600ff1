// A wallet back end with viem. Nothing but the URL says that there is a gateway.
import assert from 'node:assert/strict'
import { createPublicClient, createWalletClient, defineChain, http, webSocket, NonceTooLowError } from 'viem'
import { nonceManager, privateKeyToAccount } from 'viem/accounts'

const { URL: url, KEY, TO, CODE, CHAIN } = process.env
const chain = defineChain({
  id: Number(CHAIN), name: 'test', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [url] } },
})
const transport = url.startsWith('ws') ? webSocket(url) : http(url)
const account = privateKeyToAccount(KEY)
const wallet = createWalletClient({ account, chain, transport })
const client = createPublicClient({ chain, transport, pollingInterval: 100 })
const receiptOf = (hash) => client.waitForTransactionReceipt({ hash, timeout: 30_000 })

const blocks = []
const unwatch = client.watchBlockNumber({ onBlockNumber: (n) => blocks.push(n), onError: (e) => { throw e } })

for (let i = 0; i < 3; i++) {
  const receipt = await receiptOf(await wallet.sendTransaction({ to: TO, value: 1n }))
  assert.equal(receipt.status, 'success')
  assert.equal(await client.getTransactionCount({ address: account.address, blockTag: 'pending' }), i + 1)
}

// Three at once, with viem's own nonces: they come over as many connections as it likes.
const counted = createWalletClient({ account: privateKeyToAccount(KEY, { nonceManager }), chain, transport })
const hashes = await Promise.all([1n, 2n, 3n].map((value) => counted.sendTransaction({ to: TO, value })))
for (const hash of hashes) assert.equal((await receiptOf(hash)).status, 'success')

const { contractAddress } = await receiptOf(await wallet.deployContract({ abi: [], bytecode: CODE }))
const { data } = await client.call({ to: contractAddress })
assert.equal(BigInt(data), 42n)
const called = await receiptOf(await wallet.sendTransaction({ to: contractAddress }))
const logs = await client.getLogs({ address: contractAddress, fromBlock: called.blockNumber, toBlock: called.blockNumber })
assert.equal(logs.length, 1)

await assert.rejects(wallet.sendTransaction({ to: TO, nonce: 0 }), (e) => e.walk((e) => e instanceof NonceTooLowError) != null)
await assert.rejects(client.request({ method: 'eth_newFilter', params: [{}] }), /eth_getLogs/)
while (blocks.length < 2) await new Promise((resolve) => setTimeout(resolve, 50))
unwatch()
console.log('next', await client.getTransactionCount({ address: account.address, blockTag: 'pending' }))
process.exit(0)
