import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { Gateway, type ListedNonce, type Missed, type NonceEvent } from 'noncegate'
import { consume, floor, nonceOf, release, repair } from '../acts.js'
import { me, post } from '../api.js'
import { watcher, type Gone } from '../closed.js'
import { query, seen, useFeed } from '../feed.js'
import { ago, clockTime, count, now, short, time, until } from '../format.js'
import { advice, stopped } from '../runbook.js'
import type { SignerPage as Page, SignerView } from '../types.js'
import { Acts, Card, Facts, Table, Title, Wait, Word, type Tone } from '../ui.js'

const tones: Record<string, Tone> = { HELD: 'plain', UNKNOWN: 'look', RELEASED: 'look', CONSUMED: 'good', gap: 'fix' }
/** What the words of a chain mean, where they do not say it themselves. */
const meanings: Record<string, string> = {
  sent: 'it was given to nodes, or its hash was recorded',
  seen: 'a node has its transaction',
  dropped: 'no node has its transaction any more',
  mined: 'a block has used it',
  final: 'a final block has used it',
  external:
    'the chain used it with a transaction that was not sent through this gateway: another program, or a person, has the key of the account',
  used: 'the chain has used it; by which transaction is not seen yet',
}
/** What blocked signers while this page was open, and does not any more. */
const closed = watcher<number>(20)
const letters: Record<string, string> = { HELD: 'H', UNKNOWN: '?', RELEASED: 'R', CONSUMED: '✓' }

