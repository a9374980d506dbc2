from agents import Agent, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

import base

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=base.URL, api_key="key")


def agent(model, tools=()):
    model = OpenAIChatCompletionsModel(model=model, openai_client=client)
    return Agent(name="bench", model=model, tools=list(tools))


@function_tool
def search(query: str) -> str:
    """Searches"""
    return base.found(query)


async def turns(count):
    result = await Runner.run(agent(f"turns-{count - 1}", [search]), "Look around.", max_turns=count + 1)
    assert result.final_output == "Done."


async def stream(model):
    async for _event in Runner.run_streamed(agent(model), "Go on.").stream_events():
        pass


def items(messages):
    out = []
    for role, text, call in messages:
        if role == "tool":
            out.append({"type": "function_call_output", "call_id": call[0], "output": text})
            continue
        out.append({"role": role, "content": text})
        if call:
            out.append({"type": "function_call", "call_id": call[0], "name": "read_file", "arguments": call[1]})
    return out


sessions = {}


async def write(name, messages):
    if name not in sessions:
        sessions.clear()
        sessions[name] = SQLiteSession(name, base.FILE)
    await sessions[name].add_items(messages)


base.main(turns, stream, base.Saves(items, write))
