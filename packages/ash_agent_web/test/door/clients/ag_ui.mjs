// What the real client of AG-UI makes of a door: node ag_ui.mjs FOLDER URLS [SCENARIO], where FOLDER has `@ag-ui/client` in its
// node_modules, and URLS is JSON with a server for each kind of door. Prints JSON: by scenario, the bytes that came and what the page shows then.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, urls, chosen] = process.argv.slice(2)
const { main: url, typed, steered } = JSON.parse(urls)
const require = createRequire(folder + '/')
const { HttpAgent } = await import(pathToFileURL(require.resolve('@ag-ui/client')).href)
const api = url + '/api/chat'
const headers = { authorization: 'Bearer ada' }

// A refused run is one of the scenes.
console.error = () => {}
console.warn = (...words) => warned.push(words.map(String).join(' '))
let warned = []
let ids = 0

class Page {
  constructor(threadId, { target = api, messages = [] } = {}) {
    this.seen = { sent: [], custom: [], last: [], errors: [], warned: [] }
    const fetching = async (to, init) => {
      const response = await fetch(to, init)
      const [mine, theirs] = response.body.tee()
      this.reading = new Response(mine).text().then(text => this.seen.sent.push(text)).catch(() => {})
      return new Response(theirs, { status: response.status, headers: response.headers })
    }
    this.agent = new HttpAgent({ url: target, threadId, headers, fetch: fetching, initialMessages: messages })
  }

  async run(parameters = {}) {
    let last
    warned = this.seen.warned
    const subscriber = {
      onEvent: ({ event }) => { last = event.type },
      onCustomEvent: ({ event }) => { this.seen.custom.push(event.name) },
      onSubagentStartedEvent: ({ event }) => { this.seen.agents = [...(this.seen.agents ?? []), event.name] },
      onRunErrorEvent: ({ event }) => { this.seen.errors.push(event.message) },
      onRunFinishedEvent: ({ event }) => { this.outcome = event.outcome },
    }
    try {
      await this.agent.runAgent({ runId: `r${++ids}`, ...parameters }, subscriber)
    } catch (error) {
      this.seen.errors.push(String(error.message))
    }
    await this.reading
    this.seen.last.push(last)
  }

  async say(content) {
    this.agent.addMessage({ id: `m${++ids}`, role: 'user', content })
    await this.run()
    return this
  }

  shown() { return { ...this.seen, outcome: this.outcome, messages: this.agent.messages } }
}

async function until(what) {
  for (let n = 0; n < 400; n++) {
    if (await what()) return
    await new Promise(done => setTimeout(done, 25))
  }
  throw new Error('waited too long')
}

const scenarios = {}
for (const scene of ['hello', 'think', 'two calls', 'cut', 'refused', 'retry', 'declined', 'helper', 'killed'])
  scenarios[scene] = async () => (await new Page(`ada-${scene.replaceAll(' ', '-')}`).say(scene)).shown()

const answered = (page, payloads) =>
  page.run({ resume: page.outcome.interrupts.map((i, n) => ({ interruptId: i.id, status: 'resolved', payload: payloads[n] })) })

scenarios.approve = async () => {
  const page = await new Page('ada-ask').say('ask')
  await answered(page, [{ approved: true }])
  return page.shown()
}

scenarios['deny and edit'] = async () => {
  const page = await new Page('ada-edit').say('ask twice')
  await answered(page, [{ approved: false, reason: 'not that' }, { approved: true, editedArgs: { path: '/other' } }])
  return page.shown()
}

// The connection is lost, and the page sends its last message again.
scenarios['a lost connection'] = async () => {
  const first = new Page('ada-lost')
  first.say('slow')
  await until(() => first.agent.messages.at(-1)?.role === 'assistant' && first.agent.messages.at(-1).content.length > 40)
  first.agent.abortRun()
  const page = new Page('ada-lost', { messages: first.agent.messages.filter(m => m.role === 'user') })
  await page.run()
  return { ...page.shown(), sent: [] }
}

scenarios.stop = async () => {
  const page = new Page('ada-stop')
  const said = page.say('slow')
  await until(() => page.agent.messages.at(-1)?.role === 'assistant')
  const json = { 'content-type': 'application/json' }
  await fetch(`${api}/ada-stop/stop`, { method: 'POST', headers: { ...headers, ...json } })
  await said
  return { ...page.shown(), sent: [], messages: [] }
}

const text = page => page.agent.messages.filter(m => m.role === 'assistant').map(m => m.content ?? '').join('')

scenarios.question = async () => {
  const page = await new Page('ada-question').say('question')
  await answered(page, [{ answer: page.outcome.interrupts[0].responseSchema.properties.answer.enum[1] }])
  return page.shown()
}

