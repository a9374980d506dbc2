"""An MCP server of the old era on standard input and output, without an SDK, that does what the servers of others do wrong.

mcp_odd.py dies     ends when the first message is not initialize
mcp_odd.py silent   never answers what it does not know
mcp_odd.py slow     answers the first message late, when the next one has been sent
mcp_odd.py noisy    writes lines of a log before each message, some of which look like JSON
mcp_odd.py large    sends a message of 40 MB when a tool is called
mcp_odd.py flood    sends 200,000 notifications and answers to nothing before it answers a call
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
    match message.get("method"):
        case "initialize":
            server = {"name": "odd", "version": "1"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            text = "a" * (40_000_000 if mode == "large" else 3)
            if mode == "flood":
                token = message["params"]["_meta"]["progressToken"]
                flood = [
                    {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}},
                    {"method": "notifications/message", "params": {"data": "a" * 100}},
                    {"id": 1_000_000, "result": {}},
                    {"method": "sampling/createMessage", "id": message["id"]},
                ]
                for n in range(50_000):
                    for notice in flood[: 3 if n % 1000 else 4]:
                        print(json.dumps({"jsonrpc": "2.0", **notice}))
            result = {"content": [{"type": "text", "text": text}]}
        case None:
            continue
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
