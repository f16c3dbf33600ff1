// Figures and times as people read them.
import { skew } from './api.js'
import { clock } from './feed.js'

/** now is the gateway's time. */
export const now = (): number => clock.value + skew.value

export const count = (n: number | undefined): string => (n === undefined ? '–' : n.toLocaleString('en'))

export const rate = (n: number | undefined): string =>
  n === undefined ? '–' : n >= 100 ? count(Math.round(n)) : n.toFixed(n >= 10 || n === 0 ? 0 : 1)

export const ms = (n: number | undefined): string =>
  n === undefined
    ? '–'
    : n >= 1000
      ? `${(n / 1000).toFixed(1)} s`
      : `${n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(n >= 10 ? 1 : 2)} ms`

/** span is a length of time in its two greatest units. */
export function span(millis: number): string {
  const s = Math.max(0, Math.round(millis / 1000))
  const d = Math.floor(s / 86400),
    h = Math.floor(s / 3600) % 24,
    m = Math.floor(s / 60) % 60
  if (d) return h ? `${d} d ${h} h` : `${d} d`
  if (h) return m ? `${h} h ${m} min` : `${h} h`
  if (m) return s % 60 ? `${m} min ${s % 60} s` : `${m} min`
  return `${s} s`
}

/** ago is how long ago something was, and until how long until it is. */
export const ago = (at: string | undefined): string => (at ? `${span(now() - Date.parse(at))} ago` : '–')
export function until(at: string | undefined): string {
  if (!at) return '–'
  const left = Date.parse(at) - now()
  return left >= 0 ? `in ${span(left)}` : `${span(-left)} ago`
}

/** time is a moment in UTC, as the logs have it. */
export const time = (at: string | number | undefined): string =>
  at
    ? new Date(at)
        .toISOString()
        .replace('T', ' ')
        .replace(/\.\d+Z$/, ' UTC')
    : '–'

export const clockTime = (at: number): string => new Date(at).toTimeString().slice(0, 8)

export const short = (s: string, most = 22): string => (s.length <= most ? s : `${s.slice(0, most - 9)}…${s.slice(-8)}`)

/** plural is a number with its noun. */
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`
