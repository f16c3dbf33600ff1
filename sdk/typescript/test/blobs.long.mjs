// Transactions with blobs are sent, bumped and cancelled. (A node prepares for some seconds for its first blob.)
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FetchRequest, JsonRpcProvider, Network, Wallet } from 'ethers'
import { Gateway, NotDone, signerOf } from 'noncegate'
import { GatewaySigner } from 'noncegate/ethers'
import { noncegate } from 'noncegate/viem'
import { createWalletClient, defineChain, http } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { node, startGateway, thrown, until } from './lab.mjs'

const to = '0x00000000000000000000000000000000000000aa'
const gwei = 10n ** 9n

// Of a blob of zeros the commitment and the proof are the point at infinity.
const infinity = `0xc0${'0'.repeat(94)}`
const bytes = (hex) => Uint8Array.from(Buffer.from(hex.slice(2), 'hex'))
const kzg = { blobToKzgCommitment: () => bytes(infinity), computeBlobKzgProof: () => bytes(infinity) }
const zeros = { blobs: [`0x${'0'.repeat(2 * 131_072)}`], kzg }

const libraries = {
  viem(t, n, gateway, key) {
    const chain = defineChain({ id: 31337, name: 'anvil', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [n.url] } } })
    const wallet = createWalletClient({ account: privateKeyToAccount(key), chain, transport: http(n.url, { timeout: 120_000 }) }).extend(noncegate(gateway))
    return {
      send: (tx) => wallet.sendTransaction({ ...tx, ...zeros }),
      bump: (hash, blobs) => wallet.bump({ hash, ...blobs }),
      cancel: (hash, blobs) => wallet.cancel({ hash, ...blobs }),
    }
  },
  ethers(t, n, gateway, key) {
    const url = new FetchRequest(n.url)
    url.timeout = 120_000
    const network = Network.from(31337)
    const provider = new JsonRpcProvider(url, network, { staticNetwork: network, cacheTimeout: -1 })
    t.after(() => provider.destroy())
    const signer = new GatewaySigner(new Wallet(key, provider), gateway)
    return {
      send: async (tx) => (await signer.sendTransaction({ type: 3, ...tx, ...zeros })).hash,
      bump: async (hash, blobs) => (await signer.bump(hash, blobs)).hash,
      cancel: async (hash, blobs) => (await signer.cancel(hash, blobs)).hash,
    }
  },
}

for (const [name, library] of Object.entries(libraries)) {
  test(`blobs with ${name}`, async (t) => {
    const n = await node(t, true)
    await n.rpc('evm_setAutomine', false)
    const server = await startGateway(t, `--chain=eip155:31337=${n.ws}`, '--chain-poll=50ms')
    const gateway = new Gateway(server.url)
    t.after(() => gateway.close())
    const key = generatePrivateKey(), { address } = privateKeyToAccount(key)
    await n.rpc('anvil_setBalance', address, '0xde0b6b3a7640000')
    await until('the gateway knows what the chain says of the account', async () => (await gateway.status(signerOf(31337, address))).chain)
    const wallet = library(t, n, gateway, key)
    const mined = async (hash, nonce, value) => {
      await n.rpc('anvil_mine', '0x1')
      await until('it is mined', async () => (await n.rpc('eth_getTransactionReceipt', hash))?.status === '0x1')
      const tx = await n.rpc('eth_getTransactionByHash', hash)
      assert.deepEqual([tx.type, Number(tx.nonce), Number(tx.value), BigInt(tx.maxFeePerBlobGas), tx.blobVersionedHashes.length], ['0x3', nonce, value, 2n * gwei, 1])
    }
    const first = await wallet.send({ to, value: 3n, maxFeePerBlobGas: gwei })
    const without = await thrown(wallet.bump(first, {}))
    assert.ok(without instanceof NotDone && /give blobs and kzg/.test(without.message), String(without))
    await mined(await wallet.bump(first, zeros), 0, 3)
    await mined(await wallet.cancel(await wallet.send({ to, value: 5n, maxFeePerBlobGas: gwei }), zeros), 1, 0)
    assert.equal(await n.rpc('eth_getTransactionCount', address, 'latest'), '0x2')
  })
}
