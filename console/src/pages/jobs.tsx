import { useSignal } from '@preact/signals'
import { cancelJob, floors, releaseUnknown } from '../acts.js'
import { query, useFeed } from '../feed.js'
import { ago, count } from '../format.js'
import type { Job, JobOutcome } from '../types.js'
import { Acts, Card, Filled, SignerLink, Table, Title, Wait, Word } from '../ui.js'
import { Windowed } from '../window.js'

export function Jobs() {
  const feed = useFeed<{ jobs?: Job[] }>('jobs')
  const chosen = useSignal('')
  return (
    <>
      <Title>Jobs</Title>
      <p>What is done to many at once, by the node that answers: one job at a time, each part with an outcome of its own.</p>
      <Acts acts={[releaseUnknown('', feed.refresh), floors(feed.refresh)]} />
      <Wait feed={feed}>{(j) => <Table label="Jobs" columns={['job', 'what', 'of', 'reason', 'began', 'progress', '#done', '#failed', '#left', 'act']} none="None since this node began."
        rows={(j.jobs ?? []).map((x) => [
          <button type="button" aria-pressed={chosen.value === x.id} onClick={() => (chosen.value = x.id)}>{x.id}</button>, x.kind, x.principal || '–', x.reason || '–', ago(x.startedAt),
          <Filled share={x.count ? (x.done + x.failed) / x.count : 1} label={`job ${x.id}`} />, count(x.done), x.failed ? <Word tone="fix">{count(x.failed)}</Word> : '0', count(x.left),
          x.left && !x.cancelled && !x.endedAt ? <Acts acts={[cancelJob(x.id, feed.refresh)]} /> : x.cancelled ? 'cancelled' : 'ended'])} />}</Wait>
      {chosen.value && <Outcomes id={chosen.value} />}
    </>
  )
}

function Outcomes({ id }: { id: string }) {
  const feed = useFeed<{ outcomes?: JobOutcome[] }>(query('job', { id }))
  return (
    <Card title={`Outcomes of job ${id}`} wide>
      <Wait feed={feed}>{(o) => <Windowed<JobOutcome> label="Outcomes" rows={o.outcomes ?? []} columns={['signer', '#nonce or floor', 'outcome', 'error']} cells={(x) => [
        <SignerLink signer={x.signer} />, x.nonce ?? x.floor ?? '–',
        <Word tone={x.outcome === 'done' || x.outcome === 'ok' ? 'good' : x.outcome === 'unknown' ? 'look' : 'fix'}>{x.outcome}</Word>, x.error || '–']} />}</Wait>
    </Card>
  )
}
