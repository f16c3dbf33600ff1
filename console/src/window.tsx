// A long table of which only the rows that are seen are in the page.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Cell } from './ui.js'

const rowPx = 30 // as console.css has it
const beyond = 10

/** Windowed shows rows of one height. near is told which rows are seen. */
export function Windowed<T>({
  label,
  columns,
  rows,
  cells,
  near,
  total,
  children,
}: {
  label: string
  columns: string[]
  rows: readonly T[]
  cells: (row: T) => Cell[]
  near?: (from: number, to: number) => void
  /** How many there are, where some are not here yet. */
  total?: number | undefined
  children?: ComponentChildren
}) {
  const box = useRef<HTMLDivElement>(null)
  const [from, setFrom] = useState(0)
  const [seen, setSeen] = useState(30)
  useEffect(() => {
    const el = box.current!,
      o = new ResizeObserver(() => setSeen(Math.ceil(el.clientHeight / rowPx) + 1))
    o.observe(el)
    return () => o.disconnect()
  }, [])
  const first = Math.max(0, Math.min(from, rows.length - 1) - beyond),
    last = Math.min(rows.length, from + seen + beyond)
  useEffect(() => near?.(from, Math.min(rows.length, from + seen)), [from, seen, rows.length])
  const number = columns.map((c) => c.startsWith('#'))
  return (
    <div
      ref={box}
      class="scroll window"
      tabIndex={0}
      role="group"
      aria-label={label}
      onScroll={(e) => setFrom(Math.floor(e.currentTarget.scrollTop / rowPx))}
    >
      <table aria-rowcount={(total ?? rows.length) + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((c, i) => (
              <th scope="col" class={number[i] ? 'num' : ''}>
                {c.replace('#', '')}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && (
            <tr aria-hidden="true">
              <td colSpan={columns.length} class="gap" style={{ height: `${first * rowPx}px` }} />
            </tr>
          )}
          {rows.slice(first, last).map((row, i) => (
            <tr key={first + i} aria-rowindex={first + i + 2}>
              {cells(row).map((c, j) => (
                <td class={number[j] ? 'num' : ''}>{c}</td>
              ))}
            </tr>
          ))}
          {last < rows.length && (
            <tr aria-hidden="true">
              <td colSpan={columns.length} class="gap" style={{ height: `${(rows.length - last) * rowPx}px` }} />
            </tr>
          )}
        </tbody>
      </table>
      {children}
    </div>
  )
}
