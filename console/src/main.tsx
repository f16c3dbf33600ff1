// The console: who is in, which page is shown, and how old its news are.
import { signal } from '@preact/signals'
import { render, type FunctionComponent } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { begin, hasSession, loginBy, logout, me, notice, phase } from './api.js'
import { DialogHost } from './dialog.js'
import { clock, oldMs, running } from './feed.js'
import { clockTime, span } from './format.js'
import { Audit } from './pages/audit.js'
import { EnginePage } from './pages/engine.js'
import { Jobs } from './pages/jobs.js'
import { Keys } from './pages/keys.js'
import { NodesPage } from './pages/nodes.js'
import { OverviewPage } from './pages/overview.js'
import { SettingsPage } from './pages/settings.js'
import { SignerPage } from './pages/signer.js'
import { Signers } from './pages/signers.js'
import { Field, Title } from './ui.js'

type Page = FunctionComponent<{ params: URLSearchParams }>

const pages: [path: string, name: string, page: Page][] = [
  ['', 'First look', OverviewPage],
  ['signers', 'Signers', Signers],
  ['nodes', 'Nodes and shards', NodesPage],
  ['engine', 'Engine', EnginePage],
  ['keys', 'Keys and principals', Keys],
  ['jobs', 'Jobs', Jobs],
  ['audit', 'Audit', Audit],
  ['settings', 'Settings', SettingsPage],
]

const place = signal(location.hash)
addEventListener('hashchange', () => (place.value = location.hash))

function App() {
  if (phase.value === 'starting')
    return (
      <main>
        <p class="muted">Asking the gateway who you are …</p>
      </main>
    )
  if (phase.value !== 'in') return <Login />
  const [, path = '', search = ''] = /^#\/([^?]*)\??(.*)$/.exec(place.value) ?? []
  const Shown = path === 'signer' ? SignerPage : pages.find(([p]) => p === path)?.[2]
  return (
    <>
      <header>
        <button type="button" class="skip" onClick={() => document.querySelector('h1')?.focus()}>
          Skip to the page
        </button>
        <strong>Noncegate</strong>
        <span class="muted">
          {me.value?.node} {me.value?.version}
        </span>
        <Freshness />
        <span class="who">{standing()}</span>
        <button type="button" onClick={() => void logout()}>
          {hasSession.value ? 'Log out' : 'Log in with a key'}
        </button>
      </header>
      <nav aria-label="Pages">
        <ul>
          {pages.map(([p, name]) => (
            <li>
              <a href={`#/${p}`} aria-current={p === path || (p === 'signers' && path === 'signer') ? 'page' : undefined}>
                {name}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main key={place.value} class={age() ? 'old' : ''}>
        {Shown ? <Shown params={new URLSearchParams(search)} /> : <Title>There is no such page</Title>}
      </main>
      <DialogHost />
    </>
  )
}

/** standing is what this person may do here, in a sentence. */
function standing(): string {
  const m = me.value
  if (!m) return ''
  const name = m.principal || (hasSession.value ? m.credential : '')
  if (m.console === 'read') return `${name ? `${name}: you` : 'You'} may look only (--console read).`
  if (m.all) return 'This gateway asks for no names: you may look, and do every act.'
  if (!m.acts) return hasSession.value ? `${name}: it has no principal, so you may look only.` : 'Without a key you may look only; an act needs an API key.'
  return `You act as ${name}, by its rights.`
}

/** age is how long the page is without news, where that is too long; else 0. */
function age(): number {
  const oldest = Math.min(...running.value.map((r) => r.feed.at.value || r.since))
  const ms = clock.value - oldest
  return running.value.length && ms > oldMs ? ms : 0
}

function Freshness() {
  const old = age(),
    at = Math.min(...running.value.map((r) => r.feed.at.value))
  const why = running.value.map((r) => r.feed.failure.value).find((f) => f)
  return (
    <>
      <span class="muted">{at && running.value.length ? `as of ${clockTime(at)}` : ''}</span>
      <span role="status" aria-live="polite" class={old ? 'old-news' : ''}>
        {old ? `No news for more than 5 s${why ? `: ${why.message}` : ''}. ` : ''}
        {old ? <span aria-hidden="true">({span(old)})</span> : null}
      </span>
    </>
  )
}

function Login() {
  const ended = phase.value === 'ended'
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => field.current!.focus(), [])
  const submit = (e: Event) => {
    e.preventDefault()
    const pasted = field.current!.value.trim()
    field.current!.value = ''
    if (pasted) void loginBy(pasted)
  }
  return (
    <main class="login" key={phase.value}>
      <Title>{ended ? 'Your session ended' : 'Noncegate'}</Title>
      {ended && <p>It was not used for 15 minutes, was ended elsewhere, or its key was revoked. Nothing of it is kept here.</p>}
      <p role="alert">{notice.value}</p>
      <p>
        With an API key you may look and act as far as the rights of its principal go. The admin key has no principal, so with it you may
        look only. Without a key you see only what the gateway shows to everyone at this address.
      </p>
      <p>
        Paste a key, or run <code>gateway console</code> where you have one, and open the link that it prints.
      </p>
      <form onSubmit={submit}>
        <Field label="API key or admin key" hint="It is exchanged for a session of this tab at once, and not kept.">
          {(id, hint) => <input id={id} aria-describedby={hint} ref={field} type="password" autocomplete="off" />}
        </Field>
        <div class="acts">
          <button type="submit" class="act">
            Log in
          </button>
        </div>
      </form>
    </main>
  )
}

function Root() {
  useEffect(() => void begin(), [])
  return <App />
}

render(<Root />, document.getElementById('app')!)
