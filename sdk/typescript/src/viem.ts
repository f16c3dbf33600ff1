/**
 * viem with nonces of the gateway: `walletClient.extend(noncegate(gateway))`.
 *
 * @packageDocumentation
 */
import {
  BaseError, HttpRequestError, RpcRequestError, fromRlp, http, keccak256, parseTransaction, recoverTransactionAddress, toRlp,
  type Account, type Chain, type Client, type Hex, type HttpTransportConfig, type Kzg, type LocalAccount, type SendRawTransactionParameters,
  type Transport, type TransactionReceipt, type WalletActions,
} from 'viem'
import {
  deployContract, estimateFeesPerGas, getChainId, getGasPrice, getTransaction, getTransactionReceipt, prepareTransactionRequest,
  sendTransaction, sendTransactionSync, signTransaction, waitForTransactionReceipt, writeContract, writeContractSync,
} from 'viem/actions'
import { parseAccount } from 'viem/utils'
import { NotDone } from './errors.js'
import { signerOf, type Gateway } from './gateway.js'
import { gradeTexts, notConnected, standsBefore, textsOf, type Grade } from './grade.js'
import { asksChain, checkBlobs, checkSender, deliver, giveBack, heldByUs, noFallback, ownError, raised, type Signed } from './send.js'
import type { Hold } from './types.js'

export type { Outcome } from './grade.js'
export { SendError, type Signed } from './send.js'

/** How the nonces are taken. */
export interface NoncegateOptions {
  /** How long a nonce is held, in milliseconds. Default: the gateway's. */
  holdMs?: number
  /**
   * Also for accounts whose chain the gateway does not ask. Such an account begins at nonce 0, unless its floor was set,
   * and what becomes of its transactions is known from marks alone.
   */
  unwatched?: boolean
  /**
   * Called, and waited for, with each transaction that is signed, before its hash is recorded and it is sent. A program that
   * may be killed writes it down here: afterwards `sendRawTransaction` of the same bytes and hold goes on where that was, or
   * is {@link Refused} as a `conflict`: the hold has ended, and as long as nobody repairs nonces, this was never sent. What
   * it throws ends the call, and nothing is sent.
   */
  signed?: (tx: Signed) => unknown
}

/** Fees of a replacement, in wei. Default: an eighth more than before (blobs: twice as much), at least what the node asks now. */
export interface Fees {
  maxFeePerGas?: bigint
  maxPriorityFeePerGas?: bigint
  maxFeePerBlobGas?: bigint
  gasPrice?: bigint
}

/** What replaces a transaction with blobs has blobs, too, and a node does not give them back. As `sendTransaction` of viem takes them. */
export interface Blobs {
  blobs?: readonly Hex[] | readonly Uint8Array[]
  kzg?: Kzg
}

/** What {@link noncegate} adds to a wallet client, beside its own methods that now take their nonces from the gateway. */
export type NoncegateActions = {
  /** Sends the same transaction again with higher fees, one with blobs with these. Either of the two is mined. Returns the new hash. */
  bump(parameters: { hash: Hex; account?: Account } & Fees & Blobs): Promise<Hex>
  /**
   * Replaces a transaction, or fills the nonce of a hold as from {@link Gateway.repair}, by one that sends nothing to the
   * account itself. It has happened only when the new hash is mined.
   */
  cancel(parameters: ({ hash: Hex } | { hold: Hold }) & { account?: Account } & Fees & Blobs): Promise<Hex>
  /**
   * Sends a transaction that was signed with the nonce of a hold, after its hash was recorded. It may have been sent before,
   * and may be sent again at any time, so the nonce is given back by {@link Gateway.markRecyclable} alone.
   */
  sendRawTransaction(parameters: SendRawTransactionParameters & { hold?: Hold }): Promise<Hex>
}

type Any = any // eslint-disable-line -- viem's own methods have more type parameters than can be passed on

/** The methods of a wallet client that send. */
export type Sending<C extends Chain | undefined, A extends Account | undefined> = Pick<
  WalletActions<C, A>, 'sendTransaction' | 'sendTransactionSync' | 'writeContract' | 'writeContractSync' | 'deployContract'
> & NoncegateActions

/**
 * Extends a wallet client, which must have the account's key, or a node that signs: `sendTransaction`,
 * `sendTransactionSync`, `writeContract`, `writeContractSync` and `deployContract` estimate first, then take a nonce,
 * sign, record the hash, and send once. What fails before the nonce is taken costs none. They throw viem's errors of
 * estimating and signing, {@link NotDone}, {@link Unknown} and {@link Refused} of the gateway, when nothing was sent, and {@link SendError}
 * when something was.
 */
