import warnings

warnings.filterwarnings("ignore")

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

import base


def agent(model, tools=()):
    model = ChatOpenAI(model=model, base_url=base.URL, api_key="key", stream_usage=True)
    return create_react_agent(model, tools=list(tools))


def search(query: str) -> str:
    """Searches"""
    return base.found(query)


def ask(text):
    return {"messages": [{"role": "user", "content": text}]}


async def turns(count):
    config = {"recursion_limit": 3 * count + 10}
    state = await agent(f"turns-{count - 1}", [search]).ainvoke(ask("Look around."), config)
    assert state["messages"][-1].content == "Done."


async def stream(model):
    async for _piece in agent(model).astream(ask("Go on."), stream_mode="messages"):
        pass


base.main(turns, stream)