scenarios.form = async () => {
  const page = await new Page('ada-form').say('form')
  await answered(page, [{ answer: { name: 'Ada', seats: '2' } }])
  return page.shown()
}

// A tool of the page, with what the page says of it.
const alert = { name: 'alert', description: 'Shows a text', parameters: { type: 'object', properties: { text: { type: 'string' } } } }

const returned = async (page, { pendingToolCallIds }) => {
  for (const id of pendingToolCallIds) page.agent.addMessage({ id: `t${++ids}`, role: 'tool', toolCallId: id, content: 'seen' })
  await page.run({ tools: [alert] })
}

scenarios['front-end tool'] = async () => {
  const page = new Page('ada-alert')
  page.agent.addMessage({ id: `m${++ids}`, role: 'user', content: 'alert' })
  await page.run({ tools: [alert] })
  await returned(page, page.outcome)
  return page.shown()
}

scenarios.everything = async () => {
  const page = await new Page('ada-everything').say('everything')
  const payloads = { input_required: { answer: 'So' }, tool_call: { approved: true } }
  await answered(page, page.outcome.interrupts.map(i => payloads[i.reason]))
  await returned(page, page.outcome)
  return page.shown()
}

// The client itself refuses to leave one out. So does the server.
scenarios['an interrupt left out'] = async () => {
  const page = await new Page('ada-left').say('ask twice')
  const [{ id }] = page.outcome.interrupts
  const body = { threadId: 'ada-left', runId: 'r', messages: [], tools: [], context: [], state: {}, forwardedProps: {}, resume: [{ interruptId: id, status: 'cancelled' }] }
  const response = await fetch(api, { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: JSON.stringify(body) })
  return { sent: [], last: page.seen.last, warned: [], status: response.status, kind: (await response.json()).error.kind }
}

scenarios['typed answer'] = async () => {
  const page = await new Page('ada-typed', { target: typed + '/api/chat' }).say('typed')
  return { ...page.shown(), sent: [], messages: [], custom: page.seen.custom.includes('value') }
}

scenarios.big = async () => {
  const page = await new Page('ada-big').say('big')
  return { ...page.shown(), sent: [], messages: [], length: page.agent.messages.find(m => m.role === 'tool').content.length }
}

scenarios.long = async () => {
  const page = await new Page('ada-long').say('long')
  return { ...page.shown(), sent: [], messages: [], words: text(page).split(' ').length }
}

scenarios['two tabs'] = async () => {
  const first = new Page('ada-tabs')
  const said = first.say('slow')
  await until(() => text(first).length > 40)
  const second = new Page('ada-tabs', { messages: first.agent.messages.filter(m => m.role === 'user') })
  const third = new Page('ada-tabs')
  await Promise.all([said, second.run(), third.say('hello')])
  return { sent: [], last: second.seen.last, warned: [], same: text(first) === text(second), words: text(second), busy: third.seen.errors[0].includes('409') }
}

scenarios.steering = async () => {
  const first = new Page('ada-steer', { target: steered + '/api/chat' })
  const said = first.say('slow')
  await until(() => text(first).length > 40)
  const second = await new Page('ada-steer', { target: steered + '/api/chat' }).say('hello')
  await said
  const told = first.agent.messages.filter(m => m.role === 'user').map(m => m.content)
  return { sent: [], last: [first.seen.last, second.seen.last].flat(), warned: [], told, first: text(first).endsWith('Hello, Ada!'), second: text(second) }
}

scenarios['resume at every event'] = async () => {
  const whole = Array.from({ length: 40 }, (_, n) => `word${n + 1} `).join('')
  const once = async count => {
    const id = `ada-every-${count}`
    const first = new Page(id)
    first.say('slow')
    await until(() => text(first).split(' ').length > count)
    first.agent.abortRun()
    const page = new Page(id, { messages: first.agent.messages.filter(m => m.role === 'user') })
    await page.run()
    return text(page) === whole
  }
  const every = []
  for (let n = 0; n < 40; n += 8) every.push(...await Promise.all(Array.from({ length: 8 }, (_, m) => once(n + m))))
  return { sent: [], last: [], warned: [], resumed: every.length, whole: every.filter(Boolean).length }
}

const extra = {
  'killed node': async () => ({ ...(await new Page('ada-wait-anew').say('wait anew')).shown(), sent: [] }),
}

scenarios.rows = async () => {
  const page = new Page('rows', { target: url + '/rows' })
  await page.run()
  return page.shown()
}

const answer = { scenarios: {} }
const plays = chosen ? { [chosen]: { ...scenarios, ...extra }[chosen] } : scenarios
for (const [name, play] of Object.entries(plays)) answer.scenarios[name] = await play()
console.log(JSON.stringify(answer, null, 1))
process.exit(0)
