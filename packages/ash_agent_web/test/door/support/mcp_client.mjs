// The official client of the old era against our server: `node mcp_client.mjs FOLDER URL`. What it got is a line of JSON.
const [folder, url] = process.argv.slice(2);
const sdk = (path) => import(`${folder}/@modelcontextprotocol/sdk/dist/esm/client/${path}.js`);
const { Client } = await sdk("index");
const { StreamableHTTPClientTransport } = await sdk("streamableHttp");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const call = (name, args) => client.callTool({ name, arguments: args });
const { tools } = await client.listTools();
const said = await call("greet", { name: "Ada" });
const started = Date.now();
const slow = await Promise.all([1, 1, 1].map((seconds) => call("slow_compute", { seconds })));
const took = Date.now() - started;
const failed = await call("failing_job", {});
const asked = await call("confirm_delete", { filename: "x" });
const unknown = await call("none", {}).catch((error) => error.code);
const texts = [said, ...slow, failed, asked].map((result) => result.content[0].text);
const version = transport.protocolVersion;
console.log(JSON.stringify({ version, tools: tools.length, texts, took, failed: failed.isError, unknown }));
await client.close();
