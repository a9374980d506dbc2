// What the real client of AG-UI makes of a door: node ag_ui.mjs FOLDER URL, where FOLDER has `@ag-ui/client` in its node_modules. Prints
// JSON: by scenario, the bytes that came and what the page shows then.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, url] = process.argv.slice(2)
const require = createRequire(folder + '/')
const { HttpAgent } = await import(pathToFileURL(require.resolve('@ag-ui/client')).href)
const api = url + '/api/chat'
const headers = { authorization: 'Bearer ada' }

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
for (const scene of ['hello', 'think', 'two calls', 'cut', 'refused', 'retry'])
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

scenarios.rows = async () => {
  const page = new Page('rows', { target: url + '/rows' })
  await page.run()
  return page.shown()
}

const answer = { scenarios: {} }
for (const [name, play] of Object.entries(scenarios)) answer.scenarios[name] = await play()
console.log(JSON.stringify(answer, null, 1))
process.exit(0)
