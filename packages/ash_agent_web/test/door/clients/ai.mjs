// What the real client of the AI SDK makes of a door: node ai.mjs FOLDER URLS [SCENARIO], where FOLDER has `ai` and `@ai-sdk/react` in its
// node_modules, and URLS is JSON with a server for each kind of door. Prints JSON: by scenario, the bytes that came and what the page shows then.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, urls, chosen] = process.argv.slice(2)
const { main: url, typed, steered, rewound } = JSON.parse(urls)
const require = createRequire(folder + '/')
const load = name => import(pathToFileURL(require.resolve(name)).href)
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } = await load('ai')
// What `useChat` is made of.
const { Chat } = await load('@ai-sdk/react')
const { version } = require('ai/package.json')
const api = url + '/api/chat'
const headers = { authorization: 'Bearer ada' }
const json = { ...headers, 'content-type': 'application/json' }

let ids = 0

function open(id, options = {}) {
  const seen = { sent: [], data: [], errors: [] }
  const fetching = async (target, init) => {
    const response = await fetch(target, init)
    if (response.body == null) { seen.sent.push(String(response.status)); return response }
    const [mine, theirs] = response.body.tee()
    seen.reading = new Response(mine).text().then(text => seen.sent.push(text)).catch(() => {})
    return new Response(theirs, { status: response.status, headers: response.headers })
  }
  const chat = new Chat({
    id,
    generateId: () => `m${++ids}`,
    transport: new DefaultChatTransport({ api, headers, fetch: fetching, ...options.transport }),
    sendAutomaticallyWhen: last => lastAssistantMessageIsCompleteWithApprovalResponses(last) || lastAssistantMessageIsCompleteWithToolCalls(last),
    onError: error => seen.errors.push(error.message),
    onData: part => seen.data.push(part.type),
    messages: options.messages,
  })
  return { chat, seen }
}

async function shown({ chat, seen }) {
  await seen.reading
  const { reading, ...rest } = seen
  return { ...rest, status: chat.status, messages: chat.messages }
}

const loadMessages = async id => (await fetch(`${api}/${id}/messages`, { headers })).json()

// A page that is opened: what there is, and then the rest. A turn that ends in between is in what there is then.
async function reopen(id) {
  const page = open(id, { messages: await loadMessages(id) })
  await page.chat.resumeStream()
  if (page.chat.lastMessage.role === 'user') page.chat.messages = await loadMessages(id)
  return page
}

async function until(what) {
  for (let n = 0; n < 400; n++) {
    if (await what()) return
    await new Promise(done => setTimeout(done, 25))
  }
  throw new Error('waited too long')
}

async function say(scene, options) {
  const page = open(`ada-${scene.replaceAll(' ', '-')}`, options)
  await page.chat.sendMessage({ text: scene })
  return page
}

const stopped = ({ chat }) => chat.status === 'ready' || chat.status === 'error'
const text = message => message.parts.filter(p => p.type === 'text').map(p => p.text).join('')
const approvals = chat => chat.messages.flatMap(m => m.parts).filter(p => p.state === 'approval-requested')

const scenarios = {}
for (const scene of ['hello', 'think', 'two calls', 'cut', 'refused', 'retry', 'declined', 'helper', 'killed'])
  scenarios[scene] = async () => shown(await say(scene))

scenarios.big = async () => {
  const page = await say('big')
  const { output } = page.chat.lastMessage.parts.find(p => p.output)
  return { ...(await shown(page)), sent: [], messages: [], length: output.length }
}

scenarios.long = async () => {
  const page = await say('long')
  return { ...(await shown(page)), sent: [], messages: [], words: text(page.chat.lastMessage).split(' ').length }
}

scenarios.approve = async () => {
  const page = await say('ask')
  for (const part of approvals(page.chat)) await page.chat.addToolApprovalResponse({ id: part.approval.id, approved: true })
  await until(() => stopped(page) && text(page.chat.lastMessage).includes('So be it.'))
  return shown(page)
}

