// An act is looked at before it is done: the gateway says what it would change, and only then, with a reason, it is done.
import { effect, signal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { Failure, end, notice, phase, post } from './api.js'
import { plural } from './format.js'
import { Field } from './ui.js'

export interface Input {
  name: string
  label: string
  kind: 'text' | 'number' | 'check' | 'area' | 'choice'
  hint?: string
  /** May be left empty. */
  optional?: boolean
  choices?: string[]
  value?: string
}

export type Inputs = Record<string, string>

/** Something that a person does to the gateway. */
export interface Act {
  /** Verb and object: the text of the button, here and in the dialog. */
  name: string
  path: string
  /** Why it cannot be done by this person, or ''. */
  whyNot: string
  /** What is sent beside the reason; what was shown is in it, so that a gateway where it is not so any more refuses. */
  body(inputs: Inputs): object
  about?: string
  inputs?: Input[]
  /** What is wrong with what was filled in, before the gateway is asked; '' if nothing is. */
  wrong?(inputs: Inputs): string
  /** What has to be typed before it is done. */
  typed?: string
  /** Says what came of it. */
  said?(answer: Record<string, unknown>): string
  /** Shown once, such as a new key. */
  secret?(answer: Record<string, unknown>): string
  /** Reads anew what the act is about, and is the act as it is now; undefined: nothing is left to do. */
  again?(): Promise<Act | undefined>
}

type Step =
  | { at: 'form' }
  | { at: 'looking' | 'doing' }
  | { at: 'looked'; would: string; before: Record<string, object> }
  | { at: 'end'; how: 'Done' | 'Not done' | 'Unknown'; text: string; secret?: string }

const open = signal<Act | undefined>(undefined)
const step = signal<Step>({ at: 'form' })
const note = signal('')
const inputs = signal<Inputs>({})
const reason = signal('')
const typed = signal('')

/** openAct asks a person for an act. Nothing of the dialog before is remembered. */
export function openAct(act: Act): void {
  inputs.value = Object.fromEntries((act.inputs ?? []).map((i) => [i.name, i.value ?? '']))
  reason.value = typed.value = note.value = ''
  step.value = { at: 'form' }
  open.value = act
  if (!act.inputs?.some((i) => i.kind !== 'check')) void look(act)
}

const complete = (act: Act): boolean =>
  (act.inputs ?? []).every((i) => i.optional || i.kind === 'check' || i.kind === 'choice' || inputs.value[i.name]!.trim() !== '')

/** look has the gateway say what the act would change. */
async function look(act: Act): Promise<void> {
  const wrong = act.wrong?.(inputs.value)
  if (wrong) {
    note.value = wrong
    return void (step.value = { at: 'form' })
  }
  step.value = { at: 'looking' }
  try {
    const said = await post<{ wouldDo?: string; before?: Record<string, object> }>(act.path, {
      ...act.body(inputs.value),
      dryRun: true,
      ...because(),
    })
    if (open.value === act) step.value = { at: 'looked', would: said.wouldDo ?? 'It would be done.', before: said.before ?? {} }
  } catch (e) {
    if (open.value === act) await failed(act, e as Failure, false)
  }
}

const because = () => (reason.value.trim() ? { reason: reason.value.trim() } : {})

/** run does it. */
async function run(act: Act): Promise<void> {
  step.value = { at: 'doing' }
  note.value = ''
  try {
    const said = await post<Record<string, unknown>>(act.path, { ...act.body(inputs.value), reason: reason.value.trim() })
    const secret = act.secret?.(said)
    step.value = { at: 'end', how: 'Done', text: act.said?.(said) ?? `${act.name}: done.`, ...(secret && { secret }) }
    void act.again?.()
  } catch (e) {
    await failed(act, e as Failure, true)
  }
}

async function failed(act: Act, f: Failure, tried: boolean): Promise<void> {
  if (f.kind === 'ended') {
    open.value = undefined
    return end(`"${act.name}" was not done.`)
  }
  if (f.kind === 'unknown') {
    step.value = {
      at: 'end',
      how: 'Unknown',
      text: `It is not known whether this was done (${f.message}): it may have happened. Look at the page before you try again.`,
    }
    return void act.again?.()
  }
  if (f.kind === 'away') {
    note.value = `${tried ? 'Not done' : 'Not looked at'}: ${f.message}. Nothing happened; this is no refusal. Try again.`
    return void (step.value = { at: 'form' })
  }
  if (f.kind !== 'stale' || !act.again) return void (step.value = { at: 'end', how: 'Not done', text: refusal(f) })
  // What was shown is not so any more: it is shown anew, and nothing is done before the person has seen it.
  let now: Act | undefined
  try {
    now = await act.again()
  } catch (e) {
    return void (step.value = {
      at: 'end',
      how: 'Not done',
      text: `${refusal(f)} What is so now could not be read (${(e as Failure).message}).`,
    })
  }
  if (open.value !== act) return
  if (!now || !tried) return void (step.value = { at: 'end', how: 'Not done', text: refusal(f) })
  note.value = `Not done: it has changed since it was shown (${f.message}). This is how it is now.`
  open.value = now
  typed.value = ''
  await look(now)
}

const refusal = (f: Failure): string => `The gateway refused: ${f.message}${/[.!?]$/.test(f.message) ? '' : '.'} Nothing happened.`

function close(): void {
  open.value = undefined
}

// A session may end while a person reads: the page that says so says this too.
effect(() => {
  const act = open.peek()
  if (phase.value !== 'ended' || !act) return
  const s = step.peek().at
  if (s !== 'end') notice.value = s === 'doing' ? `Whether "${act.name}" was done is not known.` : `"${act.name}" was not done.`
  open.value = undefined
})

/** DialogHost is where the dialog comes. */
export function DialogHost() {
  return open.value && phase.value === 'in' ? <Dialog /> : null
}

function Dialog() {
  const box = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null,
      name = opener?.textContent
    box.current!.showModal()
    return () => {
      // The browser gives the focus back to the opener. After an act that button may be another one, or be gone.
      const here = document.activeElement,
        same = opener?.isConnected && opener.textContent === name
      if (here === document.body || (here === opener && !same)) (same ? opener : document.querySelector('h1'))?.focus()
    }
  }, [])
  const act = open.value!,
    s = step.value
  const missing = !reason.value.trim()
    ? 'Write a reason first; it goes into the audit.'
    : act.typed && typed.value !== act.typed
      ? `Type ${act.typed} first.`
      : ''
  useEffect(() => {
    if (s.at === 'end') box.current?.querySelector<HTMLElement>('[data-close]')?.focus()
    if (s.at === 'looked') box.current?.querySelector<HTMLElement>('[data-reason]')?.focus()
  }, [s.at])
  const submit = (e: Event) => {
    e.preventDefault()
    if (s.at === 'looked' && !missing) void run(act)
    else if (s.at === 'form' && complete(act)) void ((note.value = ''), look(act))
  }
  return (
    <dialog ref={box} aria-labelledby="act-name" onClose={close}>
      <form onSubmit={submit} noValidate>
        <h2 id="act-name">{act.name}</h2>
        {s.at !== 'end' && act.about && <p>{act.about}</p>}
        {s.at !== 'end' && act.inputs?.map((i) => <One key={i.name} input={i} locked={s.at === 'doing'} />)}
        <div role="status" aria-live="polite">
          {note.value && <p class="note">{note.value}</p>}
          {s.at === 'looking' && <p class="muted">Asking what would change …</p>}
          {s.at === 'doing' && <p class="muted">Under way …</p>}
          {s.at === 'looked' && (
            <p class="would">
              <strong>What will change: </strong>
              {s.would}
            </p>
          )}
          {s.at === 'looked' && <Before of={s.before} />}
          {s.at === 'end' && (
            <p class={`end ${s.how.replace(' ', '')}`}>
              <strong>{s.how}. </strong>
              {s.text}
            </p>
          )}
        </div>
        {s.at === 'end' && s.secret && (
          <p>
            <code class="secret" tabIndex={0}>
              {s.secret}
            </code>
          </p>
        )}
        {(s.at === 'looked' || s.at === 'doing') && (
          <>
            <Field label="Reason" hint="For the audit, such as: gap alert, incident 123. 256 bytes at most.">
              {(id, hint) => (
                <input
                  id={id}
                  aria-describedby={hint}
                  data-reason
                  required
                  autocomplete="off"
                  value={reason.value}
                  disabled={s.at === 'doing'}
                  onInput={(e) => (reason.value = e.currentTarget.value)}
                />
              )}
            </Field>
            {act.typed && (
              <Field label={`Type ${act.typed} to confirm`}>
                {(id) => (
                  <input
                    id={id}
                    class="mono"
                    autocomplete="off"
                    spellcheck={false}
                    value={typed.value}
                    disabled={s.at === 'doing'}
                    onInput={(e) => (typed.value = e.currentTarget.value)}
                  />
                )}
              </Field>
            )}
          </>
        )}
        <div class="acts">
          {s.at === 'form' || s.at === 'looking' ? (
            <button type="submit" aria-disabled={!complete(act) || s.at === 'looking' ? 'true' : undefined}>
              See what would change
            </button>
          ) : null}
          {(s.at === 'looked' || s.at === 'doing') && (
            <button
              type="submit"
              class="act"
              aria-disabled={missing || s.at === 'doing' ? 'true' : undefined}
              aria-describedby={missing ? 'act-missing' : undefined}
            >
              {act.name}
            </button>
          )}
          <button type="button" data-close onClick={() => box.current!.close()}>
            {s.at === 'end' ? 'Close' : s.at === 'doing' ? 'Close; it goes on' : 'Cancel'}
          </button>
          {s.at === 'looked' && missing && (
            <span class="muted" id="act-missing">
              {missing}
            </span>
          )}
        </div>
      </form>
    </dialog>
  )
}

