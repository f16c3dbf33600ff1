// Pays for a test of test/interop, which has a chain and faults of its own: a line of JSON in asks for a payment, a line out
// says what came of it.
import { createInterface } from 'node:readline'
import { FetchRequest, JsonRpcProvider, Network, Wallet } from 'ethers'
import { Gateway, signerOf } from 'noncegate'
import { GatewaySigner } from 'noncegate/ethers'
import { noncegate } from 'noncegate/viem'
import { createWalletClient, defineChain, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const { KIND, GATEWAY, NODE, CHAIN_ID, KEY, TO } = process.env
const timeout = Number(process.env.TIMEOUT_MS)
const gateway = new Gateway(GATEWAY)
const start = {
  viem() {
    const chain = defineChain({ id: Number(CHAIN_ID), name: 'test', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [NODE] } } })
    const wallet = createWalletClient({ account: privateKeyToAccount(KEY), chain, transport: http(NODE, { timeout }) }).extend(noncegate(gateway))
    return ({ value, gas, nonce }) => wallet.sendTransaction({ to: TO, value: BigInt(value), gas: gas && BigInt(gas), nonce })
  },
  ethers() {
    const network = Network.from(Number(CHAIN_ID)), staticNetwork = network
    const url = new FetchRequest(NODE)
    url.timeout = timeout
    const signer = new GatewaySigner(new Wallet(KEY, new JsonRpcProvider(url, network, { staticNetwork })), gateway)
    return async ({ value, gas, nonce }) => (await signer.sendTransaction({ to: TO, value, gasLimit: gas, nonce })).hash
  },
}

const signer = signerOf(CHAIN_ID, new Wallet(KEY).address)
while (!(await gateway.status(signer)).chain) await new Promise((r) => setTimeout(r, 50))
const send = start[KIND]()
console.log(JSON.stringify({ ready: true }))
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await send(JSON.parse(line)).then((hash) => ({ hash }), (error) => ({ error: error.message }))
  console.log(JSON.stringify(answer))
}
await gateway.close()
process.exit(0)
