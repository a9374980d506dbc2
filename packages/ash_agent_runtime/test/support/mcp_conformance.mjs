// The client as a program that the official suite starts, with the port of the VM that has the client and the address of its server: passes the
// scenario on, and ends when it ends.
import { connect } from "node:net";

const [port, url] = process.argv.slice(2);
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("MCP_CONFORMANCE_")));
const socket = connect(Number(port), "127.0.0.1", () => socket.write(JSON.stringify({ url, env }) + "\n"));
socket.on("data", (data) => process.stdout.write(data));
socket.on("error", () => process.exit(1));
