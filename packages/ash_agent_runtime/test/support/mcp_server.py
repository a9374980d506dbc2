"""An MCP server, made with the Python SDK 2, that does what the servers of others seldom do.

mcp_server.py FILE [PORT]   notes in FILE which calls were cancelled; serves on the port, or on standard input and output
mcp_server.py --recursive   has tools whose output schemas refer to themselves
mcp_server.py --which       says which SDK there is
"""

import importlib.metadata
import os
import sys

try:
    found = importlib.metadata.version("mcp")
except importlib.metadata.PackageNotFoundError:
    sys.exit("no SDK")

if int(found.split(".")[0]) < 2:
    sys.exit("an older SDK")

if sys.argv[1] == "--which":
    print(f"mcp-{found}")
    sys.exit(0)

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

NOTES = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"label": {"type": "string"}}}
TREE = {
    "type": "object",
    "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
    "properties": {"child": {"$ref": "#/$defs/node"}},
}
pages = [["wait", "grow"], ["sound", "end"]]


async def list_tools(ctx, params):
    page = int(params.cursor) if params and params.cursor else 0
    more = str(page + 1) if page + 1 < len(pages) else None
    output = TREE if NOTES == "--recursive" else None
    tools = [
        types.Tool(
            name=name,
            description=f"The tool {name}",
            input_schema=SCHEMA,
            output_schema=output,
            annotations=types.ToolAnnotations(read_only_hint=name == "sound"),
        )
        for name in pages[page]
    ]
    return types.ListToolsResult(tools=tools, next_cursor=more)


async def call_tool(ctx, params):
    arguments = params.arguments or {}
    match params.name:
        case "wait":
            try:
                await ctx.session.report_progress(0.5, 2)
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                with open(NOTES, "a") as notes:
                    notes.write(arguments["label"] + "\n")
                raise
        case "grow":
            pages[1].append("grown.twice")
            await bus.publish(ToolsListChanged())
            return text("grown")
        case "sound":
            return types.CallToolResult(content=[types.AudioContent(data="UklGRg==", mime_type="audio/wav")])
        case "end":
            os._exit(3)
        case other:
            return types.CallToolResult(content=[types.TextContent(text=f"{other} is new")], is_error=True)


def text(words):
    return types.CallToolResult(content=[types.TextContent(text=words)])


bus = InMemorySubscriptionBus()
server = Server(
    "test", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(bus)
)
if len(sys.argv) > 2:
    import uvicorn

    uvicorn.run(server.streamable_http_app(), port=int(sys.argv[2]), log_level="error")
    sys.exit(0)


async def main():
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


anyio.run(main)
