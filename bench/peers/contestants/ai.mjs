import { writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages are where they were installed, and this file is in the repository.
const require = createRequire(process.env.PEERS_NODE + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, streamText, stepCountIs, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const provider = createOpenAICompatible({ name: "bench", baseURL: process.argv[2], apiKey: "key" });
const search = tool({
  description: "Searches",
  inputSchema: z.object({ query: z.string() }),
  execute: async ({ query }) => `found ${query}`,
});

async function turns(count) {
  const model = provider(`turns-${count - 1}`);
  const prompt = "Look around.";
  const { text } = await generateText({ model, prompt, tools: { search }, stopWhen: stepCountIs(count + 1) });
  if (text !== "Done.") throw new Error(`unexpected: ${text}`);
}

async function stream(model) {
  for await (const _piece of streamText({ model: provider(model), prompt: "Go on." }).textStream);
}

function words(n, count) {
  return Array.from({ length: count }, (_, k) => `word${((k + 1) * (n + 7) * 7919) % 5003}`).join(" ");
}

function turn(n) {
  const call = { toolCallId: `call_${n}`, toolName: "read_file" };
  const text = (text) => ({ type: "text", text });
  const input = { path: `lib/file_${n}.ex`, text: words(n, 60) };
  const output = { type: "text", value: words(n + 1, 700) };
  return [
    { role: "assistant", content: [text(words(n, 200)), { type: "tool-call", ...call, input }] },
    { role: "tool", content: [{ type: "tool-result", ...call, output }] },
    { role: "assistant", content: words(n + 2, 200) },
    { role: "user", content: words(n + 3, 100) },
  ];
}

let ready, more, last = 0, kept;

function prepare(conversations, appends) {
  const whole = () => [{ role: "user", content: "Begin." }, ...Array.from({ length: 125 }, (_, n) => turn(n + 1)).flat()];
  ready = Array.from({ length: conversations }, whole);
  more = Array.from({ length: appends }, (_, n) => turn(126 + n));
}

// It has no store: its documentation writes a conversation as JSON into a file, anew each time.
const write = (messages) => writeFile(`${process.env.PEERS_FILE}.${last}`, JSON.stringify(messages));

async function save() {
  for (kept of ready) {
    last++;
    await write(kept);
  }
}

async function append() {
  for (const messages of more) {
    kept.push(...messages);
    await write(kept);
  }
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...numbers] = line.split(" ");
  const [first, length] = numbers.map(Number);
  if (what === "turns") await turns(first);
  else if (what === "many") await Promise.all(Array.from({ length: first }, () => turns(length)));
  else if (what === "prepare") prepare(first, length);
  else if (what === "save") await save();
  else if (what === "append") await append();
  else if (what !== "settle") await stream(`${what}-${first}`);
  console.log("done");
}
