// An account of viem whose nonces come from the gateway, and a transport that says there what became of them.
import { createClient, http, keccak256, webSocket } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const refused = /insufficient funds|intrinsic gas|exceeds block gas limit/i // and no other answer gives a nonce back
const known = /already known|known transaction|already imported/i

export function throughGateway({ gatewayUrl, nodeUrl, chainId, key, timeout }) {
  const wallet = privateKeyToAccount(key), signer = `eip155:${chainId}:${wallet.address}`
  const gateway = createClient({ transport: webSocket(gatewayUrl) })
  const call = (method, params) => gateway.request({ method, params: [{ signer, ...params }] })
  const holds = new Map() // by nonce until it is signed, then by hash until the node has answered
  const consume = () => call('nonce_allocate', { requestId: crypto.randomUUID(), recordFirst: true })
    .then(({ nonce, attempt }) => holds.set(nonce, { nonce, attempt }) && nonce)
  const reset = ({ nonce }) => { // viem calls it when anything failed: what was not signed goes back, or its hold ends
    const hold = holds.get(nonce)
    if (holds.delete(nonce)) call('nonce_markRecyclable', hold).catch(() => {})
  }
  const signTransaction = async (tx, options) => {
    const hold = holds.get(tx.nonce), raw = await wallet.signTransaction(tx, options), txHash = keccak256(raw)
    if (!hold) throw new Error(`nonce ${tx.nonce} is not held: leave the nonce out`)
    await call('nonce_markSigned', { ...hold, txHash }) // where this throws, viem sends nothing
    return holds.set(txHash, hold).delete(tx.nonce) && raw
  }
  const transport = (options) => {
    const reads = http(nodeUrl, { timeout })(options), once = http(nodeUrl, { timeout, retryCount: 0 })(options)
    return { ...reads, request: async (args) => {
      const txHash = args.method === 'eth_sendRawTransaction' && keccak256(args.params[0]), hold = holds.get(txHash)
      if (!hold) return reads.request(args)
      await once.request(args).finally(() => holds.delete(txHash)).catch(async (error) => {
        if (refused.test(error.details)) await call('nonce_markRecyclable', { ...hold, unsent: true })
        if (!known.test(error.details)) throw error // a time-out, too: nobody knows, and the hold stays
      })
      return call('nonce_markUsed', { ...hold, txHash }).then(() => txHash, () => txHash) // recorded: it counts as used anyway
    } }
  }
  return { account: { ...wallet, signTransaction, nonceManager: { consume, reset } }, transport, gateway }
}
