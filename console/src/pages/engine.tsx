import { onLogs, switchEngine } from '../acts.js'
import { useFeed } from '../feed.js'
import { ago, count } from '../format.js'
import type { Engine } from '../types.js'
import { Acts, Card, Facts, Table, Title, Wait, Word } from '../ui.js'

const means: Record<string, string> = {
  RELIABLE: 'Requests are answered from the store.',
  DUAL_WRITE: 'On the way to the performance engine: shards move to logs in Redis one after the other.',
  PERFORMANCE: 'Requests are answered from logs in Redis, and shipped to the store.',
  DRAIN_AND_SYNC: 'On the way back: the logs are shipped, and each shard is answered from the store then.',
  DEGRADED: 'Redis was lost or lost data. Shards are answered from the store; nonces in doubt are kept back for a while.',
}

export function EnginePage() {
  const feed = useFeed<Engine>('engine')
  const again = async () => (await feed.refresh(), feed.data.value)
  return (
    <>
      <Title>Engine</Title>
      <Wait feed={feed}>
        {(e) => (
          <div class="cards">
            <Card title="State">
              <p>
                <Word tone={e.state === 'DEGRADED' ? 'fix' : 'good'}>
                  <strong>{e.state}</strong>
                </Word>{' '}
                {means[e.state]}
              </p>
              <Facts
                facts={[
                  ['goal', e.goal || e.state],
                  ['generation', count(e.generation)],
                  ['changed', ago(e.changedAt)],
                  ['why', e.reason || '–'],
                  ['Redis', e.redis === 'ok' ? <Word tone="good">ok</Word> : e.redis || 'not used'],
                  ['performance', e.available ? <Word tone="good">available</Word> : <>not available: {e.why}</>],
                ]}
              />
              <Acts acts={[switchEngine(e, again), ...(e.available ? onLogs(again) : [])]} />
            </Card>
            <Card title="Shards">
              <Facts
                facts={[
                  ['all', count(e.shards)],
                  ['in logs', count(e.shardsLogged)],
                  ['logs lost', e.logsLost ? <Word tone="fix">{e.logsLost}</Word> : <Word tone="good">none</Word>],
                  ['rehearsed', count(e.shardsRehearsed)],
                  ['rehearsal', e.rehearsal || '–'],
                ]}
              />
            </Card>
            <Card title={`Logs of ${e.node}`} wide>
              <Table
                label="Logs of this node"
                columns={['#shard', 'serves', '#head', '#shipped', '#signers to ship', 'behind', 'trouble']}
                none="This node has no logs."
                rows={[...(e.logsHere ?? [])]
                  .sort((a, b) => a.shard - b.shard)
                  .map((l) => [
                    l.shard,
                    l.serves ? 'yes' : 'no',
                    count(l.head),
                    count(l.shipped),
                    count(l.unshippedSigners),
                    l.behind,
                    l.trouble ? <Word tone="fix">{l.trouble}</Word> : '–',
                  ])}
              />
            </Card>
            {!!e.rehearsingHere?.length && (
              <Card title={`Rehearsals of ${e.node}`} wide>
                <Table
                  label="Rehearsals of this node"
                  columns={['#shard', 'kept up', 'done', 'trouble']}
                  rows={e.rehearsingHere.map((r) => [
                    r.shard,
                    r.keptUp ?? '–',
                    r.done ? 'yes' : 'no',
                    r.trouble ? <Word tone="fix">{r.trouble}</Word> : '–',
                  ])}
                />
              </Card>
            )}
          </div>
        )}
      </Wait>
    </>
  )
}