function One({ input: i, locked }: { input: Input; locked: boolean }) {
  const set = (value: string) => {
    inputs.value = { ...inputs.value, [i.name]: value }
    if (step.value.at === 'looked') step.value = { at: 'form' } // what was looked at is another act now
  }
  const value = inputs.value[i.name] ?? ''
  if (i.kind === 'check')
    return (
      <p class="field">
        <label>
          <input
            type="checkbox"
            checked={value === 'true'}
            disabled={locked}
            onChange={(e) => set(e.currentTarget.checked ? 'true' : '')}
          />{' '}
          {i.label}
        </label>
      </p>
    )
  const props = { value, disabled: locked, onInput: (e: { currentTarget: { value: string } }) => set(e.currentTarget.value) }
  return (
    <Field label={i.label} hint={i.hint}>
      {(id, hint) =>
        i.kind === 'choice' ? (
          <select id={id} aria-describedby={hint} {...props}>
            {i.choices!.map((c) => (
              <option value={c}>{c || '–'}</option>
            ))}
          </select>
        ) : i.kind === 'area' ? (
          <Area id={id} label={i.label} value={value} locked={locked} set={set} />
        ) : (
          <input
            id={id}
            aria-describedby={hint}
            class="mono"
            autocomplete="off"
            spellcheck={false}
            inputMode={i.kind === 'number' ? 'numeric' : 'text'}
            {...props}
          />
        )
      }
    </Field>
  )
}

