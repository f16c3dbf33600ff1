// What pages are made of.
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'
import type { Feed } from './feed.js'
import { query } from './feed.js'
import { logout, me } from './api.js'
import { openAct, type Act } from './dialog.js'

/** link is the address of a page. */
export const link = (page: string, params: Record<string, string | number | boolean | undefined> = {}): string => `#/${query(page, params)}`

export const SignerLink = ({ signer }: { signer: string }) => (
  <a class="mono" href={link('signer', { signer })}>
    {signer}
  </a>
)

/** A page's heading takes the focus when the page comes, so that a screen reader says it. */
export function Title({ children }: { children: ComponentChildren }) {
  const h = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${h.current!.textContent} – Noncegate`
    h.current!.focus({ preventScroll: true })
  }, [])
  return (
    <h1 ref={h} tabIndex={-1}>
      {children}
    </h1>
  )
}

export function Card({ title, children, wide }: { title: string; children: ComponentChildren; wide?: boolean }) {
  const id = useId()
  return (
    <section class={wide ? 'card wide' : 'card'} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  )
}

export type Tone = 'good' | 'look' | 'fix' | 'plain'
const marks: Record<Tone, string> = { good: '✓', look: '!', fix: '✕', plain: '·' }

/** A word with a sign, so that its colour is not all that tells. */
export const Word = ({ tone, children }: { tone: Tone; children: ComponentChildren }) => (
  <span class={`word ${tone}`}>
    <span aria-hidden="true">{marks[tone]} </span>
    {children}
  </span>
)

export type Cell = ComponentChildren
/** A table that scrolls by itself, with the keyboard too. Columns that begin with # have numbers. */
export function Table({ label, columns, rows, none }: { label: string; columns: string[]; rows: Cell[][]; none?: string }) {
  if (!rows.length) return <p class="muted">{none ?? 'None.'}</p>
  const number = columns.map((c) => c.startsWith('#'))
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((c, i) => (
              <th scope="col" class={number[i] ? 'num' : ''}>
                {c.replace('#', '')}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((cell, i) => (
                <td class={number[i] ? 'num' : ''}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

export function Facts({ facts }: { facts: [string, Cell][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

/** A line of the last minutes; what it says is in the table beside it. */
export function Spark({ points, label }: { points: readonly number[]; label: string }) {
  const w = 120,
    h = 26,
    top = Math.max(...points, 1e-9)
  const at = (v: number, i: number) =>
    `${((i / Math.max(points.length - 1, 1)) * w).toFixed(1)},${(h - 1 - (v / top) * (h - 2)).toFixed(1)}`
  return (
    <svg class="spark" viewBox={`0 0 ${w} ${h}`} role="img" aria-label={label}>
      <polyline points={points.map(at).join(' ')} />
    </svg>
  )
}

/** Filled says how full something is. */
export const Filled = ({ share, label }: { share: number; label: string }) => (
  <meter min={0} max={1} high={0.8} value={share} aria-label={label}>
    {Math.round(share * 100)} %
  </meter>
)

/** Buttons of acts. One that the rights forbid stays in the way of the keyboard, and says why. */
export function Acts({ acts }: { acts: (Act | undefined)[] }) {
  const id = useId()
  const here = acts.filter((a) => a !== undefined)
  const reasons = [...new Set(here.map((a) => a.whyNot).filter(Boolean))]
  if (!here.length) return null
  return (
    <div class="acts">
      {here.map((a) => (
        <button
          type="button"
          aria-disabled={a.whyNot ? 'true' : undefined}
          aria-describedby={a.whyNot ? `${id}${reasons.indexOf(a.whyNot)}` : undefined}
          onClick={() => a.whyNot || openAct(a)}
        >
          {a.name}
        </button>
      ))}
      {reasons.map((r, i) => (
        <span class="muted" id={`${id}${i}`}>
          {r}
        </span>
      ))}
      {me.value?.acts === false && me.value.console !== 'read' && (
        <button type="button" class="act" onClick={() => void logout()}>
          Log in with an API key to act
        </button>
      )}
    </div>
  )
}

/** Wait shows a page once there is something to show, and until then why there is nothing. */
export function Wait<T>({ feed, children }: { feed: Feed<T>; children: (data: T) => ComponentChildren }) {
  const data = feed.data.value,
    failure = feed.failure.value
  if (data !== undefined) return <>{children(data)}</>
  if (!failure) return <p class="muted">Asking the gateway …</p>
  const refused = failure.kind === 'refused' || failure.kind === 'stale'
  return (
    <p class="note" role="alert">
      {refused ? `The gateway refuses this page: ${failure.message}` : `Not known: ${failure.message}. It is asked again.`}
    </p>
  )
}

export function Field({
  label,
  hint,
  children,
}: {
  label: string
  hint?: string | undefined
  children: (id: string, hintId: string | undefined) => JSX.Element
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hint ? `${id}h` : undefined)}
      {hint && <small id={`${id}h`}>{hint}</small>}
    </div>
  )
}
