// Questions that are asked again while somebody looks: never in a hidden tab, and at once when the tab is seen again.
import { signal, type Signal } from '@preact/signals'
import { useEffect, useMemo } from 'preact/hooks'
import { Failure, get } from './api.js'

/** How long ago news may be before what is shown is called old. */
export const oldMs = 5_000
const everyMs = 2_000

/** The time, each second, while the tab is seen. */
export const clock = signal(Date.now())
/** Whether the tab is seen. */
export const seen = signal(!document.hidden)

/** Something that is asked again and again. Of one that has no news the failure says why. */
export interface Feed<T> {
  data: Signal<T | undefined>
  failure: Signal<Failure | undefined>
  /** When the last answer came, by this machine's clock; 0: never. */
  at: Signal<number>
  /** Asks now, and waits for what comes of it. */
  refresh(): Promise<void>
}

interface Running {
  feed: Feed<unknown>
  since: number
  stop(): void
  wake(): void
}

/** The feeds of the page that is shown. */
export const running = signal<readonly Running[]>([])

document.addEventListener('visibilitychange', () => {
  seen.value = !document.hidden
  clock.value = Date.now()
  for (const r of running.value) document.hidden ? r.stop() : r.wake()
})
addEventListener('online', () => running.value.forEach((r) => r.wake()))
setInterval(() => seen.value && (clock.value = Date.now()), 1_000)

/** start asks by a function until stop is called. */
function start<T>(ask: (signal: AbortSignal) => Promise<T>, pause: number): Feed<T> & Running {
  const feed: Feed<T> = { data: signal(undefined), failure: signal(undefined), at: signal(0), refresh }
  let timer: ReturnType<typeof setTimeout> | undefined
  let under: AbortController | undefined
  async function refresh(): Promise<void> {
    clearTimeout(timer)
    under?.abort()
    const mine = (under = new AbortController())
    try {
      const data = await ask(mine.signal)
      if (mine.signal.aborted) return
      feed.data.value = data
      feed.failure.value = undefined
      feed.at.value = clock.value = Date.now()
    } catch (e) {
      if (mine.signal.aborted) return
      feed.failure.value = e instanceof Failure ? e : new Failure('away', String(e))
      if (feed.failure.value.kind === 'ended') return
    }
    if (!document.hidden) timer = setTimeout(() => void refresh(), pause)
  }
  const stop = () => (clearTimeout(timer), under?.abort())
  const running = { ...feed, feed: feed as Feed<unknown>, since: Date.now(), stop, wake: () => void refresh() }
  if (!document.hidden) void refresh()
  return running
}

/** useFeed asks by a function, anew when its name changes, while the component is shown. */
export function useAsked<T>(name: string, ask: (signal: AbortSignal) => Promise<T>, pause = everyMs): Feed<T> {
  const r = useMemo(() => start(ask, pause), [name])
  useEffect(() => {
    running.value = [...running.value, r]
    return () => {
      r.stop()
      running.value = running.value.filter((other) => other !== r)
    }
  }, [r])
  return r
}

/** useFeed asks the admin API for a path. */
export const useFeed = <T>(path: string, pause = everyMs): Feed<T> => useAsked<T>(path, (signal) => get<T>(path, signal), pause)

/** query is a path with the parameters that have a value. */
export function query(path: string, params: Record<string, string | number | boolean | undefined>): string {
  const set = Object.entries(params).filter(([, v]) => v !== undefined && v !== '' && v !== false)
  return set.length ? `${path}?${set.map(([k, v]) => `${k}=${encodeURIComponent(v!)}`).join('&')}` : path
}