/** From how many characters on a text is not shown: a browser may stand still for minutes while thousands of lines are pasted. */
const mostShown = 20_000

/** Area is a field for many lines, or for a file of them. */
function Area({ id, label, value, locked, set }: { id: string; label: string; value: string; locked: boolean; set(text: string): void }) {
  const paste = (e: ClipboardEvent) => {
    const text = e.clipboardData?.getData('text/plain') ?? ''
    if (text.length < mostShown) return
    e.preventDefault()
    set(text)
  }
  return (
    <>
      {value.length < mostShown ? (
        <textarea
          id={id}
          rows={6}
          class="mono"
          spellcheck={false}
          value={value}
          disabled={locked}
          onPaste={paste}
          onInput={(e) => set(e.currentTarget.value)}
        />
      ) : (
        <p>
          {plural(value.split('\n').filter((l) => l.trim()).length, 'line')}, too many to be shown.{' '}
          <button type="button" disabled={locked} onClick={() => set('')}>
            Empty it
          </button>
        </p>
      )}
      <input
        type="file"
        aria-label={`File: ${label}`}
        disabled={locked}
        onChange={(e) => void e.currentTarget.files?.[0]?.text().then(set)}
      />
    </>
  )
}

/** What the gateway calls otherwise than a person would. */
const factNames: Record<string, string> = { holder: 'last holder', reason: 'why it is so' }

/** Before is how it is now: what the gateway says of the nonce, the signer, the shard or the key. */
function Before({ of }: { of: Record<string, object> }) {
  const facts = Object.values(of)
    .flatMap((o) => Object.entries(o ?? {}))
    .filter(([, v]) => v !== '' && v !== false && typeof v !== 'object')
  if (!facts.length) return null
  return (
    <dl class="facts">
      {facts.map(([k, v]) => (
        <div>
          <dt>{factNames[k] ?? k}</dt>
          <dd class="mono">{String(v)}</dd>
        </div>
      ))}
    </dl>
  )
}
