/**
 * A signer of ethers 6 with nonces of the gateway.
 *
 * @packageDocumentation
 */
import {
  AbstractProvider, AbstractSigner, FallbackProvider, Transaction, resolveAddress,
  type AuthorizationRequest, type Authorization, type BlobLike, type KzgLibraryLike, type Provider, type Signer,
  type TransactionLike, type TransactionRequest, type TransactionResponse, type TypedDataDomain, type TypedDataField,
} from 'ethers'
import { NotDone } from './errors.js'
import { signerOf, type Gateway } from './gateway.js'
import { gradeTexts, notConnected, standsBefore, textsOf, type Grade } from './grade.js'
import { asksChain, checkBlobs, checkSender, deliver, giveBack, heldByUs, noFallback, raised, type Signed } from './send.js'
import type { Hold } from './types.js'

export type { Outcome } from './grade.js'
export { SendError, type Signed } from './send.js'

/** How the nonces are taken. */
export interface GatewaySignerOptions {
  /** How long a nonce is held, in milliseconds. Default: the gateway's. */
  holdMs?: number
  /** Also for accounts whose chain the gateway does not ask. Such an account begins at nonce 0, unless its floor was set. */
  unwatched?: boolean
  /**
   * Called, and waited for, with each transaction that is signed, before its hash is recorded and it is sent. A program that
   * may be killed writes it down here: afterwards `broadcastTransaction` of the same bytes and hold goes on where that was, or
   * is {@link Refused} as a `conflict`: the hold has ended, and as long as nobody repairs nonces, this was never sent. What
   * it throws ends the call, and nothing is sent.
   */
  signed?: (tx: Signed) => unknown
}

/** Fees of a replacement, in wei. Default: an eighth more than before (with blobs: twice as much), at least what the node asks now. */
export interface Fees {
  maxFeePerGas?: bigint
  maxPriorityFeePerGas?: bigint
  maxFeePerBlobGas?: bigint
  gasPrice?: bigint
  /** What replaces a transaction with blobs has blobs, too, and a node does not give them back. */
  blobs?: BlobLike[]
  kzg?: KzgLibraryLike
}

/**
 * Signs with another signer, such as a `Wallet`, and sends with nonces of the gateway; contracts and `ContractFactory`
 * take it as any other. What fails before the nonce is taken costs none. `sendTransaction` throws ethers' errors of
 * populating and signing, {@link NotDone}, {@link Unknown} and {@link Refused} of the gateway, when nothing was sent, and
 * {@link SendError} when something was.
 */
export class GatewaySigner extends AbstractSigner {
  readonly #signer: Signer
  readonly #gateway: Gateway
  readonly #options: GatewaySignerOptions
  #checked: Promise<string> | undefined

  /** `signer` has the key and the provider: one node, no `FallbackProvider`. */
  constructor(signer: Signer, gateway: Gateway, options: GatewaySignerOptions = {}) {
    super(signer.provider)
    this.#signer = signer
    this.#gateway = gateway
    this.#options = options
  }

