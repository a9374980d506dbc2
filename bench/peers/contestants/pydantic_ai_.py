from pydantic_ai import Agent, UsageLimits
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


base.main(turns, stream)
