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
      <Wait feed={feed}>
        {(lines) =>
          lines.length ? (
            <Windowed<AuditLine>
              label="Audit"
              rows={lines}
              columns={[
                'at',
                'event',
                'principal',
                'method',
                'signer',
                '#nonce',
                'outcome',
                'why',
                'before',
                'after',
                'credential',
                'address',
              ]}
              cells={(l) => [
                time(l.at),
                l.event ?? '–',
                l.principal || '–',
                l.method || '–',
                l.signer ? <SignerLink signer={l.signer} /> : '–',
                l.nonce ?? '–',
                <Word
                  tone={!l.outcome || l.outcome === 'ok' || l.outcome === 'dry_run' ? 'plain' : l.outcome === 'unknown' ? 'look' : 'fix'}
                >
                  {l.outcome || '–'}
                  {l.right && `: ${l.right} is missing`}
                </Word>,
                l.why || '–',
                l.before || '–',
                l.after || '–',
                l.credential || '–',
                l.address || '–',
              ]}
            />
          ) : (
            <p class="muted">None since this node began.</p>
          )
        }
      </Wait>
    </>
  )
}