  override connect(provider: Provider | null): GatewaySigner {
    return new GatewaySigner(this.#signer.connect(provider), this.#gateway, this.#options)
  }
  override getAddress(): Promise<string> {
    return this.#signer.getAddress()
  }
  override signTransaction(tx: TransactionRequest): Promise<string> {
    return this.#signer.signTransaction(tx)
  }
  override signMessage(message: string | Uint8Array): Promise<string> {
    return this.#signer.signMessage(message)
  }
  override signTypedData(
    domain: TypedDataDomain, types: Record<string, TypedDataField[]>, value: Record<string, unknown>,
  ): Promise<string> {
    return this.#signer.signTypedData(domain, types, value)
  }
  override authorize(auth: AuthorizationRequest): Promise<Authorization> {
    return this.#signer.authorize(auth)
  }

  override async sendTransaction(tx: TransactionRequest): Promise<TransactionResponse> {
    if (tx.nonce != null) throw new NotDone('', 'nonce: it comes from the gateway; leave it out')
    const { node, signer } = await this.#ready()
    const asked = tx.from == null ? undefined : await resolveAddress(tx.from, node)
    if (asked && !signer.endsWith(asked.toLowerCase())) throw new NotDone('', `from: it is ${asked}, and the account is ${signer}`)
    const { from: _, ...request } = await this.populateTransaction(tx)
    const block = await node.getBlockNumber()
    const { holdMs } = this.#options
    const hold = await this.#gateway.allocate({ signer, recordFirst: true, ...(holdMs !== undefined && { holdMs }) })
    let raw: string
    try {
      raw = await this.signTransaction({ ...request, nonce: hold.nonce } as TransactionRequest)
      checkSender(hold, Transaction.from(raw).from!)
    } catch (e) {
      await giveBack(this.#gateway, hold, e)
      throw e
    }
    return this.#give(node, hold, raw, block, false)
  }

  /**
   * Sends a transaction that was signed with the nonce of a hold, after its hash was recorded. It may have been sent before,
   * and may be sent again at any time, so the nonce is given back by {@link Gateway.markRecyclable} alone.
   */
  async broadcastTransaction(raw: string, hold: Hold): Promise<TransactionResponse> {
    const { node } = await this.#ready()
    const { nonce, from } = Transaction.from(raw)
    checkSender(hold, from!)
    if (nonce !== hold.nonce) throw new NotDone('', `hold: its nonce is ${hold.nonce}, and that of the transaction ${nonce}`)
    return this.#give(node, hold, raw, await node.getBlockNumber(), true, () => {})
  }

  /** Sends the same transaction again with higher fees. Either of the two is mined. */
  bump(hash: string, fees: Fees = {}): Promise<TransactionResponse> {
    return this.#replace(hash, fees, ({ to, value, data, gasLimit, accessList, authorizationList, type }) => ({
      to, value, data, gasLimit, type,
      ...(accessList?.length && { accessList }),
      ...(authorizationList?.length && { authorizationList }),
    }))
  }

  /**
   * Replaces a transaction, or fills the nonce of a hold as from {@link Gateway.repair}, by one that sends nothing to
   * the account itself. It has happened only when the new one is mined.
   */
  async cancel(what: string | Hold, fees: Fees = {}): Promise<TransactionResponse> {
    const to = await this.getAddress()
    return this.#replace(what, fees, () => ({ to, value: 0n, gasLimit: 21_000n }))
  }

  async #replace(what: string | Hold, fees: Fees, build: (old: TransactionResponse) => TransactionRequest): Promise<TransactionResponse> {
    const { node, signer } = await this.#ready()
    const old = typeof what === 'string' ? await node.getTransaction(what) : null
    if (typeof what === 'string' && !old) throw new NotDone('', `hash: the node does not have ${what}`)
    const blob = old?.type === 3
    if (blob) checkBlobs(fees)
    const hold = typeof what === 'string' ? await heldByUs(this.#gateway, signer, old!.nonce, what) : what
    if (hold.signer !== signer) throw new NotDone('', `hold: it is of ${hold.signer}, and the account is ${signer}`)
    const request = build(old!)
    const asked = await node.getFeeData()
    if (fees.gasPrice !== undefined || old?.type === 0 || old?.type === 1) {
      request.gasPrice = fees.gasPrice ?? raised(old?.gasPrice, asked.gasPrice ?? 0n)
    } else {
      const tip = fees.maxPriorityFeePerGas ?? raised(old?.maxPriorityFeePerGas ?? 0n, asked.maxPriorityFeePerGas ?? 0n, blob)
      const most = fees.maxFeePerGas ?? raised(old?.maxFeePerGas ?? 0n, asked.maxFeePerGas ?? 0n, blob)
      request.maxPriorityFeePerGas = tip
      request.maxFeePerGas = most > tip ? most : tip
    }
    if (blob) {
      const { blobs, kzg, maxFeePerBlobGas = raised(old.maxFeePerBlobGas ?? 0n, 0n, true) } = fees
      Object.assign(request, { type: 3, blobs, kzg, maxFeePerBlobGas })
    }
    const { from: _, ...ready } = await this.populateTransaction({ ...request, nonce: hold.nonce })
    const block = await node.getBlockNumber()
    const raw = await this.signTransaction(ready as TransactionRequest)
    checkSender(hold, Transaction.from(raw).from!)
    return this.#give(node, hold, raw, block, true)
  }

  /** #ready refuses what cannot go well, before a nonce is taken. */
  async #ready(): Promise<{ node: AbstractProvider; signer: string }> {
    const node = this.provider
    if (!node) throw new NotDone('', 'provider: the signer has none')
    if (node instanceof FallbackProvider)
      throw new NotDone('', `provider: a FallbackProvider ${noFallback}`)
    if (!(node instanceof AbstractProvider)) throw new NotDone('', 'provider: must be one of ethers 6, of which there must be one copy')
    this.#checked ??= this.#check(node)
    const signer = await this.#checked.catch((e) => {
      this.#checked = undefined
      throw e
    })
    return { node, signer }
  }

  async #check(node: AbstractProvider): Promise<string> {
    const [{ chainId }, asked] = await Promise.all([node.getNetwork(), node._perform({ method: 'chainId' })])
    if (BigInt(asked) !== chainId) throw new NotDone('', `provider: its network is ${chainId}, and the node's chain ${BigInt(asked)}`)
    const signer = signerOf(chainId, await this.getAddress())
    if (!this.#options.unwatched) await asksChain(this.#gateway, signer)
    return signer
  }

  async #give(
    node: AbstractProvider, hold: Hold, raw: string, block: number, keep: boolean, signed = this.#options.signed,
  ): Promise<TransactionResponse> {
    const tx = Transaction.from(raw)
    const txHash = tx.hash!
    await deliver(this.#gateway, {
      hold, raw, txHash, keep, signed, grade: gradeOf,
      // Not broadcastTransaction, which asks more than this, and whose error could be of another call.
      send: () => node._perform({ method: 'broadcastTransaction', signedTransaction: raw }),
      found: async () => !!(await node.getTransactionReceipt(txHash)),
    })
    return node._wrapTransactionResponse(tx as TransactionLike as never, await node.getNetwork()).replaceableTransaction(block)
  }
}

/** gradeOf is what an error of ethers says of a transaction that was sent. */
function gradeOf(error: unknown): Grade {
  const e = error as {
    info?: { error?: { message?: string; data?: unknown }; responseStatus?: string }
    error?: { message?: string; data?: unknown }
    response?: { statusCode?: number }
  }
  // After its last try at 429 ethers makes that 599.
  const status = /^599 .*\(429 /.test(e?.info?.responseStatus ?? '') ? 429 : e?.response?.statusCode
  if (status !== undefined && standsBefore(status)) return { outcome: 'not_reached', later: status === 429 }
  const said = e?.info?.error ?? e?.error
  if (typeof said?.message === 'string') return gradeTexts([said.message, ...textsOf(said.data)])
  return { outcome: notConnected(error) ? 'not_reached' : 'unknown' }
}
