import { useFeed } from '../feed.js'
import type { Setting } from '../types.js'
import { Table, Title, Wait } from '../ui.js'

export function SettingsPage() {
  const feed = useFeed<{ settings?: Setting[] }>('settings', 4_000)
  return (
    <>
      <Title>Settings</Title>
      <p>What is in force at the node that answers, and where each came from. Those that were set come first.</p>
      <Wait feed={feed}>
        {(s) => (
          <Table
            label="Settings"
            columns={['setting', 'value', 'from']}
            rows={[...(s.settings ?? [])]
              .sort((a, b) => Number(a.from === 'default') - Number(b.from === 'default') || a.name.localeCompare(b.name))
              .map((x) => [
                <code>{x.name}</code>,
                x.secret ? <span class="muted">left out: a secret</span> : <span class="mono">{x.value || '–'}</span>,
                x.from,
              ])}
          />
        )}
      </Wait>
    </>
  )
}
