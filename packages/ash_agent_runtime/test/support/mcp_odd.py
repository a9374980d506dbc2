"""An MCP server of the old era on standard input and output, without an SDK, that does what the servers of others do wrong.

mcp_odd.py dies     ends when the first message is not initialize
mcp_odd.py silent   never answers what it does not know
mcp_odd.py slow     answers the first message late, when the next one has been sent
mcp_odd.py noisy    writes lines of a log before each message, some of which look like JSON
mcp_odd.py large    sends a message of 40 MB when a tool is called
"""

import json
import sys
import time

mode = sys.argv[1]
first = True


def send(message):
    if mode == "noisy":
        print("[info] about to answer", flush=True)
        print(json.dumps({"level": "info", "id": message["id"]}), flush=True)
        print("[1, 2]\n\n{", flush=True)
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            server = {"name": "odd", "version": "1"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            text = "a" * (40_000_000 if mode == "large" else 3)
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            if first and mode == "dies":
                sys.exit("unexpected message")
            if first and mode == "slow":
                time.sleep(4)
            if "id" in message and mode != "silent":
                send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
            first = False
            continue
    first = False
    send({"id": message["id"], "result": result})
