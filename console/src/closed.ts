// What was there while this page was open, and is not any more: it would vanish without a word.
import { signal } from '@preact/signals'

/** Something that was there, and when it was gone, by the gateway's clock. */
export interface Gone<T> {
  what: T
  at: number
}

/** watcher tells what is gone of what it is shown, by names; what comes back is gone no more. */
export function watcher<T>(most: number) {
  const there = new Map<string, T>()
  const gone = signal<ReadonlyMap<string, Gone<T>>>(new Map())
  /** shows says what is there now. Only names that are of the same scope are compared. */
  const show = (scope: string, now: ReadonlyMap<string, T>, at: number) => {
    const next = new Map(gone.peek())
    for (const [name, what] of there)
      if (name.startsWith(scope) && !now.has(name)) {
        there.delete(name)
        next.set(name, { what, at })
      }
    for (const [name, what] of now) {
      there.set(name, what)
      next.delete(name)
    }
    for (const name of [...next.keys()].slice(0, Math.max(0, next.size - most))) next.delete(name)
    if (next.size !== gone.peek().size || [...next.keys()].some((n) => next.get(n) !== gone.peek().get(n))) gone.value = next
  }
  return { gone, show }
}
