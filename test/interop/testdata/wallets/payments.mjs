// Wallet back ends with viem, several at once, each of which makes three payments to one account:
// of 1, 2 and 4. One that is refused is given up, and the next follows. Nothing but the URL says
// that there is a gateway.
import { createWalletClient, defineChain, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const { WALLETS, CHAIN } = process.env

async function pay({ url, key, to }) {
  const chain = defineChain({
    id: Number(CHAIN), name: 'test', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [url] } },
  })
  const account = privateKeyToAccount(key)
  const wallet = createWalletClient({ account, chain, transport: http(url) })
  const told = []
  for (const value of [1n, 2n, 4n]) {
    try {
      told.push(await wallet.sendTransaction({ to, value }))
    } catch (e) {
      told.push(e.details ?? e.message)
    }
  }
  return told
}

console.log(JSON.stringify(await Promise.all(JSON.parse(WALLETS).map(pay))))
process.exit(0)
