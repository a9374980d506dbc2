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

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...numbers] = line.split(" ");
  const [first, length] = numbers.map(Number);
  if (what === "turns") await turns(first);
  else if (what === "many") await Promise.all(Array.from({ length: first }, () => turns(length)));
  else await stream(`${what}-${first}`);
  console.log("done");
}
