import { useSignal } from '@preact/signals'
import { useRef } from 'preact/hooks'
import { cancelJob, floors, releaseUnknown } from '../acts.js'
import { get } from '../api.js'
import { query, useAsked, useFeed } from '../feed.js'
import { ago, count } from '../format.js'
import type { Job, JobOutcome } from '../types.js'
import { Acts, Card, Filled, SignerLink, Table, Title, Wait, Word } from '../ui.js'
import { Windowed } from '../window.js'

export function Jobs() {
  const feed = useFeed<{ jobs?: Job[] }>('jobs')
  const chosen = useSignal('')
  const kept = feed.data.value?.jobs?.some((j) => j.id === chosen.value)
  return (
    <>
      <Title>Jobs</Title>
      <p>What is done to many at once, by the node that answers: one job at a time, each part with an outcome of its own.</p>
      <Acts acts={[releaseUnknown('', feed.refresh), floors(feed.refresh)]} />
      <Wait feed={feed}>
        {(j) => (
          <Table
            label="Jobs"
            columns={['job', 'what', 'by', 'reason', 'began', 'progress', '#done', '#failed', '#left', 'act']}
            none="None since this node began."
            rows={(j.jobs ?? []).map((x) => [
              <button type="button" aria-pressed={chosen.value === x.id} onClick={() => (chosen.value = x.id)}>
                {x.id}
              </button>,
              x.kind,
              x.principal || '–',
              x.reason || '–',
              ago(x.startedAt),
              <Filled share={x.count ? (x.done + x.failed) / x.count : 1} label={`job ${x.id}`} />,
              count(x.done),
              x.failed ? <Word tone="fix">{count(x.failed)}</Word> : '0',
              count(x.left),
              x.state === 'running' ? <Acts acts={[cancelJob(x.id, feed.refresh)]} /> : [x.state, x.why].filter(Boolean).join(': '),
            ])}
          />
        )}
      </Wait>
      {chosen.value &&
        (kept ? (
          <Outcomes id={chosen.value} />
        ) : (
          <p class="note">The node does not keep job {chosen.value} any more: it keeps the last 10. What it did is in the audit.</p>
        ))}
    </>
  )
}

function Outcomes({ id }: { id: string }) {
  const have = useRef<{ id: string; outcomes: JobOutcome[] }>({ id, outcomes: [] })
  const feed = useAsked(id, async (signal) => {
    if (have.current.id !== id) have.current = { id, outcomes: [] }
    const { outcomes } = await get<{ outcomes: JobOutcome[] }>(query('job', { id, after: have.current.outcomes.length }), signal)
    return (have.current = { id, outcomes: [...have.current.outcomes, ...outcomes] }).outcomes
  })
  return (
    <Card title={`Outcomes of job ${id}`} wide>
      <Wait feed={feed}>
        {(o) => (
          <Windowed<JobOutcome>
            label="Outcomes"
            rows={o}
            columns={['signer', '#nonce or floor', 'outcome', 'error']}
            cells={(x) => [
              <SignerLink signer={x.signer} />,
              x.nonce ?? x.floor ?? '–',
              <Word tone={x.outcome === 'done' || x.outcome === 'consumed' ? 'good' : x.outcome === 'unknown' ? 'look' : 'fix'}>
                {x.outcome}
              </Word>,
              x.error || '–',
            ]}
          />
        )}
      </Wait>
    </Card>
  )
}
