import sqlite3

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import base

provider = OpenAIProvider(base_url=base.URL, api_key="key")
NO_LIMITS = UsageLimits(request_limit=None)


def agent(model, tools=()):
    return Agent(OpenAIChatModel(model, provider=provider), tools=tools)


def search(query: str) -> str:
    """Searches"""
    return base.found(query)


async def turns(count):
    result = await agent(f"turns-{count - 1}", [search]).run("Look around.", usage_limits=NO_LIMITS)
    assert result.output == "Done."


async def stream(model):
    async with agent(model).run_stream("Go on.") as result:
        async for _piece in result.stream_text(delta=True, debounce_by=None):
            pass


def history(messages):
    out = []
    for role, text, call in messages:
        if role == "user":
            out.append(ModelRequest(parts=[UserPromptPart(content=text)]))
        elif role == "tool":
            out.append(ModelRequest(parts=[ToolReturnPart(tool_name="read_file", content=text, tool_call_id=call[0])]))
        else:
            calls = [ToolCallPart(tool_name="read_file", args=call[1], tool_call_id=call[0])] if call else []
            out.append(ModelResponse(parts=[TextPart(content=text), *calls]))
    return out


connection = None


# It has no store: its documentation has a table to which each run adds a row with its new messages.
async def write(name, messages):
    global connection
    if connection is None:
        connection = sqlite3.connect(base.FILE)
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table messages (id integer primary key, conversation text, message_list text)")
    document = ModelMessagesTypeAdapter.dump_json(messages).decode()
    connection.execute("insert into messages (conversation, message_list) values (?, ?)", (name, document))
    connection.commit()


base.main(turns, stream, base.Saves(history, write))