// One call of two is allowed, in the page that was loaded again meanwhile.
scenarios.deny = async () => {
  const { chat: { id } } = await say('ask twice')
  const messages = await (await fetch(`${api}/${id}/messages`, { headers })).json()
  const page = open(id, { messages })
  const [first, second] = approvals(page.chat)
  await page.chat.addToolApprovalResponse({ id: first.approval.id, approved: false, reason: 'not that' })
  await page.chat.addToolApprovalResponse({ id: second.approval.id, approved: true })
  await until(() => stopped(page) && text(page.chat.lastMessage).includes('That was both.'))
  return shown(page)
}

scenarios['a late joiner'] = async () => {
  const first = open('ada-late')
  const said = first.chat.sendMessage({ text: 'slow' })
  await until(() => first.chat.lastMessage?.role === 'assistant' && text(first.chat.lastMessage).length > 40)
  const messages = await (await fetch(`${api}/ada-late/messages`, { headers })).json()
  const page = open('ada-late', { messages })
  await page.chat.resumeStream()
  await said
  const answer = await shown(page)
  return { ...answer, sent: [], same: text(page.chat.lastMessage) === text(first.chat.lastMessage) }
}

scenarios['a closed tab'] = async () => {
  const first = open('ada-closed')
  first.chat.sendMessage({ text: 'slow' })
  await until(() => first.chat.lastMessage?.role === 'assistant' && text(first.chat.lastMessage).length > 40)
  await first.chat.stop()
  const messages = await (await fetch(`${api}/ada-closed/messages`, { headers })).json()
  const page = open('ada-closed', { messages })
  await page.chat.resumeStream()
  return { ...(await shown(page)), sent: [] }
}

scenarios.stop = async () => {
  const page = open('ada-stop')
  const said = page.chat.sendMessage({ text: 'slow' })
  await until(() => page.chat.lastMessage?.role === 'assistant')
    const { status } = await fetch(`${api}/ada-stop/stop`, { method: 'POST', headers: json })
  await said
  const { sent, ...rest } = await shown(page)
  return { ...rest, sent: [], stopped: status, aborted: sent[0].includes('"type":"abort"'), messages: [] }
}

scenarios['nothing to resume'] = async () => {
  const { chat: { id, messages } } = await say('hello')
  const page = open(id, { messages })
  await page.chat.resumeStream()
  return shown(page)
}

scenarios.regenerate = async () => {
  const page = await say('hello')
  await page.chat.regenerate()
  return shown(page)
}

scenarios.edit = async () => {
  const page = await say('hello')
  await page.chat.sendMessage({ text: 'think', messageId: page.chat.messages[0].id })
  return shown(page)
}

// Where the application lets pages take back a turn.
scenarios['regenerate and edit'] = async () => {
  const page = open('ada-rewind', { transport: { api: rewound + '/api/chat' } })
  await page.chat.sendMessage({ text: 'hello' })
  await page.chat.regenerate()
  const again = page.chat.messages.map(text)
  await page.chat.sendMessage({ text: 'think', messageId: page.chat.messages[0].id })
  const kept = await (await fetch(`${rewound}/api/chat/ada-rewind/messages`, { headers })).json()
  return { sent: [], errors: page.seen.errors, again, edited: page.chat.messages.map(text), kept: kept.map(text) }
}

const asked = chat => chat.messages.flatMap(m => m.parts).filter(p => p.callProviderMetadata?.ashAgent && p.state === 'input-available')

// A question, which the page answers as it would a tool of its own.
scenarios.question = async () => {
  const page = await say('question')
  const [part] = asked(page.chat)
  await page.chat.addToolOutput({ tool: part.toolName, toolCallId: part.toolCallId, output: part.input.choices[1] })
  await until(() => stopped(page) && text(page.chat.lastMessage).includes('Booked.'))
  return shown(page)
}

// A form, in a page that was loaded again meanwhile, and a number that is a text.
scenarios.form = async () => {
  const { chat: { id } } = await say('form')
  const messages = await (await fetch(`${api}/${id}/messages`, { headers })).json()
  const page = open(id, { messages })
  const [part] = asked(page.chat)
  await page.chat.addToolOutput({ tool: part.toolName, toolCallId: part.toolCallId, output: { name: 'Ada', seats: '2' } })
  await until(() => stopped(page) && text(page.chat.lastMessage).includes('Booked.'))
  return shown(page)
}