export function noncegate(gateway: Gateway, options: NoncegateOptions = {}) {
  const watched = new Set<string>()
  return <T extends Transport, C extends Chain | undefined, A extends Account | undefined>(client: Client<T, C, A>): Sending<C, A> => {
    let nodeChain: Promise<number> | undefined

    /** check refuses what cannot go well, before a nonce is taken. */
    async function check(args: Any): Promise<{ account: Account; chain: Chain | undefined; signer: string }> {
      if (client.transport['type'] === 'fallback')
        throw new NotDone('', `transport: a fallback ${noFallback}`)
      const given = args.account ?? client.account
      if (!given) throw new NotDone('', 'account: the client has none, and none was given')
      const account = parseAccount(given)
      if (account.type === 'smart') throw new NotDone('', 'account: a smart account has no nonce of this kind')
      if (args.nonce !== undefined) throw new NotDone('', 'nonce: it comes from the gateway; leave it out')
      if ('nonceManager' in account && account.nonceManager)
        throw new NotDone('', "account: it has a nonceManager of viem's; leave that out")
      const chain = args.chain === null ? undefined : args.chain ?? client.chain
      nodeChain ??= getChainId(client)
      const id = await nodeChain.catch((e) => {
        nodeChain = undefined
        throw e
      })
      if (chain && chain.id !== id) throw new NotDone('', `chain: the wallet's is ${chain.id}, and that of the node ${id}`)
      const signer = signerOf(id, account.address)
      if (!options.unwatched && !watched.has(signer)) {
        await asksChain(gateway, signer)
        watched.add(signer)
      }
      return { account, chain, signer }
    }

    /** give records, sends and marks. */
    async function give(hold: Hold, raw: Hex, keep = false, signed = options.signed): Promise<Hex> {
      const txHash = hashOf(raw)
      await deliver(gateway, {
        hold, raw, txHash, keep, signed, grade: gradeOf,
        send: () => client.request({ method: 'eth_sendRawTransaction', params: [raw] } as Any, { retryCount: 0 }),
        found: async () => !!(await getTransactionReceipt(client, { hash: txHash })),
      })
      return txHash
    }

    /** bound is the client for one transaction: viem prepares it, and what signs it takes the nonce. */
    async function bound(args: Any): Promise<{ inner: Any; args: Any }> {
      const { account, chain, signer } = await check(args)
      let hold: Hold | undefined
      const signing: LocalAccount = {
        ...(account as LocalAccount), type: 'local', source: 'noncegate', nonceManager: undefined as never,
        async signTransaction(request: Any, o: Any) {
          hold = await gateway.allocate({ signer, recordFirst: true, ...(options.holdMs && { holdMs: options.holdMs }) })
          try {
            return await sign(hold, { ...request, nonce: hold.nonce }, account, o)
          } catch (e) {
            await giveBack(gateway, hold, e)
            throw e
          }
        },
      }
      const send = ({ serializedTransaction: raw }: { serializedTransaction: Hex }) => give(hold!, raw)
      const inner = {
        ...client,
        prepareTransactionRequest: (p: Any) =>
          prepareTransactionRequest(client, { ...p, parameters: p.parameters?.filter((name: string) => name !== 'nonce') }),
        sendRawTransaction: send,
        async sendRawTransactionSync(p: Any): Promise<TransactionReceipt> {
          const hash = await send(p)
          return waitForTransactionReceipt(client, { hash, ...(p.timeout && { timeout: p.timeout }) })
        },
      }
      return { inner, args: { ...args, account: signing, ...(chain && { chain }) } }
    }

    async function sign(hold: Hold, request: Any, account: Account, o?: Any): Promise<Hex> {
      const raw = account.type === 'local' ? await account.signTransaction(request, o) : await signAtNode(request, account)
      await ofHold(hold, raw)
      return raw
    }

    async function signAtNode({ account: _, from: __, ...request }: Any, account: Account): Promise<Hex> {
      const signed: unknown = await signTransaction(client as Any, { ...request, account, chain: null })
      return typeof signed === 'string' ? signed as Hex : (signed as { raw: Hex }).raw // as go-ethereum answers
    }

    /** through runs an action of viem for one transaction. */
    const through = (action: (inner: Any, args: Any) => Promise<Any>) => async (parameters: Any) => {
      try {
        const { inner, args } = await bound(parameters)
        return await action(inner, args)
      } catch (e) {
        throw ownError(e)
      }
    }
    // Those of contracts call sendTransaction of the client that they are given.
    const contract = (action: (inner: Any, args: Any) => Promise<Any>) => async (parameters: Any) => {
      try {
        const sending = { sendTransaction: through(sendTransaction), sendTransactionSync: through(sendTransactionSync) }
        return await action({ ...client, ...sending }, parameters)
      } catch (e) {
        throw ownError(e)
      }
    }

    /** replace signs and sends a second transaction of a nonce. */
    async function replace(p: Any, build: (old: Any) => Any): Promise<Hex> {
      const { account, chain, signer } = await check(p)
      const old: Any = p.hash ? await getTransaction(client, { hash: p.hash }) : undefined
      const isBlob = old?.type === 'eip4844'
      if (isBlob) checkBlobs(p)
      const hold: Hold = p.hold ?? await heldByUs(gateway, signer, old.nonce, p.hash)
      if (hold.signer !== signer) throw new NotDone('', `hold: it is of ${hold.signer}, and the account is ${signer}`)
      const { from: _, ...request } = build(old) as Any
      const prepared = await prepareTransactionRequest(client as Any, {
        ...request, ...await feesOf(old, p), account, chain, nonce: hold.nonce,
        ...(isBlob && { type: 'eip4844', blobs: p.blobs, kzg: p.kzg }),
        parameters: ['chainId', 'fees', 'gas', 'type', ...(isBlob ? ['blobVersionedHashes', 'sidecars'] : [])],
      } as Any)
      const raw = await sign(hold, { ...prepared, nonce: hold.nonce }, account, { serializer: chain?.serializers?.transaction })
      return give(hold, raw, true)
    }

    async function feesOf(old: Any, p: Fees): Promise<Any> {
      const { maxFeePerGas, maxPriorityFeePerGas, maxFeePerBlobGas, gasPrice } = p
      if (gasPrice !== undefined || old?.type === 'legacy' || old?.type === 'eip2930')
        return { gasPrice: gasPrice ?? raised(old?.gasPrice, await getGasPrice(client)) }
      const asked = await estimateFeesPerGas(client).catch(() => undefined)
      const blob = old?.type === 'eip4844' // whose fees must double
      const tip = maxPriorityFeePerGas ?? raised(old?.maxPriorityFeePerGas, asked?.maxPriorityFeePerGas, blob)
      const most = maxFeePerGas ?? raised(old?.maxFeePerGas, asked?.maxFeePerGas, blob)
      return {
        maxPriorityFeePerGas: tip, maxFeePerGas: most > tip ? most : tip,
        ...(blob && { maxFeePerBlobGas: maxFeePerBlobGas ?? raised(old.maxFeePerBlobGas, 0n, true) }),
      }
    }

    return {
      sendTransaction: through(sendTransaction),
      sendTransactionSync: through(sendTransactionSync),
      writeContract: contract(writeContract),
      writeContractSync: contract(writeContractSync),
      deployContract: contract(deployContract),
      async sendRawTransaction({ serializedTransaction: raw, hold }: SendRawTransactionParameters & { hold?: Hold }) {
        if (!hold) throw new NotDone('', 'hold: of which hold the nonce is must be said')
        const { nonce = 0 } = parseTransaction(raw as Hex)
        if (nonce !== hold.nonce) throw new NotDone('', `hold: its nonce is ${hold.nonce}, and that of the transaction ${nonce}`)
        await ofHold(hold, raw as Hex)
        return give(hold, raw as Hex, true, () => {})
      },
      bump: (p: Any) => replace(p, (old) => ({
        to: old.to, value: old.value, data: old.input, gas: old.gas, type: old.type,
        accessList: old.accessList, authorizationList: old.authorizationList,
      })),
      cancel: (p: Any) => replace(p, () => ({ to: parseAccount(p.account ?? client.account).address, value: 0n, gas: 21_000n })),
    } as Any
  }
}

