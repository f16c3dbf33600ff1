import { createKey, releaseUnknown, revokeKey } from '../acts.js'
import { useFeed } from '../feed.js'
import { ago, count, until } from '../format.js'
import type { Key, Principal } from '../types.js'
import { Acts, Card, Table, Title, Wait, Word } from '../ui.js'

const soonMs = 7 * 86_400_000

function state(k: Key) {
  const left = k.expiresAt ? Date.parse(k.expiresAt) - Date.now() : Infinity
  if (k.state === 'revoked') return <Word tone="plain">revoked {ago(k.revokedAt)}</Word>
  if (k.state === 'expired') return <Word tone="plain">ended {ago(k.expiresAt)}</Word>
  return left < soonMs ? (
    <Word tone="look">ends {until(k.expiresAt)}</Word>
  ) : (
    <Word tone="good">{k.expiresAt ? `ends ${until(k.expiresAt)}` : 'does not end'}</Word>
  )
}

const quota = (q: Record<string, number> | undefined): string =>
  Object.entries(q ?? {})
    .filter(([, v]) => v)
    .map(([k, v]) => `${k} ${count(v)}`)
    .join(', ') || 'no limit'

const rights = (p: Principal): string => (p.rights ?? []).map((r) => `${r.rights.join(', ')} on ${r.signers}`).join('; ') || 'none'

export function Keys() {
  const keys = useFeed<{ keys?: Key[] }>('keys', 4_000),
    principals = useFeed<{ principals?: Principal[] }>('principals', 4_000)
  return (
    <>
      <Title>Keys and principals</Title>
      <div class="cards">
        <Card title="Principals" wide>
          <Wait feed={principals}>
            {(p) => (
              <Table
                label="Principals"
                columns={['principal', '#connections', '#holds', '#keys', 'rights', 'quota', 'last seen', 'act']}
                none="No client says who it is (--rights)."
                rows={(p.principals ?? []).map((x) => [
                  x.principal,
                  count(x.connections),
                  count(x.holds),
                  count(x.keys),
                  rights(x),
                  quota(x.quota),
                  ago(x.lastSeenAt),
                  <Acts acts={[releaseUnknown(x.principal, principals.refresh)]} />,
                ])}
              />
            )}
          </Wait>
        </Card>
        <Card title="API keys" wide>
          <Acts acts={[createKey(keys.refresh)]} />
          <Wait feed={keys}>
            {(k) => (
              <Table
                label="API keys"
                columns={['id', 'principal', 'state', 'made', 'last used', 'act']}
                none="The store has no keys."
                rows={(k.keys ?? []).map((x) => [
                  <code>{x.id}</code>,
                  x.principal,
                  state(x),
                  ago(x.createdAt),
                  ago(x.lastUsedAt),
                  x.state !== 'live' ? null : <Acts acts={[revokeKey(x, keys.refresh)]} />,
                ])}
              />
            )}
          </Wait>
        </Card>
      </div>
    </>
  )
}