export function SignerPage({ params }: { params: URLSearchParams }) {
  const signer = params.get('signer') ?? ''
  const feed = useFeed<SignerView>(query('signer', { signer, limit: 100 }))
  const row = useFeed<Page>(query('signers', { prefix: signer, limit: 1 }), 4_000)
  const read = async () => (await feed.refresh(), feed.failure.value ? Promise.reject(feed.failure.value) : feed.data.value)
  const chosen = useSignal<number | undefined>(undefined)
  const seenNow = feed.data.value
  useEffect(() => {
    const c = seenNow?.status.chain,
      b = c?.gap ?? c?.dropped ?? c?.stuck
    if (seenNow && !c?.partial) closed.show(`${signer} `, new Map(b ? [[`${signer} ${b.nonce}`, b.nonce]] : []), now())
  }, [seenNow])
  return (
    <>
      <Title>
        <span class="mono">{signer}</span>
      </Title>
      <Wait feed={feed}>
        {(view) => {
          if (!view.known)
            return (
              <>
                <p>Nothing was ever handed out of this signer, and it has no floor.</p>
                <Acts acts={[floor(view, read)]} />
              </>
            )
          const { status: s } = view,
            c = s.chain,
            blocks = c?.gap ?? c?.dropped ?? c?.stuck
          const here = row.data.value?.signers?.find((r) => r.signer === signer)
          const said = [...(here?.stopped ? [stopped(view, read)] : []), ...advice(view, read)]
          const pick = chosen.value ?? blocks?.nonce
          const gone = [...closed.gone.value].filter(([name]) => name.startsWith(`${signer} `)).map(([, g]) => g)
          return (
            <>
              {gone.map((g) => (
                <Closed gone={g} view={view} />
              ))}
              <section class={`findings ${said[0]!.tone === 'good' ? 'none' : said[0]!.tone}`} aria-labelledby="todo">
                <h2 id="todo">What to do</h2>
                {said.map((a) => (
                  <div>
                    <p>
                      <Word tone={a.tone}>
                        <strong>{a.what}</strong>
                      </Word>
                    </p>
                    {!!a.todo.length && (
                      <ul>
                        {a.todo.map((t) => (
                          <li>{t}</li>
                        ))}
                      </ul>
                    )}
                    {a.command && (
                      <>
                        <code class="secret" tabIndex={0}>
                          {a.command}
                        </code>
                        <div class="acts">
                          {isSecureContext && (
                            <button type="button" onClick={() => void navigator.clipboard.writeText(a.command!)}>
                              Copy the command
                            </button>
                          )}
                          <span class="muted">API_KEY and SIGNED_TRANSACTION (0x and hexadecimal digits) are to be filled in.</span>
                        </div>
                      </>
                    )}
                    {a.orElse && <p>{a.orElse}</p>}
                    <Acts acts={a.acts} />
                  </div>
                ))}
              </section>
              <div class="cards">
                <Card title="Signer">
                  <Facts
                    facts={[
                      ['next', count(s.next)],
                      ['floor', count(s.floor)],
                      ['held', `${count(s.held)}, of these unknown ${count(s.unknown)}`],
                      ['released', count(s.released)],
                      ['consumed', count(s.consumed)],
                      ['version', count(s.version)],
                      ['engine', s.engine ?? '–'],
                    ]}
                  />
                  <Acts acts={[floor(view, read, c?.mined)]} />
                </Card>
                <Card title="Owner">
                  <Facts
                    facts={[
                      ['node', s.owner || <Word tone="fix">none</Word>],
                      ['its URL', s.ownerUrl || '–'],
                      ['fencing token', count(s.fencingToken)],
                      ['lease ends', until(s.leaseUntil)],
                    ]}
                  />
                </Card>
                <Card title="What the chain says">
                  {!c ? (
                    <p class="muted">No chain is asked about this signer, or none has answered yet.</p>
                  ) : (
                    <Facts
                      facts={[
                        ['mined', count(c.mined)],
                        ['final', count(c.final)],
                        ['at block', count(c.head)],
                        ['window', count(c.window)],
                        ...(c.claimed !== undefined ? [['one node says', count(c.claimed)] as [string, string]] : []),
                        [
                          'gap',
                          blocks ? (
                            <Word tone="fix">
                              nonce {blocks.nonce}, noticed {ago(blocks.since)}, blocks {blocks.blocked}
                            </Word>
                          ) : (
                            <Word tone="good">none</Word>
                          ),
                        ],
                        ...(c.partial ? [['partial', 'the owner could not be asked'] as [string, string]] : []),
                      ]}
                    />
                  )}
                </Card>
                <Card title="Nonces" wide>
                  <Strip view={view} blocks={blocks?.nonce} picked={pick} pick={(n) => (chosen.value = n)} />
                  {pick !== undefined && <One view={view} nonce={pick} read={read} blocks={blocks?.nonce} />}
                </Card>
                <Card title="Nonces as a table" wide>
                  <Nonces view={view} />
                </Card>
                <Card title="Events" wide>
                  <Events signer={signer} changed={() => void feed.refresh()} first={view} />
                </Card>
              </div>
            </>
          )
        }}
      </Wait>
    </>
  )
}

/** nonces are those that are shown, by their number. */
function nonces(view: SignerView, blocks: number | undefined): ListedNonce[] {
  const all = new Map([...(view.last ?? []), ...(view.holds ?? [])].map((a) => [a.nonce, a]))
  if (blocks !== undefined && !all.has(blocks)) {
    const n = nonceOf(view, blocks)
    if (n) all.set(blocks, { nonce: n.nonce, attempt: n.attempt, status: n.status } as ListedNonce)
  }
  return [...all.values()].sort((a, b) => a.nonce - b.nonce)
}

