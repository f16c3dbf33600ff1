// What viem's own nonce manager does when two processes have the key, and when a send fails
// while a later one is out. A line of JSON says which nonces it gave and which hashes went out.
import { privateKeyToAccount } from 'viem/accounts'
import { createNonceManager, jsonRpc } from 'viem/nonce'
import { createWalletClient, defineChain, http } from 'viem'

const { NODE, CHAIN_ID, KEY, TO } = process.env
const chain = defineChain({ id: Number(CHAIN_ID), name: 'test', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [NODE] } } })
const account = privateKeyToAccount(KEY)
const client = createWalletClient({ account, chain, transport: http(NODE) })
const who = { address: account.address, chainId: chain.id, client }
const pay = (nonce, value, gwei) =>
  client.sendTransaction({ to: TO, value, gas: 21000n, nonce, maxFeePerGas: gwei * 1_000_000_000n, maxPriorityFeePerGas: gwei * 1_000_000_000n })

// Two processes, each with a manager: both ask before either has sent.
const one = createNonceManager({ source: jsonRpc() }), other = createNonceManager({ source: jsonRpc() })
const nonces = [await one.consume(who), await other.consume(who)]
const first = await pay(nonces[0], 1n, 10n)
const second = await pay(nonces[1], 2n, 20n)

// One process: the payment of the lower nonce is refused, the next is out already; viem resets.
const manager = createNonceManager({ source: jsonRpc() })
const before = await Promise.all([manager.consume(who), manager.consume(who)])
const later = await pay(before[1], 3n, 10n)
const refused = await pay(before[0], 5000n * 10n ** 18n, 10n).then(() => '', (error) => error.details)
manager.reset(who)
const after = await Promise.all([manager.consume(who), manager.consume(who)])
await pay(after[0], 4n, 10n)
const last = await pay(after[1], 5n, 20n)
console.log(JSON.stringify({ nonces, first, second, before, later, refused, after, last }))