scenarios['front-end tool'] = async () => {
  const page = open('ada-alert')
  page.chat.onToolCall = undefined
  await page.chat.sendMessage({ text: 'alert' })
  for (const part of asked(page.chat)) await page.chat.addToolOutput({ tool: part.toolName, toolCallId: part.toolCallId, output: { seen: part.input.text } })
  await until(() => stopped(page) && text(page.chat.lastMessage).includes('You saw it.'))
  return shown(page)
}

// A question, an approval and a tool of the page at once.
scenarios.everything = async () => {
  const page = await say('everything')
  for (const part of approvals(page.chat)) await page.chat.addToolApprovalResponse({ id: part.approval.id, approved: true })
  for (const part of asked(page.chat)) await page.chat.addToolOutput({ tool: part.toolName, toolCallId: part.toolCallId, output: 'yes' })
  await until(() => stopped(page) && text(page.chat.lastMessage).includes('That was all.'))
  return { ...(await shown(page)), sent: [] }
}

scenarios['typed answer'] = async () => {
  const page = open('ada-typed', { transport: { api: typed + '/api/chat' } })
  await page.chat.sendMessage({ text: 'typed' })
  const { data } = page.chat.lastMessage.parts.find(p => p.type === 'data-value')
  return { ...(await shown(page)), sent: [], messages: [], value: data.value }
}

scenarios['two tabs'] = async () => {
  const first = open('ada-tabs')
  const said = first.chat.sendMessage({ text: 'slow' })
  await until(() => first.chat.lastMessage?.role === 'assistant')
  const second = open('ada-tabs', { messages: await (await fetch(`${api}/ada-tabs/messages`, { headers })).json() })
  const follows = second.chat.resumeStream()
  const third = open('ada-tabs')
  await third.chat.sendMessage({ text: 'hello' })
  await Promise.all([said, follows])
  return { sent: [], busy: JSON.parse(third.seen.errors[0]).error.kind, same: text(first.chat.lastMessage) === text(second.chat.lastMessage), words: text(second.chat.lastMessage) }
}

scenarios.steering = async () => {
  const options = { transport: { api: steered + '/api/chat' } }
  const first = open('ada-steer', options)
  const said = first.chat.sendMessage({ text: 'slow' })
  await until(() => first.chat.lastMessage?.role === 'assistant' && text(first.chat.lastMessage).length > 40)
  const second = open('ada-steer', options)
  await second.chat.sendMessage({ text: 'hello' })
  await said
  const part = first.chat.lastMessage.parts.find(p => p.type === 'data-said')
  return { sent: [], told: part.data.text, first: text(first.chat.lastMessage).endsWith('Hello, Ada!'), second: text(second.chat.lastMessage) }
}

// The page is closed after each piece of an answer, and opened again.
scenarios['resume at every event'] = async () => {
  const whole = Array.from({ length: 40 }, (_, n) => `word${n + 1} `).join('')
  const once = async count => {
    const id = `ada-every-${count}`
    const first = open(id)
    first.chat.sendMessage({ text: 'slow' })
    await until(() => first.chat.lastMessage?.role === 'assistant' && text(first.chat.lastMessage).split(' ').length > count)
    await first.chat.stop()
    const page = await reopen(id)
    return text(page.chat.lastMessage) === whole
  }
  const whole_ = []
  for (let n = 0; n < 40; n += 8) whole_.push(...await Promise.all(Array.from({ length: 8 }, (_, m) => once(n + m))))
  return { sent: [], resumed: whole_.length, whole: whole_.filter(Boolean).length }
}

// Only where the test kills a node.
const extra = {
  'killed node': async () => {
    const page = await say('wait anew')
    return { ...(await shown(page)), sent: [] }
  },
}

// Every kind of event once.
scenarios.rows = async () => {
  const page = open('rows', { transport: { api: url + '/rows' } })
  await page.chat.resumeStream()
  return shown(page)
}

const answer = { version, scenarios: {} }
const plays = chosen ? { [chosen]: { ...scenarios, ...extra }[chosen] } : scenarios
for (const [name, play] of Object.entries(plays)) answer.scenarios[name] = await play()
console.log(JSON.stringify(answer, null, 1))
process.exit(0)