/** The strip: a button a nonce, one stop of the keyboard; arrows go along it. */
function Strip({
  view,
  blocks,
  picked,
  pick,
}: {
  view: SignerView
  blocks: number | undefined
  picked: number | undefined
  pick: (n: number) => void
}) {
  const all = nonces(view, blocks)
  const box = useRef<HTMLDivElement>(null)
  if (!all.length) return <p class="muted">None is listed.</p>
  const stop = all.some((a) => a.nonce === picked) ? picked : all.at(-1)!.nonce
  const keys = (e: KeyboardEvent) => {
    const cells = [...box.current!.querySelectorAll<HTMLElement>('button')],
      i = cells.indexOf(document.activeElement as HTMLElement)
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: cells.length - 1 }[e.key]
    if (to === undefined || !cells[to]) return
    e.preventDefault()
    cells[to].focus()
    pick(all[to]!.nonce)
  }
  return (
    <div ref={box} class="strip" role="group" aria-label="Nonces by their state" onKeyDown={keys}>
      {all.map((a) => {
        const bad = a.nonce === blocks
        return (
          <button
            type="button"
            key={a.nonce}
            class={`cell ${a.status || 'none'}${bad ? ' gap' : ''}`}
            aria-pressed={a.nonce === picked}
            tabIndex={a.nonce === stop ? 0 : -1}
            onClick={() => pick(a.nonce)}
            aria-label={`nonce ${a.nonce}, ${bad ? 'blocks others, ' : ''}${a.status || 'never handed out'}, attempt ${a.attempt}`}
          >
            <span>{a.nonce}</span>
            <b>{bad ? '✕' : (letters[a.status] ?? '–')}</b>
          </button>
        )
      })}
    </div>
  )
}

function One({
  view,
  nonce,
  read,
  blocks,
}: {
  view: SignerView
  nonce: number
  read: () => Promise<SignerView | undefined>
  blocks: number | undefined
}) {
  const n = nonces(view, blocks).find((a) => a.nonce === nonce)
  if (!n) return null
  return (
    <div class="one">
      <h3>Nonce {n.nonce}</h3>
      <Facts
        facts={[
          [
            'state',
            <Word tone={nonce === blocks ? 'fix' : (tones[n.status] ?? 'plain')}>
              {n.status || 'never handed out'}
              {nonce === blocks ? ', blocks others' : ''}
            </Word>,
          ],
          ['attempt', count(n.attempt)],
          ['holder', n.holder ?? (view.holders ? 'none is named' : 'not shown: you have none of mark-any, repair and admin on this signer')],
          [n.status === 'UNKNOWN' ? 'decided about' : 'ends', n.heldUntil ? `${until(n.heldUntil)} (${time(n.heldUntil)})` : '–'],
          ['chain', n.chain ? `${n.chain}: ${meanings[n.chain] ?? ''}` : '–'],
          ['request', n.requestId ?? '–'],
          [written(n), ago(n.updatedAt)],
          ['hashes', <Hashes of={n} />],
          ['reason', n.reason ?? '–'],
          ...(n.reissued
            ? [
                [
                  'before',
                  `attempt ${n.reissued.attempt} ended (${n.reissued.reason})${n.reissued.txHash ? `, with ${n.reissued.txHash}` : ''}`,
                ] as [string, string],
              ]
            : []),
        ]}
      />
      <Acts acts={[release(view, n, read), consume(view, n, read), nonce === blocks ? repair(view, n, read, false) : undefined]} />
    </div>
  )
}

/** written is what the time of a nonce is about: what is open of a signer is written as one. */
const written = (n: ListedNonce): string => (n.status === 'CONSUMED' ? 'written' : 'its signer was written')

/** Closed says that a nonce does not block any more, and what became of it. */
function Closed({ gone, view }: { gone: Gone<number>; view: SignerView }) {
  const n = nonces(view, undefined).find((a) => a.nonce === gone.what)
  const by = n?.txHash ? (
    <>
      {' '}
      by transaction <code>{n.txHash}</code>
    </>
  ) : null
  return (
    <section class="findings none" role="status">
      <Word tone="good">
        <strong>
          Nonce {gone.what} blocks no more: closed at {time(gone.at)}.
        </strong>
      </Word>{' '}
      {n ? (
        <>
          It is {n.status}
          {by}
          {n.chain ? ` (${n.chain})` : ''}, attempt {n.attempt}
          {n.holder ? `, of ${n.holder}` : ''}.
        </>
      ) : (
        'It is not among the nonces that are listed here.'
      )}
    </section>
  )
}

