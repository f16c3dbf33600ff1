// Pays for one worker with the package sdk/typescript, until it is killed:
//
//	node package.mjs viem|ethers CHAIN-ID NODE-URL GATEWAY-URL...
//
// By JSON-RPC: begin(job) answers a transaction that is signed and neither recorded nor sent, with the hold of its nonce; finish(raw)
// has it be sent, and answers what came of it; again(job) sends one that was signed before. The keys are in KEYS.
import { createServer } from 'node:http'
import { FetchRequest, JsonRpcProvider, Network, Wallet } from 'ethers'
import { Gateway, NoncegateError } from 'noncegate'
import { GatewaySigner, SendError as EthersSendError } from 'noncegate/ethers'
import { SendError, noncegate } from 'noncegate/viem'
import { createWalletClient, defineChain, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const [kind, chainId, node, ...gateways] = process.argv.slice(2)
const keys = process.env.KEYS.split(',')
const timeout = 2000
const gateway = new Gateway(gateways, { timeoutMs: 4000 })

const chain = defineChain({ id: Number(chainId), name: 'soak', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [node] } } })
const accounts = keys.map((key) => privateKeyToAccount(key))
const network = Network.from(Number(chainId))
const request = new FetchRequest(node)
request.timeout = timeout
const provider = new JsonRpcProvider(request, network, { staticNetwork: network })

const wallets = {
  viem(account, signed) {
    const wallet = createWalletClient({ account: accounts[account], chain, transport: http(node, { timeout }) }).extend(noncegate(gateway, { signed }))
    return {
      pay: ({ to, value, data }) => wallet.sendTransaction({ to, value: BigInt(value), data }),
      again: ({ raw, hold }) => wallet.sendRawTransaction({ serializedTransaction: raw, hold }),
      bump: ({ hash }) => wallet.bump({ hash }),
    }
  },
  ethers(account, signed) {
    const signer = new GatewaySigner(new Wallet(keys[account], provider), gateway, { signed })
    return {
      pay: ({ to, value, data }) => signer.sendTransaction({ to, value, data }),
      again: ({ raw, hold }) => signer.broadcastTransaction(raw, hold),
      bump: ({ hash }) => signer.bump(hash),
    }
  },
}

const outcome = (work) => work.then(() => 'sent', (error) => {
  if (error instanceof SendError || error instanceof EthersSendError) return error.givenBack ? 'given back' : error.outcome
  if (error instanceof NoncegateError) return error.reason === 'conflict' ? 'conflict' : 'nothing sent'
  return String(error?.message ?? error)
})

const begun = new Map() // what is signed, and waits for finish: by its bytes
const methods = {
  begin: (job) => new Promise((resolve, reject) => {
    const work = wallets[kind](job.account, (tx) => new Promise((go) => {
      begun.set(tx.raw, { go, outcome: outcome(work) })
      const { signer, nonce, attempt } = tx.hold
      resolve({ raw: tx.raw, hold: { signer, nonce, attempt } })
    }))[job.hash ? 'bump' : 'pay'](job)
    work.catch(reject)
  }),
  finish(raw) {
    const waits = begun.get(raw)
    begun.delete(raw)
    waits.go()
    return waits.outcome
  },
  again: (job) => outcome(wallets[kind](job.account).again(job)),
}

const server = createServer(async (req, res) => {
  let text = ''
  for await (const chunk of req) text += chunk
  const { id, method, params: [argument] } = JSON.parse(text)
  const answer = { jsonrpc: '2.0', id }
  try {
    answer.result = await methods[method](argument)
  } catch (error) {
    answer.error = { code: -32000, message: String(error?.message ?? error) }
  }
  res.setHeader('Content-Type', 'application/json')
  res.end(JSON.stringify(answer))
})
server.listen(0, '127.0.0.1', () => console.log(`listens on http://127.0.0.1:${server.address().port}`))
