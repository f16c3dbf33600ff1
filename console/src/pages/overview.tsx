import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { useFeed } from '../feed.js'
import { watcher } from '../closed.js'
import { ago, count, ms, now, plural, rate, span, time, until } from '../format.js'
import type { Finding, Nodes, Overview, Reach, Shards, Stage } from '../types.js'
import { Card, Facts, Filled, SignerLink, Spark, Table, Title, Wait, Word, link } from '../ui.js'

const none: Finding[] = []
const kept = 60 // points of a line, one each look
/** What was seen of the stages since this page was opened first. */
const past = signal<{ at: string; stages: Map<string, Stage> }[]>([])

const names: Record<string, string> = {
  admission: 'admission',
  worker: 'worker queue',
  commit: 'commit',
  encode: 'encode',
  postDb: 'after the commit',
  write: 'write',
}

export function OverviewPage() {
  const feed = useFeed<Overview>('overview')
  const nodes = useFeed<Nodes>('nodes')
  const shards = useFeed<Shards>('shards', 4_000)
  const o = feed.data.value
  useEffect(() => {
    if (!o || past.peek().at(-1)?.at === o.asOf) return
    past.value = [...past.peek(), { at: o.asOf, stages: new Map((o.stages ?? []).map((s) => [s.name, s])) }].slice(-kept)
  }, [o])
  return (
    <>
      <Title>First look</Title>
      <Wait feed={feed}>
        {(o) => (
          <>
            <Findings findings={o.findings ?? none} />
            <div class="cards">
              <Card title="Gateway">
                <Facts
                  facts={[
                    [
                      'engine',
                      <>
                        <Word tone={o.engine.state === 'DEGRADED' ? 'fix' : 'good'}>{o.engine.state.toLowerCase()}</Word>{' '}
                        <a href={link('engine')}>(its state)</a>
                      </>,
                    ],
                    ...(o.engine.goal && o.engine.goal !== o.engine.state
                      ? [['its goal', o.engine.goal.toLowerCase()] as [string, string]]
                      : []),
                    ['mode', o.mode],
                    ['node', o.node],
                    ['up for', span(o.uptimeMs)],
                    ['connections', `${count(o.connections.open)} of ${count(o.connections.max)}`],
                  ]}
                />
              </Card>
              <Card title="What it stands on">
                <Facts
                  facts={[
                    [o.store.kind || 'store', <Reached of={o.store} />],
                    ['Redis', o.redis ? <Reached of={o.redis} /> : 'not used'],
                  ]}
                />
              </Card>
              <Card title="Nodes">
                <Wait feed={nodes}>
                  {(n) => (
                    <>
                      <Table
                        label="Nodes"
                        columns={['node', 'state', '#shards', 'seen']}
                        rows={[...(n.nodes ?? [])]
                          .sort((a, b) => Number(b.state === 'silent') - Number(a.state === 'silent'))
                          .slice(0, 8)
                          .map((x) => [
                            x.node,
                            <Word tone={x.state === 'live' ? 'good' : x.state === 'left' ? 'plain' : 'fix'}>{x.state}</Word>,
                            x.shards,
                            ago(x.seenAt),
                          ])}
                      />
                      <p>
                        <a href={link('nodes')}>
                          {n.nodeCount > 8 ? `All ${plural(n.nodeCount, 'node')} and their shards` : 'Nodes and shards'}
                        </a>
                      </p>
                    </>
                  )}
                </Wait>
                <Wait feed={shards}>{(s) => <Owned shards={s} />}</Wait>
              </Card>
              <Card title="Stages of a request" wide>
                <Stages stages={o.stages ?? []} />
              </Card>
              <Card title="Refusals">
                <Table
                  label="Refusals by reason"
                  columns={['reason', '#per s', '#since the start']}
                  none="None since the start."
                  rows={(o.refusals ?? []).map((r) => [[r.reason, r.stage].filter(Boolean).join(', stage '), rate(r.perS), count(r.total)])}
                />
              </Card>
              <Card title="Slow clients">
                <p>
                  {o.connections.slow ? (
                    <Word tone="look">{plural(o.connections.slow, 'connection')} read too slowly.</Word>
                  ) : (
                    <Word tone="good">None.</Word>
                  )}
                </p>
                {!!o.slowClients?.length && (
                  <Table
                    label="Slow clients"
                    columns={['principal', 'address', '#bytes waiting', 'read from']}
                    rows={o.slowClients.map((c) => [c.principal || '–', c.remote, count(c.queuedBytes), c.paused ? 'paused' : 'yes'])}
                  />
                )}
              </Card>
              <Card title="Chains">
                <Table
                  label="Nodes of chains"
                  columns={['chain', 'node', 'state', '#head', '#behind']}
                  none="No chain is asked (--chain)."
                  rows={(o.chains ?? []).flatMap((c) =>
                    (c.nodes ?? []).map((n) => [
                      c.chain,
                      n.name,
                      n.up ? (
                        <Word tone={n.lagBlocks ? 'look' : 'good'}>up</Word>
                      ) : (
                        <Word tone="fix">
                          down{n.backingOffUntil ? `, asked again ${until(n.backingOffUntil)}` : ''}
                          {n.error ? `: ${n.error}` : ''}
                        </Word>
                      ),
                      count(n.head),
                      count(n.lagBlocks),
                    ]),
                  )}
                />
              </Card>
            </div>
          </>
        )}
      </Wait>
    </>
  )
}

