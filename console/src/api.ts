// The admin API of the gateway that served this page, and what its answers can mean.
import { signal } from '@preact/signals'
import type { Me } from './types.js'

/** What a question or an act ended with, if not with an answer. */
export type Kind =
  | 'ended' // the session: somebody has to log in again
  | 'refused' // the gateway said no, and nothing happened
  | 'stale' // it said no, because what was shown is not so any more
  | 'away' // no answer, or one that it cannot be given now; nothing happened
  | 'unknown' // an act was sent, and it is not known what became of it

export class Failure extends Error {
  constructor(
    readonly kind: Kind,
    message: string,
    readonly status = 0,
    readonly body: Record<string, unknown> = {},
  ) {
    super(message)
  }
}

/** Where the person is: before the login, in, or thrown out. */
export const phase = signal<'starting' | 'login' | 'in' | 'ended'>('starting')
/** Whose session it is. */
export const me = signal<Me | undefined>(undefined)
/** What the login or the end of a session has to say. */
export const notice = signal('')
/** The gateway's clock, less this machine's, in milliseconds. */
export const skew = signal(0)

const key = 'noncegate.session'
const waitMs = 30_000

let token = sessionStorage.getItem(key) ?? ''
/** Whether this tab has a session; without one it sees what the gateway shows to those who have no key. */
export const hasSession = signal(token !== '')

function keep(t: string): void {
  token = t
  hasSession.value = t !== ''
  if (t) sessionStorage.setItem(key, t)
  else sessionStorage.removeItem(key)
}

async function send<T>(method: 'GET' | 'POST', path: string, body: object | undefined, signal?: AbortSignal, bearer = token): Promise<T> {
  const headers: Record<string, string> = {}
  if (bearer) headers['Authorization'] = `Bearer ${bearer}`
  if (body) headers['Content-Type'] = 'application/json'
  const lost = method === 'GET' || (body as { dryRun?: boolean }).dryRun ? 'away' : 'unknown'
  let res: Response, text: string
  try {
    const limit = AbortSignal.timeout(waitMs)
    res = await fetch(`/admin/v1/${path}`, {
      method,
      headers,
      body: body ? JSON.stringify(body) : null,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    })
    text = await res.text()
  } catch (e) {
    throw new Failure(lost, (e as Error).name === 'TimeoutError' ? `no answer within ${waitMs / 1000} s` : 'the gateway does not answer')
  }
  const date = Date.parse(res.headers.get('Date') ?? '')
  if (date) skew.value = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0
  let said: Record<string, unknown> = {}
  try {
    said = JSON.parse(text)
  } catch {
    if (res.ok) throw new Failure(lost, 'the answer is no JSON', res.status)
  }
  if (res.ok) return said as T
  const error = typeof said['error'] === 'string' ? said['error'] : text.trim().slice(0, 300) || `HTTP status ${res.status}`
  throw new Failure(kindOf(res.status, said['outcome'], lost), error, res.status, said)
}

function kindOf(status: number, outcome: unknown, lost: Kind): Kind {
  if (status === 401) return 'ended'
  if (outcome === 'unknown') return lost
  if (status === 409) return 'stale'
  if (status === 429 || status === 503 || outcome === 'none') return 'away'
  return status >= 500 ? lost : 'refused'
}

/** A question or an act of somebody who is in; a session that has ended shows its page. */
async function asked<T>(method: 'GET' | 'POST', path: string, body?: object, signal?: AbortSignal): Promise<T> {
  try {
    return await send<T>(method, path, body, signal)
  } catch (e) {
    if (e instanceof Failure && e.kind === 'ended' && phase.value === 'in') end('')
    throw e
  }
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => asked('GET', path, undefined, signal)
export const post = <T>(path: string, body: object): Promise<T> => asked('POST', path, body)

/** end shows that the session is over, and what was under way. */
export function end(doing: string): void {
  keep('')
  notice.value = doing
  phase.value = 'ended'
}

/** begin finds out at the start whether this page is in: by the ticket of a link, a session that is kept, or because no key is needed. */
export async function begin(): Promise<void> {
  const ticket = /^#ticket=(.+)$/.exec(location.hash)?.[1]
  if (ticket) {
    history.replaceState(null, '', location.pathname) // it works once, and shall not be seen
    return login({ ticket }, '', 'The link was used before, or is older than a minute: run gateway console again.')
  }
  await enter(token ? 'ended' : 'login')
}

/** enter asks who this page is. */
async function enter(without: 'login' | 'ended'): Promise<void> {
  try {
    me.value = await send<Me>('GET', 'me', undefined)
    phase.value = 'in'
  } catch (e) {
    const { kind, message } = e as Failure
    if (kind === 'ended') keep('')
    notice.value = kind === 'ended' ? '' : message
    phase.value = kind === 'ended' ? without : 'login'
  }
}

/** loginBy exchanges an API key, or the admin key, for a session. */
export const loginBy = (pasted: string): Promise<void> => login({}, pasted, 'This key is not valid here.')

async function login(body: object, bearer: string, invalid: string): Promise<void> {
  try {
    const said = await send<{ token: string }>('POST', 'session', body, undefined, bearer)
    keep(said.token)
    notice.value = ''
    await enter('login')
  } catch (e) {
    const { kind, message } = e as Failure
    notice.value = kind === 'ended' ? `${invalid} (${message})` : kind === 'refused' ? message : `Not logged in: ${message}. Try again.`
    phase.value = 'login'
  }
}

/** logout ends the session at the gateway too, and shows where to log in. */
export async function logout(): Promise<void> {
  const was = token
  keep('')
  me.value = undefined
  notice.value = was ? 'You are logged out.' : ''
  phase.value = 'login'
  if (!was) return
  try {
    await send('POST', 'session/end', {}, undefined, was)
  } catch (e) {
    if ((e as Failure).kind !== 'ended')
      notice.value = `The gateway was not told (${(e as Failure).message}): the session ends there within 15 minutes.`
  }
}

const covers = (pattern: string, signer: string): boolean =>
  pattern.endsWith('*') ? signer.startsWith(pattern.slice(0, -1)) : pattern === signer

/** whyNot says why one may not do what needs a right, or '' if one may. Without a signer the right is needed on all. */
export function whyNot(right: string, signer?: string): string {
  const m = me.value
  if (!m) return 'Who you are is not known yet.'
  if (m.console === 'read') return 'This gateway runs with --console read: look only.'
  if (!m.acts) return m.why || 'Your credential has no principal: an act needs one.'
  if (m.all) return ''
  const ok = (m.rights ?? []).some(
    (r) => r.rights.includes(right) && (signer === undefined ? r.signers === '*' : covers(r.signers, signer)),
  )
  return ok ? '' : `Needs the right ${right} on ${signer === undefined ? 'all signers' : 'this signer'}.`
}
