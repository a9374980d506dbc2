// What the real client of the AI SDK makes of a door: node ai.mjs FOLDER URL, where FOLDER has `ai` in its node_modules. Prints JSON:
// by scenario, the bytes that came and what the page shows then.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, url] = process.argv.slice(2)
const require = createRequire(folder + '/')
const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } =
  await import(pathToFileURL(require.resolve('ai')).href)
const { version } = require('ai/package.json')
const api = url + '/api/chat'
const headers = { authorization: 'Bearer ada' }

class State {
  status = 'ready'
  error = undefined
  constructor(messages) { this.messages = messages }
  pushMessage = message => { this.messages = this.messages.concat(message) }
  popMessage = () => { this.messages = this.messages.slice(0, -1) }
  replaceMessage = (index, message) => { this.messages = this.messages.map((m, i) => (i === index ? message : m)) }
  snapshot = thing => structuredClone(thing)
}

class Chat extends AbstractChat {
  constructor(options) { super({ ...options, state: new State(options.messages ?? []) }) }
}

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
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
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
for (const scene of ['hello', 'think', 'two calls', 'cut', 'refused', 'retry'])
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
  const json = { 'content-type': 'application/json' }
  const { status } = await fetch(`${api}/ada-stop/stop`, { method: 'POST', headers: { ...headers, ...json } })
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

// Every kind of event once.
scenarios.rows = async () => {
  const page = open('rows', { transport: { api: url + '/rows' } })
  await page.chat.resumeStream()
  return shown(page)
}

const answer = { version, scenarios: {} }
for (const [name, play] of Object.entries(scenarios)) answer.scenarios[name] = await play()
console.log(JSON.stringify(answer, null, 1))
process.exit(0)