/** What was found while this page was open, and is not any more. */
const gone = watcher<Finding>(5)

const ended = (s: string): string => (/[.!?]$/.test(s) ? s : `${s}.`)

/** What needs a person, the worst first. */
function Findings({ findings }: { findings: Finding[] }) {
  useEffect(() => {
    const all = new Map(findings.map((f) => [f.id, f]))
    if (!findings.some((f) => f.id.startsWith('unread-'))) gone.show('', all, now())
  }, [findings])
  const sorted = [...findings].sort((a, b) => Number(b.severity === 'fix') - Number(a.severity === 'fix'))
  return (
    <section class={`findings ${sorted[0]?.severity ?? 'none'}`} aria-labelledby="needs">
      <h2 id="needs">{sorted.length ? `${plural(sorted.length, 'thing')} to look at` : 'Nothing needs a person'}</h2>
      {!!sorted.length && (
        <ul>
          {sorted.map((f) => (
            <li key={f.id}>
              <Word tone={f.severity}>
                <strong>{ended(f.what)}</strong>
              </Word>{' '}
              {ended(f.why)} <em>{ended(f.do)}</em>{' '}
              {f.signer ? <SignerLink signer={f.signer} /> : f.page ? <a href={link(f.page)}>{f.page.split('?')[0]}</a> : null}
            </li>
          ))}
        </ul>
      )}
      {!!gone.gone.value.size && (
        <>
          <h3>No longer so</h3>
          <ul>
            {[...gone.gone.value.values()].reverse().map(({ what: f, at }) => (
              <li key={f.id}>
                <Word tone="good">seen to be gone at {time(at)}:</Word> {ended(f.what)} {f.signer && <SignerLink signer={f.signer} />}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  )
}

function Reached({ of }: { of: Reach }) {
  return of.ok ? (
    <>
      <Word tone="good">answers</Word>
      {of.latencyMs !== undefined && ` in ${of.latencyMs < 1 ? 'less than 1 ms' : ms(of.latencyMs)}`}
    </>
  ) : (
    <Word tone="fix">{of.error || 'does not answer'}</Word>
  )
}

function Owned({ shards }: { shards: Shards }) {
  const all = shards.shards ?? [],
    free = all.filter((s) => !s.owner).map((s) => s.id)
  if (!all.length) return null
  return (
    <p>
      {free.length ? (
        <Word tone="fix">
          {plural(free.length, 'shard')} without an owner: {free.slice(0, 12).join(', ')}
        </Word>
      ) : (
        <Word tone="good">All {plural(all.length, 'shard')} have an owner.</Word>
      )}
    </p>
  )
}

function Stages({ stages }: { stages: Stage[] }) {
  const series = (name: string, of: (s: Stage) => number) =>
    past.value.map((p) => {
      const s = p.stages.get(name)
      return s ? of(s) : 0
    })
  return (
    <Table
      label="Stages of a request"
      columns={['stage', '#per s', 'rate before', '#p50', '#p99', 'p99 before', 'full']}
      rows={stages.map((s) => [
        names[s.name] ?? s.name,
        rate(s.ratePerS),
        <Spark points={series(s.name, (x) => x.ratePerS)} label={`rate of ${s.name} while this page was open`} />,
        ms(s.p50Ms),
        ms(s.p99Ms),
        <Spark points={series(s.name, (x) => x.p99Ms)} label={`p99 of ${s.name} while this page was open`} />,
        s.capacity ? (
          <>
            <Filled share={(s.fill ?? 0) / s.capacity} label={`${s.name}: ${s.fill ?? 0} of ${s.capacity}`} /> {count(s.fill ?? 0)} of{' '}
            {count(s.capacity)}
          </>
        ) : (
          '–'
        ),
      ])}
    />
  )
}
