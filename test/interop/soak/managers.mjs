// Serves the nonces of viem's and ethers' nonce managers to workers in other processes:
//
//	node managers.mjs viem|ethers CHAIN-ID NODE-URL...
//
// By JSON-RPC: take(address) answers a nonce; reset(address, nonce) is what each library offers for
// when sending has failed. One process serves all workers, so that each
// account has one manager, which is the best case of both.
import { createServer } from 'node:http'

const [kind, chainId, ...urls] = process.argv.slice(2)
const timeout = 2000

async function viem() {
  const { createClient, createNonceManager, fallback, http } = await import('viem')
  const { jsonRpc } = await import('viem/nonce')
  const manager = createNonceManager({ source: jsonRpc() })
  const client = createClient({
    transport: fallback(urls.map((url) => http(url, { timeout, retryCount: 1 })), { retryCount: 1 }),
    cacheTime: 0,
  })
  const account = (address) => ({ address, chainId: Number(chainId) })
  return {
    take: ({ address }) => manager.consume({ ...account(address), client }),
    // As sendTransaction of viem does when sending has failed.
    reset: ({ address, nonce }) => manager.reset({ ...account(address), nonce }),
  }
}

async function ethers() {
  const { FallbackProvider, FetchRequest, JsonRpcProvider, Network, NonceManager, VoidSigner } = await import('ethers')
  const network = Network.from(Number(chainId))
  const providers = urls.map((url, i) => {
    const request = new FetchRequest(url)
    request.timeout = timeout
    const provider = new JsonRpcProvider(request, network, { staticNetwork: network })
    return { provider, priority: i + 1, weight: 1, stallTimeout: 500 }
  })
  const provider = new FallbackProvider(providers, network, { quorum: 1 })
  const managers = new Map()
  const manager = (address) => {
    if (!managers.has(address)) managers.set(address, new NonceManager(new VoidSigner(address, provider)))
    return managers.get(address)
  }
  return {
    // As NonceManager.sendTransaction takes it.
    take: ({ address }) => {
      const nonce = manager(address).getNonce('pending')
      manager(address).increment()
      return nonce
    },
    reset: ({ address }) => manager(address).reset(),
  }
}

const managers = await { viem, ethers }[kind]()

const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request) text += chunk
  const { id, method, params: [address, nonce] } = JSON.parse(text)
  const answer = { jsonrpc: '2.0', id }
  try {
    const got = await managers[method]({ address, nonce })
    if (method === 'take' && got === undefined) throw new Error('no nonce')
    answer.result = got === undefined ? null : Number(got)
  } catch (error) {
    answer.error = { code: -32000, message: String(error?.shortMessage ?? error?.message ?? error) }
  }
  response.setHeader('Content-Type', 'application/json')
  response.end(JSON.stringify(answer))
})
server.listen(0, '127.0.0.1', () => console.log(`listens on http://127.0.0.1:${server.address().port}`))
