// The page of bin/demo --serve, as guides/react.md of ash_agent_web has it. bin/page makes chat.js of it.
import { createRoot } from 'react-dom/client'
import { useChat } from '@ai-sdk/react'
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses as allDecided,
  lastAssistantMessageIsCompleteWithToolCalls as allAnswered,
} from 'ai'

const api = '/api/chat'
const id = location.hash.slice(1) || 'demo'

// Where the messages end: what comes behind it is streamed, also if the turn has ended meanwhile.
let told = {}
const load = async () => {
  const response = await fetch(`${api}/${id}/messages`)
  if (!response.ok) return []
  told = { 'last-event-id': response.headers.get('last-event-id') }
  return response.json()
}

// The server keeps the history, so the last message is enough.
const transport = new DefaultChatTransport({
  api,
  prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, trigger, messageId, messages: messages.slice(-1) } }),
  prepareReconnectToStreamRequest: () => ({ headers: told }),
})

function Chat({ initial }) {
  const chat = useChat({
    id,
    messages: initial,
    resume: initial.length > 0,
    transport,
    sendAutomaticallyWhen: last => allDecided(last) || allAnswered(last),
  })

  // Closing the connection stops nothing, so there is a route for it.
  const stop = () => fetch(`${api}/${id}/stop`, { method: 'POST', headers: { 'content-type': 'application/json' } })
  const busy = chat.status === 'streaming' || chat.status === 'submitted'

  const say = event => {
    event.preventDefault()
    const text = new FormData(event.target).get('text').trim()
    if (text) chat.sendMessage({ text })
    event.target.reset()
  }

  return <main>
    <h1>A trip</h1>
    <p>Say something, such as “Book me a train to Prague”. Load the page again in the middle, or open it twice: nothing is lost.</p>
    <div aria-live="polite">
      {chat.messages.map(message => <section key={message.id} className={message.role}>
        {message.parts.map((part, n) => <Part key={n} part={part} chat={chat} />)}
      </section>)}
    </div>
    {chat.error && <p role="alert">{chat.error.message}</p>}
    <form onSubmit={say}>
      <input name="text" aria-label="Message" autoFocus autoComplete="off" />
      <button>Say</button>
      {busy && <button type="button" onClick={stop}>Stop</button>}
    </form>
  </main>
}

function Part({ part, chat }) {
  if (part.type === 'text') return <p>{part.text}</p>
  if (part.type !== 'dynamic-tool') return null

  const { toolName: tool, toolCallId, input, state } = part
  const answer = output => chat.addToolOutput({ tool, toolCallId, output })
  const decide = approved => chat.addToolApprovalResponse({ id: part.approval.id, approved })

  // A question is a call that the page answers. What the server runs is none.
  if (part.callProviderMetadata?.ashAgent?.question && state === 'input-available')
    return <p className="asks">{input.question} {(input.choices ?? ['Yes', 'No']).map(one => <button key={one} onClick={() => answer(one)}>{one}</button>)}</p>

  if (state === 'approval-requested')
    return <p className="asks">May it call {tool} with <code>{JSON.stringify(input)}</code>?{' '}
      <button onClick={() => decide(true)}>Yes</button> <button onClick={() => decide(false)}>No</button></p>

  return <p className="call">{tool}: {state}</p>
}

createRoot(document.getElementById('chat')).render(<Chat initial={await load()} />)
