// What the OpenAI SDK of npm makes of a door: node openai.mjs FOLDER URL, where FOLDER has `openai` in its node_modules. Prints JSON: by
// scenario, the bytes that came and what the program has then.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, url] = process.argv.slice(2)
const require = createRequire(folder + '/')
const { default: OpenAI } = await import(pathToFileURL(require.resolve('openai')).href)

const client = sent => new OpenAI({
  apiKey: 'ada', baseURL: url + '/v1', maxRetries: 0,
  fetch: async (to, init) => {
    const response = await fetch(to, init)
    const [mine, theirs] = response.body.tee()
    sent.reading = new Response(mine).text().then(text => sent.push(text)).catch(() => {})
    return new Response(theirs, { status: response.status, headers: response.headers })
  },
})

const model = 'agent'

async function streamed(scene, more = {}) {
  const sent = [], events = []
  let last
  for await (const event of await client(sent).responses.create({ model, input: scene, stream: true, ...more })) {
    events.push(event.type)
    last = event
  }
  await sent.reading
  return { sent, last: last.type, status: last.response.status, reason: last.response.incomplete_details?.reason ?? null,
    output: last.response.output.map(item => item.content.map(part => part.text).join('')), id: last.response.id, events }
}

const scenarios = {}
for (const scene of ['hello', 'think', 'two calls', 'cut', 'refused', 'retry', 'ask'])
  scenarios[scene] = () => streamed(scene)

scenarios.helper = async () => {
  const sent = [], texts = []
  const runner = client(sent).responses.stream({ model, input: 'think' })
  runner.on('response.output_text.delta', event => texts.push(event.delta))
  const final = await runner.finalResponse()
  await sent.reading
  return { sent, text: texts.join(''), output_text: final.output_text, status: final.status }
}

scenarios.whole = async () => {
  const sent = []
  const openai = client(sent)
  const one = await openai.responses.create({ model, input: 'hello' })
  const two = await openai.responses.create({ model, input: 'hello', previous_response_id: one.id })
  const fork = await openai.responses.create({ model, input: 'hello', previous_response_id: one.id })
  return { sent: [], output_text: [one, two, fork].map(r => r.output_text), status: one.status,
    same: two.conversation.id === one.conversation.id, forked: fork.conversation.id !== one.conversation.id }
}

scenarios.background = async () => {
  const sent = []
  const openai = client(sent)
  let response = await openai.responses.create({ model, input: 'slow', background: true })
  const first = response.status
  const before = []
  for await (const event of await openai.responses.retrieve(response.id, { stream: true })) {
    before.push(event)
    if (before.length === 10) break
  }
  const { id } = before[0].response
  const after = []
  for await (const event of await openai.responses.retrieve(id, { stream: true, starting_after: before.at(-1).sequence_number })) after.push(event)
  const text = [...before, ...after].filter(e => e.type === 'response.output_text.delta').map(e => e.delta).join('')
  response = await openai.responses.retrieve(response.id)
  return { sent: [], first, text, status: response.status, same: response.output_text === text }
}

scenarios.cancel = async () => {
  const openai = client([])
  const response = await openai.responses.create({ model, input: 'slow', background: true })
  const cancelled = await openai.responses.cancel(response.id)
  return { sent: [], status: cancelled.status, later: (await openai.responses.retrieve(response.id)).status }
}

scenarios.errors = async () => {
  const errors = []
  for (const more of [{ instructions: 'x' }, { model: 'gpt' }, { previous_response_id: 'resp_1' }, { conversation: 'eve-1' }])
    await client([]).responses.create({ model, input: 'hello', ...more }).catch(e => errors.push([e.constructor.name, e.status, e.code, e.param]))
  return { sent: [], errors }
}

scenarios.rows = async () => {
  const sent = [], events = []
  const openai = client(sent)
  openai.baseURL = url + '/rows'
  for await (const event of await openai.responses.create({ model, input: 'rows', stream: true })) events.push(event.type)
  await sent.reading
  return { sent, events }
}

const answer = { scenarios: {} }
for (const [name, play] of Object.entries(scenarios)) answer.scenarios[name] = await play()
console.log(JSON.stringify(answer, null, 1))
process.exit(0)
