// Runs a client of this folder for a test: a line of JSON in asks for a payment, a line out says
// what came of it.
import { createInterface } from 'node:readline'

const { KIND, GATEWAY, NODE, CHAIN_ID, KEY, TO } = process.env
const timeout = Number(process.env.TIMEOUT_MS)
const start = {
  async viem() {
    const { createWalletClient, defineChain } = await import('viem')
    const { throughGateway } = await import('./viem.mjs')
    const chain = defineChain({ id: Number(CHAIN_ID), name: 'test', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [NODE] } } })
    const { account, transport } = throughGateway({ gatewayUrl: GATEWAY, nodeUrl: NODE, chainId: chain.id, key: KEY, timeout })
    const wallet = createWalletClient({ account, chain, transport })
    return ({ value, gas, nonce }) => wallet.sendTransaction({ to: TO, value: BigInt(value), gas: gas && BigInt(gas), nonce })
  },
  async ethers() {
    const { FetchRequest, JsonRpcProvider, Network, Wallet, WebSocketProvider } = await import('ethers')
    const { GatewaySigner } = await import('./ethers.mjs')
    const network = Network.from(Number(CHAIN_ID)), staticNetwork = network
    const url = new FetchRequest(NODE)
    url.timeout = timeout
    const node = new JsonRpcProvider(url, network, { staticNetwork })
    const gateway = new WebSocketProvider(GATEWAY, network, { staticNetwork })
    const signer = new GatewaySigner(new Wallet(KEY, node), gateway)
    return async ({ value, gas, nonce }) => (await signer.sendTransaction({ to: TO, value, gasLimit: gas, nonce })).hash
  },
}

const send = await start[KIND]()
console.log(JSON.stringify({ ready: true }))
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await send(JSON.parse(line)).then((hash) => ({ hash }), (error) => ({ error: error.message }))
  console.log(JSON.stringify(answer))
}
process.exit(0)
