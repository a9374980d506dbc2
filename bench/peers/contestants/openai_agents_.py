from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
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


base.main(turns, stream)
