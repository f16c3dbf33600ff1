// What browser.long.mjs has in a page: the package, viem, and an account that signs when the test says so.
import { Gateway, NotDone, Refused } from 'noncegate'
import { noncegate } from 'noncegate/viem'
import { createPublicClient, createWalletClient, defineChain, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const told = (e) => ({ error: e?.name, reason: e?.reason, message: e?.message })

// After a sleep clocks have gone on, and timers have not.
let ahead = 0
for (const clock of [Date, performance]) {
  const real = clock.now.bind(clock)
  clock.now = () => real() + ahead
}

Object.assign(globalThis, {
  states: [],
  events: [],
  sleepAnHour: () => void (ahead = 3_600_000),

  async begin({ url, key, chainId }) {
    const gateway = new Gateway(url, {
      ticket: async () => (await fetch('/ticket', { method: 'POST' })).text(), // the page's own server asks for it
      onConnection: ({ connected }) => states.push(connected),
    })
    const chain = defineChain({
      id: chainId, name: 'anvil', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
      rpcUrls: { default: { http: [`${location.origin}/node`] } },
    })
    const account = privateKeyToAccount(key)
    const client = (account) => createWalletClient({ account, chain, transport: http(), pollingInterval: 20 }).extend(noncegate(gateway))
    const reader = createPublicClient({ chain, transport: http(), pollingInterval: 20 })
    let sign
    Object.assign(globalThis, {
      gateway, account,
      wallet: client(account),
      /** hesitant signs when sign is called, as a person does who is asked. */
      hesitant: client({ ...account, signTransaction: async (...args) => (await new Promise((r) => (sign = r)), account.signTransaction(...args)) }),
      sign: () => sign(),
      isAsked: () => sign !== undefined,
      mined: async (hash) => (await reader.waitForTransactionReceipt({ hash })).status,
      outcome: (promise) => promise.then((value) => ({ value }), told),
    })
    const all = await gateway.events()
    void (async () => { for await (const e of all) events.push(e.type) })()
  },

  /** hold takes a nonce of a signer, and returns what became of it when it is resumed. */
  hold(signer) {
    const seen = {}
    const end = gateway.withNonce(signer, async (hold) => {
      seen.nonce = hold.nonce
      await new Promise((r) => hold.signal.addEventListener('abort', r))
      seen.left = hold.leftMs()
      seen.signed = await hold.signed(`0x${'1'.repeat(64)}`).then(() => 'recorded', told)
      throw hold.signal.reason
    }, { holdMs: 600_000 })
    globalThis.held = seen
    globalThis.ended = end.catch((e) => ({ ...told(e), notDone: e instanceof NotDone && !(e instanceof Refused) }))
  },
})
