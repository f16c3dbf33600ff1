// A signer of ethers 6 that takes its nonces from the gateway. Contracts take it as any other.
import { AbstractSigner, keccak256 } from 'ethers'

const refused = /insufficient funds|intrinsic gas|exceeds block gas limit/i // and nothing else gives a nonce back
const known = /already known|known transaction|already imported/i

export class GatewaySigner extends AbstractSigner {
  // wallet has the key and the node; gateway is a WebSocketProvider with staticNetwork.
  constructor(wallet, gateway) {
    super(wallet.provider)
    this.wallet = wallet
    this.gateway = gateway
  }
  connect(provider) { return new GatewaySigner(this.wallet.connect(provider), this.gateway) }
  getAddress() { return this.wallet.getAddress() }
  signTransaction(tx) { return this.wallet.signTransaction(tx) }
  signMessage(message) { return this.wallet.signMessage(message) }
  signTypedData(...args) { return this.wallet.signTypedData(...args) }

  async sendTransaction(tx) {
    if (tx.nonce != null) throw new Error('the nonce comes from the gateway: leave it out')
    const { from, ...request } = await this.populateTransaction(tx) // what fails here costs no nonce
    const signer = `eip155:${request.chainId}:${await this.getAddress()}`
    const call = (method, params) => this.gateway.send(method, [{ signer, ...params }])
    const { nonce, attempt } = await call('nonce_allocate', { requestId: crypto.randomUUID(), recordFirst: true })
    const raw = await this.signTransaction({ ...request, nonce }), hold = { nonce, attempt }, txHash = keccak256(raw)
    await call('nonce_markSigned', { ...hold, txHash }) // where this throws, nothing is sent
    let sent
    try { sent = await this.provider.broadcastTransaction(raw) } catch (error) {
      const said = error.info?.error?.message ?? error.error?.message ?? '' // a time-out has neither
      if (refused.test(said)) await call('nonce_markRecyclable', { ...hold, unsent: true, reason: 'refused' })
      if (!known.test(said)) throw error // nobody knows, so the hold is left alone
    }
    call('nonce_markUsed', { ...hold, txHash }).catch(() => {}) // not waited for: it is recorded, so it will count as used
    return sent ?? this.provider.getTransaction(txHash)
  }
}
