import { useRef } from 'preact/hooks'
import { get } from '../api.js'
import { query, useAsked } from '../feed.js'
import { time } from '../format.js'
import type { Audit as Lines, AuditLine } from '../types.js'
import { SignerLink, Title, Wait, Word } from '../ui.js'
import { Windowed } from '../window.js'

const most = 1_000

export function Audit() {
  const have = useRef<AuditLine[]>([])
  const feed = useAsked('audit', async (signal) => {
    const { lines = [] } = await get<Lines>(query('audit', { after: have.current[0]?.seq, limit: most }), signal)
    have.current = [...lines.sort((a, b) => b.seq - a.seq), ...have.current].slice(0, most)
    return have.current
  })
  return (
    <>
      <Title>Audit</Title>
      <p>The last lines of the node that answers, the newest first. The log has all of them.</p>
      <Wait feed={feed}>{(lines) => lines.length ? <Windowed<AuditLine> label="Audit" rows={lines}
        columns={['at', 'event', 'principal', 'credential', 'address', 'method', 'signer', '#nonce', 'outcome', 'why']} cells={(l) => [
          time(l.at), l.event ?? '–', l.principal || '–', l.credential || '–', l.address || '–', l.method || '–', l.signer ? <SignerLink signer={l.signer} /> : '–', l.nonce ?? '–',
          <Word tone={!l.outcome || l.outcome === 'ok' ? 'plain' : l.outcome === 'unknown' ? 'look' : 'fix'}>{l.outcome || '–'}</Word>, l.why || '–']} />
        : <p class="muted">None since this node began.</p>}</Wait>
    </>
  )
}
