import { useSignal } from '@preact/signals'
import { useRef } from 'preact/hooks'
import { get } from '../api.js'
import { query, useAsked } from '../feed.js'
import { ago, count, plural, until } from '../format.js'
import type { SignerPage, SignerRow } from '../types.js'
import { Field, SignerLink, Title, Wait, Word, link, type Tone } from '../ui.js'
import { Windowed } from '../window.js'

const filters: [string, string][] = [
  ['all', 'by name'],
  ['gap', 'a nonce blocks others'],
  ['unknown', 'holds whose use is unknown'],
  ['overdue', 'holds that are over, and not ended'],
  ['repeated', 'a nonce that comes back again and again'],
  ['stopped', 'nothing is handed out: they need a floor'],
]
const pageSize = 500
const most = 100_000

/** notes is what stands out about a signer, the worst first. */
export function notes(r: SignerRow): [Tone, string][] {
  const n: [Tone, string][] = []
  if (r.stopped) n.push(['fix', 'stopped: it needs a floor'])
  if (r.unreadable) n.push(['fix', 'its row cannot be read'])
  if (r.gap !== undefined)
    n.push([
      'fix',
      r.trouble === 'stuck' ? `nonce ${r.gap} is stuck` : r.trouble === 'dropped' ? `nonce ${r.gap} is lost` : `nonce ${r.gap} blocks it`,
    ])
  if (r.unknown) n.push(['look', `${r.unknown} unknown`])
  if (r.lowestReleased !== undefined && r.gap === undefined && r.lowestReleased < r.next - 1)
    n.push(['look', `nonce ${r.lowestReleased} is free below others`])
  if ((r.maxAttempt ?? 0) >= 3) n.push(['look', `attempt ${r.maxAttempt}`])
  return n
}

export function Signers({ params }: { params: URLSearchParams }) {
  const prefix = useSignal(params.get('prefix') ?? ''),
    filter = useSignal(params.get('filter') ?? 'all')
  const pages = useRef<SignerPage[]>([])
  const at = useRef({ from: 0, to: 0 })
  const set = () => {
    pages.current = []
    history.replaceState(null, '', link('signers', { prefix: prefix.value, filter: filter.value === 'all' ? '' : filter.value }))
  }
  const load = (after: SignerPage | undefined, signal: AbortSignal) =>
    get<SignerPage>(
      query('signers', {
        filter: filter.value,
        prefix: prefix.value,
        limit: pageSize,
        after: after?.next,
        others: after?.others,
      }),
      signal,
    )
  // Each look reads what is seen anew, and further pages while they are missing for what is seen.
  const feed = useAsked(
    `${filter.value} ${prefix.value}`,
    async (signal) => {
      const have = [...pages.current]
      let row = 0,
        before: SignerPage | undefined
      for (let i = 0; row <= at.current.to + pageSize && row < most; i++) {
        if (i > 0 && !before?.next) {
          have.length = i
          break
        }
        const old = have[i],
          end = row + (old?.signers?.length ?? 0)
        if (!old || (row <= at.current.to && end >= at.current.from)) have[i] = await load(before, signal)
        before = have[i]
        row += before?.signers?.length ?? 0
      }
      pages.current = have
      return have.flatMap((p) => p.signers ?? [])
    },
    3_000,
  )
  const near = (from: number, to: number) => {
    at.current = { from, to }
    const rows = feed.data.value?.length ?? 0
    if (to > rows - pageSize / 2 && pages.current.at(-1)?.next) void feed.refresh()
  }
  const more = !!pages.current.at(-1)?.next
  return (
    <>
      <Title>Signers</Title>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Field label="Name begins with">
          {(id) => (
            <input
              id={id}
              class="mono"
              type="search"
              autocomplete="off"
              spellcheck={false}
              value={prefix.value}
              onInput={(e) => {
                prefix.value = e.currentTarget.value.trim()
                set()
              }}
            />
          )}
        </Field>
        <Field label="Which">
          {(id) => (
            <select
              id={id}
              value={filter.value}
              onChange={(e) => {
                filter.value = e.currentTarget.value
                set()
              }}
            >
              {filters.map(([f, what]) => (
                <option value={f}>
                  {`${what} (${f})`}
                </option>
              ))}
            </select>
          )}
        </Field>
      </form>
      <Wait feed={feed}>
        {(rows) => (
          <>
            <p role="status">
              {rows.length ? `${plural(rows.length, 'signer')}${more ? ', and more as you scroll' : ''}.` : 'No signer is like that.'}
            </p>
            {!!rows.length && (
              <Windowed
                label="Signers"
                columns={[
                  'signer',
                  'stands out',
                  '#next',
                  '#floor',
                  '#mined',
                  '#held',
                  '#unknown',
                  '#released',
                  'first hold ends',
                  'owner',
                ]}
                rows={rows}
                near={near}
                cells={(r) => [
                  <SignerLink signer={r.signer} />,
                  <>
                    {notes(r).map(([tone, text]) => (
                      <Word tone={tone}>{text} </Word>
                    ))}
                    {r.since && <span class="muted">{ago(r.since)}</span>}
                  </>,
                  count(r.next),
                  count(r.floor),
                  count(r.mined),
                  count(r.held),
                  count(r.unknown),
                  count(r.released),
                  until(r.oldestHold),
                  r.owner || '–',
                ]}
              />
            )}
          </>
        )}
      </Wait>
    </>
  )
}
