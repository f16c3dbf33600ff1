// Held by the compiler: what a strict program may write, and what it may not.
import { Gateway, NotDone, Refused, Unknown, notSent, signerOf, type Allocation, type Hold, type Missed, type NonceEvent } from 'noncegate'

const gateway = new Gateway(['wss://a/ws', 'wss://b/ws'], { key: 'k', timeoutMs: 1000, onConnection: ({ connected, why }) => void [connected, why?.code] })
// @ts-expect-error: a URL is needed
new Gateway()
// @ts-expect-error: no such option
new Gateway('ws://a', { apiKey: 'k' })

export async function use(): Promise<void> {
  const signer = signerOf(1, '0x0000000000000000000000000000000000000001')
  const a: Allocation = await gateway.allocate({ signer, holdMs: 1000, guard: { key: 'k' } }, { signal: AbortSignal.timeout(1) })
  const hold: Hold = a
  await gateway.markUsed(hold, '0x', { guard: { key: 'k', keep: true } })
  // @ts-expect-error: a mark needs its attempt
  await gateway.markUsed({ signer, nonce: 1 })
  const hash: string = await gateway.withNonce(signer, async (h) => (await h.signed('0x'), h.signal.aborted ? Promise.reject(notSent('late')) : '0x'), { recordFirst: true })
  await gateway.withNonce(signer, async (h) => { void (h.leftMs() + hash.length) })
  for await (const e of await gateway.events({ signers: [signer] })) {
    const item: NonceEvent | Missed = e
    if (item.type === 'missed') void (item.missed ?? 'not known')
    else if (item.type === 'gap') void item.gap?.blocked
  }
  const page = await gateway.list({ signer, status: 'HELD' })
  void page.allocations[0]?.chain
  try {
    await gateway.call<{ a: 1 }>('x', {}, { repeat: 'read' })
  } catch (e) {
    if (e instanceof Refused) void (e.data.retryAfterMs ?? e.reason === 'conflict')
    if (e instanceof Unknown) void e.requestId
    if (e instanceof NotDone) void e.cause
  }
  await gateway.close()
}

import { createWalletClient, http, parseAbi, type Hash, type TransactionReceipt } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { mainnet } from 'viem/chains'
import { SendError, endpoint, noncegate, type Outcome } from 'noncegate/viem'

export async function pay(): Promise<void> {
  const account = privateKeyToAccount('0x')
  const wallet = createWalletClient({ account, chain: mainnet, transport: http() }).extend(noncegate(gateway, { holdMs: 30_000 }))
  const hash: Hash = await wallet.sendTransaction({ to: account.address, value: 1n })
  const receipt: TransactionReceipt = await wallet.sendTransactionSync({ to: account.address, value: 1n })
  const abi = parseAbi(['function mint(uint256 id)'])
  await wallet.writeContract({ abi, address: account.address, functionName: 'mint', args: [1n] })
  // @ts-expect-error: it takes a number
  await wallet.writeContract({ abi, address: account.address, functionName: 'mint', args: ['1'] })
  await wallet.deployContract({ abi: [], bytecode: '0x' })
  await wallet.cancel({ hash: await wallet.bump({ hash, maxFeePerGas: 1n }) })
  await wallet.cancel({ hold: await gateway.repair({ signer: 's' }) })
  // @ts-expect-error: which transaction?
  await wallet.cancel({})
  createWalletClient({ account, transport: endpoint('ws://h/ws', 1, { key: 'k' }) })
  const e: unknown = receipt
  if (e instanceof SendError) { const o: Outcome = e.outcome; void [o, e.hold.nonce, e.txHash, e.raw, e.later] }
}

import { Contract, ContractFactory, JsonRpcProvider, Wallet, type TransactionResponse } from 'ethers'
import { GatewaySigner } from 'noncegate/ethers'

export async function payByEthers(): Promise<void> {
  const signer = new GatewaySigner(new Wallet('0x', new JsonRpcProvider('http://n')), gateway, { holdMs: 1000 })
  const sent: TransactionResponse = await signer.sendTransaction({ to: '0x', value: 1n })
  await signer.cancel((await signer.bump(sent.hash, { maxFeePerGas: 1n })).hash)
  await signer.cancel(await gateway.repair({ signer: 's' }))
  void [new Contract('0x', [], signer), new ContractFactory([], '0x', signer)]
}