function Hashes({ of: n }: { of: ListedNonce }) {
  const all = n.txHashes ?? (n.txHash ? [n.txHash] : [])
  return all.length ? (
    <ul class="plain">
      {all.map((h) => (
        <li>
          <code>{h}</code>
        </li>
      ))}
    </ul>
  ) : (
    <>none recorded</>
  )
}

function Nonces({ view }: { view: SignerView }) {
  return (
    <Table
      label="Nonces"
      columns={['#nonce', 'state', '#attempt', 'holder', 'request', 'ends', 'chain', 'hash or reason', 'written']}
      rows={nonces(view, undefined)
        .reverse()
        .map((a) => [
          a.nonce,
          <Word tone={tones[a.status] ?? 'plain'}>{a.status}</Word>,
          a.attempt,
          a.holder ?? '–',
          a.requestId ?? '–',
          until(a.heldUntil),
          a.chain ?? '–',
          a.txHash ? <code title={a.txHash}>{short(a.txHash)}</code> : (a.reason ?? '–'),
          ago(a.updatedAt),
        ])}
    />
  )
}

/** The events of the signer, as they happen, over the WebSocket of this page's gateway. */
function Events({ signer, changed, first }: { signer: string; changed: () => void; first: SignerView }) {
  const before = useRef({ at: Date.now(), nonces: nonces(first, undefined).reverse().slice(0, 20) }).current
  const events = useSignal<(NonceEvent | Missed)[]>([]),
    state = useSignal('connecting …')
  useEffect(() => {
    if (!seen.value) return // nothing runs in a hidden tab
    const url = `${location.origin.replace(/^http/, 'ws')}/ws`
    const gateway = new Gateway(url, {
      ...(me.value?.credential && { ticket: async () => (await post<{ ticket: string }>('wsTicket', {})).ticket }),
      onConnection: ({ connected, why }) => (state.value = connected ? 'live' : `away: ${why?.message ?? 'not connected'}`),
    })
    let timer: ReturnType<typeof setTimeout> | undefined,
      left = false
    void (async () => {
      try {
        for await (const e of await gateway.events({ signers: [signer], timeoutMs: 2 ** 31 })) {
          events.value = [e, ...events.value].slice(0, 50)
          timer ??= setTimeout(() => ((timer = undefined), changed()), 300)
        }
      } catch (e) {
        if (!left) state.value = `not live: ${(e as Error).message}`
      }
    })()
    return () => {
      left = true
      clearTimeout(timer)
      void gateway.close()
    }
  }, [signer, seen.value])
  return (
    <>
      <p role="status" aria-live="polite">
        <Word tone={state.value === 'live' ? 'good' : 'look'}>{state.value}</Word>
      </p>
      <p>
        Events are shown from {clockTime(before.at)} on, when this page was opened: the gateway keeps none. What was before is told by the
        nonces, as they were then.
      </p>
      <Table
        label="Events"
        columns={['at', 'event', '#nonce', '#attempt', 'hash or reason']}
        none="None since this page was opened."
        rows={events.value.map((e) =>
          e.type === 'missed'
            ? ['', <Word tone="look">events are missing here; the page was read anew</Word>, '', '', '']
            : [time(e.at), e.type, e.nonce, e.attempt, e.txHash ? <code title={e.txHash}>{short(e.txHash)}</code> : (e.reason ?? '–')],
        )}
      />
      {events.value.some((e) => e.type === 'external') && <p class="muted">external: {meanings['external']}.</p>}
      <h3>Before: its last nonces</h3>
      <Table
        label="Its nonces when this page was opened"
        columns={['written', 'state', '#nonce', '#attempt', 'hash or reason']}
        rows={before.nonces.map((n) => [
          n.status === 'CONSUMED' ? time(n.updatedAt) : '–',
          [n.status, n.chain].filter(Boolean).join(', '),
          n.nonce,
          n.attempt,
          n.txHash ? <code title={n.txHash}>{short(n.txHash)}</code> : (n.reason ?? '–'),
        ])}
      />
    </>
  )
}
