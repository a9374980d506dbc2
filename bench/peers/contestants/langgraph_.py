import warnings

warnings.filterwarnings("ignore")

import json

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
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


def history(messages):
    out = []
    for role, text, call in messages:
        if role == "user":
            out.append(HumanMessage(text))
        elif role == "tool":
            out.append(ToolMessage(text, tool_call_id=call[0], name="read_file"))
        else:
            calls = [{"id": call[0], "name": "read_file", "args": json.loads(call[1])}] if call else []
            out.append(AIMessage(text, tool_calls=calls))
    return out


kept = opened = None


async def write(name, messages):
    global kept, opened
    if kept is None:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        opened = AsyncSqliteSaver.from_conn_string(base.FILE)
        saver = await opened.__aenter__()
        model = ChatOpenAI(model="none", base_url=base.URL, api_key="key")
        kept = create_react_agent(model, tools=[search], checkpointer=saver)
    await kept.aupdate_state({"configurable": {"thread_id": name}}, {"messages": messages})


base.main(turns, stream, base.Saves(history, write))