/** ofHold refuses a transaction of another account than the hold's, where viem can read it: a chain may have types of its own. */
async function ofHold(hold: Hold, raw: Hex): Promise<void> {
  const from = await recoverTransactionAddress({ serializedTransaction: raw as Any }).catch(() => undefined)
  if (from) checkSender(hold, from)
}

/** hashOf is the hash of a signed transaction: of one with blobs, without them. */
export function hashOf(raw: Hex): Hex {
  if (!raw.startsWith('0x03')) return keccak256(raw)
  const parts = fromRlp(`0x${raw.slice(4)}`, 'hex') as Hex[]
  return keccak256(Array.isArray(parts[0]) ? `0x03${toRlp(parts[0]).slice(2)}` : raw)
}

/** gradeOf is what an error of viem says of a transaction that was sent. */
function gradeOf(error: unknown): Grade {
  const walk = <T>(is: new (...args: Any) => T) => (error instanceof BaseError ? error.walk((e) => e instanceof is) as T | null : null)
  const answer = walk(RpcRequestError), failed = walk(HttpRequestError)
  const status = answer?.status ?? failed?.status
  if (status !== undefined && standsBefore(status)) return { outcome: 'not_reached', later: status === 429 }
  if (answer) return gradeTexts([answer.details, ...textsOf(answer.data)])
  return { outcome: notConnected(error) ? 'not_reached' : 'unknown' }
}

/**
 * A transport to the gateway's `/eth/CHAIN`, which sends through the gateway and needs no extension: any client of viem
 * works as with a node. `url` is that of the gateway, `ws://HOST/ws` or `http://HOST`.
 */
export function endpoint(url: string, chainId: number, options: { key?: string } & HttpTransportConfig = {}): ReturnType<typeof http> {
  const { key, ...config } = options
  const u = new URL(url)
  u.protocol = u.protocol.replace('ws', 'http')
  u.pathname = `/eth/${chainId}`
  return http(u.href, key ? { ...config, fetchOptions: { ...config.fetchOptions, headers: { Authorization: `Bearer ${key}` } } } : config)
}
