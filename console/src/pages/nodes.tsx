import { drain, moveShard } from '../acts.js'
import { me } from '../api.js'
import { useFeed } from '../feed.js'
import { ago, count, plural, time } from '../format.js'
import type { Node, Nodes, Shard, Shards } from '../types.js'
import { Acts, Card, Title, Wait, Word } from '../ui.js'
import { Windowed } from '../window.js'

const order: Record<string, number> = { silent: 0, live: 1, left: 2 }

export function NodesPage() {
  const nodes = useFeed<Nodes>('nodes'),
    shards = useFeed<Shards>('shards')
  const live = (nodes.data.value?.nodes ?? []).filter((n) => n.state === 'live').map((n) => n.node)
  const here = me.value?.node ?? ''
  return (
    <>
      <Title>Nodes and shards</Title>
      <div class="cards">
        <Card title="Nodes" wide>
          <Wait feed={nodes}>
            {(n) => {
              const all = [...(n.nodes ?? [])].sort((a, b) => (order[a.state] ?? 0) - (order[b.state] ?? 0) || a.node.localeCompare(b.node))
              const silent = all.filter((x) => x.state === 'silent').length
              return (
                <>
                  <p>
                    {silent ? (
                      <Word tone="fix">
                        {plural(silent, 'node')} silent: killed, paused, or without the store. Check {silent === 1 ? 'it' : 'them'}.
                      </Word>
                    ) : (
                      <Word tone="good">{plural(live.length, 'node')} live.</Word>
                    )}
                    {n.nodeCount > all.length && ` ${count(n.nodeCount)} in all; ${all.length} are shown.`}
                  </p>
                  <Windowed<Node>
                    label="Nodes"
                    rows={all}
                    columns={['node', 'state', '#shards', 'mode', '#starts', 'since', 'seen', 'URL', 'act']}
                    cells={(x) => [
                      x.node,
                      <Word tone={x.state === 'live' ? 'good' : x.state === 'left' ? 'plain' : 'fix'}>{x.state}</Word>,
                      count(x.shards),
                      x.mode ?? '–',
                      count(x.incarnation),
                      time(x.startedAt),
                      ago(x.seenAt),
                      x.url,
                      x.state === 'live' && x.node === here ? <Acts acts={[drain(x.node, here)]} /> : null,
                    ]}
                  />
                  <p class="muted">A node drains from its own console: this one is that of {here}.</p>
                </>
              )
            }}
          </Wait>
        </Card>
        <Card title="Shards" wide>
          <Wait feed={shards}>
            {(s) => {
              const all = s.shards ?? [],
                free = all.filter((x) => !x.owner).length
              const again = (id: number) => async () => (await shards.refresh(), shards.data.value?.shards?.find((x) => x.id === id))
              return (
                <>
                  <p>
                    {free ? (
                      <Word tone="fix">
                        {plural(free, 'shard')} without an owner. It lasts a second or two after a node died; else the log of a node has
                        what the store refuses.
                      </Word>
                    ) : (
                      <Word tone="good">Each shard has an owner.</Word>
                    )}
                  </p>
                  <Windowed<Shard>
                    label="Shards"
                    rows={[...all].sort((a, b) => Number(!!a.owner) - Number(!!b.owner) || a.id - b.id)}
                    columns={['#shard', 'owner', '#fencing token', 'should have it', 'pinned to', '#stopped signers', 'act']}
                    cells={(x) => [
                      x.id,
                      x.owner || <Word tone="fix">none</Word>,
                      count(x.token),
                      x.preferred || '–',
                      x.pinned || '–',
                      x.stopped ? <Word tone="fix">{x.stopped}</Word> : count(0),
                      <Acts acts={[moveShard(x, live, again(x.id))]} />,
                    ]}
                  />
                </>
              )
            }}
          </Wait>
        </Card>
      </div>
    </>
  )
}
