"""What OpenAI's SDK makes of chat completions and of responses."""

import httpx2
import openai

from wire import Wire, call, figures, json_or_text


def openai_client(wire):
    return openai.OpenAI(api_key="x", http_client=wire.client(), max_retries=0, base_url="http://test")


def openai_chat(kind, body, stream):
    wire = Wire(httpx2, body, "text/event-stream" if stream else "application/json")
    client = openai_client(wire)
    hi, ends = {"role": "user", "content": "Hi"}, set()
    if stream:
        with client.chat.completions.stream(model="m", messages=[hi]) as events:
            chunks = [event.chunk for event in events if event.type == "chunk"]
            ends = {chunk.id for chunk in chunks for choice in chunk.choices[:1] if choice.finish_reason}
            completion = events.current_completion_snapshot
            try:
                completion = events.get_final_completion()
            except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
                pass
    else:
        completion = client.chat.completions.create(model="m", messages=[hi])
    choice = completion.choices[0]
    message = choice.message
    sent = wire.next(lambda: client.chat.completions.create(model="m", messages=[hi, message]))
    calls = []
    for c in message.tool_calls or []:
        if c.type == "custom":
            calls.append(call(c.id, c.custom.name, c.custom.input, "custom"))
        else:
            calls.append(call(c.id, c.function.name, json_or_text(c.function.arguments)))
    usage = completion.usage
    details = lambda field, key: getattr(getattr(usage, field, None), key, None)
    extra = message.model_extra or {}
    reasoned = extra.get("reasoning_details") or []
    thinking = extra.get("reasoning_content") or extra.get("reasoning")
    thinking = thinking or "".join(d.get("text") or d.get("summary") or "" for d in reasoned)
    return {
        "ended": choice.finish_reason is not None,
        "answers": len(ends),
        "id": completion.id,
        "model": completion.model,
        "finish": choice.finish_reason,
        "usage": usage
        and figures(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.total_tokens,
            details("prompt_tokens_details", "cached_tokens"),
            details("prompt_tokens_details", "cache_write_tokens"),
            details("completion_tokens_details", "reasoning_tokens"),
        ),
        "text": (message.content or "") + (message.refusal or ""),
        "thinking": thinking if isinstance(thinking, str) else "",
        "calls": calls,
        "sent": [sent["messages"][1]],
    }


KINDS = {
    "function_call": None,
    "custom_tool_call": "custom",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
    "mcp_approval_request": "mcp_approval",
    "tool_search_call": "tool_search",
}


def openai_call(item, answered):
    kind, id = item.get("type"), item.get("call_id") or item.get("id")
    if kind not in KINDS or id in answered or item.get("execution") == "server":
        return None
    if kind == "function_call":
        return call(id, item.get("name"), json_or_text(item.get("arguments")))
    arguments = {
        "custom_tool_call": lambda: item.get("input"),
        "mcp_approval_request": lambda: json_or_text(item.get("arguments")),
        "tool_search_call": lambda: item.get("arguments"),
    }.get(kind, lambda: None)()
    name = item.get("name") if kind in ("custom_tool_call", "mcp_approval_request") else None
    return call(id, name, arguments, KINDS[kind])


def openai_responses(kind, body, stream):
    wire = Wire(httpx2, body, "text/event-stream" if stream else "application/json")
    client = openai_client(wire)
    hi = {"role": "user", "content": "Hi"}
    ended = True
    if stream:
        with client.responses.stream(model="m", input=[hi]) as events:
            ended = any(
                event.type in ("response.completed", "response.incomplete", "response.failed") and keep(event)
                for event in events
            )
            try:
                response = events.get_final_response()
            except RuntimeError:
                # The SDK has no final response for one that is incomplete; its event holds it.
                if not ended:
                    raise
                response = keep.event.response
    else:
        response = client.responses.create(model="m", input=[hi])
    sent = wire.next(lambda: client.responses.create(model="m", input=[hi, *response.output]))["input"][1:]
    raw = [item.model_dump(mode="json", exclude_unset=True, by_alias=True) for item in response.output]
    answered = [i.get("call_id") for i in raw if i.get("type", "").endswith("_output")]
    usage = response.usage
    details = lambda field, key: getattr(getattr(usage, field, None), key, None)
    texts, thoughts = [], []
    for item in raw:
        if item.get("type") == "message":
            texts += [c.get("text") or c.get("refusal") or "" for c in item.get("content") or []]
        elif item.get("type") == "reasoning":
            thoughts += [c.get("text") or "" for c in item.get("content") or []] or [
                "\n\n".join(c.get("text") or "" for c in item.get("summary") or [])
            ]
    return {
        "ended": ended,
        "status": response.status,
        "store": getattr(response, "store", None),
        "id": response.id,
        "model": response.model,
        "finish": (response.incomplete_details and response.incomplete_details.reason) or response.status,
        "usage": usage
        and figures(
            usage.input_tokens,
            usage.output_tokens,
            usage.total_tokens,
            details("input_tokens_details", "cached_tokens"),
            details("input_tokens_details", "cache_write_tokens"),
            details("output_tokens_details", "reasoning_tokens"),
        ),
        "text": "".join(texts),
        "thinking": "".join(thoughts),
        "calls": [c for c in (openai_call(i, answered) for i in raw) if c],
        "sent": sent,
    }


def keep(event):
    keep.event = event
    return True
