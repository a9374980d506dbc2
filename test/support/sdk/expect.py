"""What the vendors' own SDKs make of recorded answers, as data for the tests.

Each recording is given to its vendor's SDK as the body of a real call of it, over a transport that answers from memory. The SDK
then makes its next request with the answer that it holds, and what it would send is kept: nothing here decides how an answer is
assembled, except for the two SDKs that have no accumulator of their own (botocore, ollama) and for Mistral's stream, whose
chunks are joined as their documentation tells users to do.

    bin/sdk

A line of the input is {"name", "provider", "type" (the content type), "body" (base64)}.
"""

import base64
import hashlib
import json
import sys
import warnings
from importlib.metadata import version

from wire import Wire, call, figures, json_or_text

warnings.filterwarnings("ignore")

PACKAGES = {
    "anthropic": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "openai",
    "gemini": "google-genai",
    "bedrock": "botocore",
    "mistral": "mistralai",
    "ollama": "ollama",
}


def sdk(provider):
    return f"{PACKAGES[provider]} {version(PACKAGES[provider])}"


def is_stream(provider, kind, body):
    if provider == "bedrock":
        return body[:1] == b"\0"
    start = body.lstrip()
    if provider == "ollama":
        return b"\n" in start.rstrip()
    if provider == "gemini" and start[:1] == b"[":
        return True
    return start[:1] != b"{" and start[:1] != b"["


# Anthropic


def anthropic(kind, body, stream):
    import anthropic as package
    import httpx2

    wire = Wire(httpx2, body, "text/event-stream" if stream else "application/json")
    client = package.Anthropic(api_key="x", http_client=wire.client(), max_retries=0, base_url="http://test")
    asked = {"model": "m", "max_tokens": 1000}
    hi = {"role": "user", "content": "Hi"}
    if stream:
        with client.beta.messages.stream(messages=[hi], **asked) as events:
            kinds = [event.type for event in events]
            message = events.get_final_message()
    else:
        message, kinds = client.beta.messages.create(messages=[hi], **asked), ["message_stop"]
    content = message.content
    sent = wire.next(
        lambda: client.beta.messages.create(
            messages=[hi, {"role": "assistant", "content": content}, {"role": "user", "content": "Go on"}], **asked
        )
    )
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return {
        "ended": "message_stop" in kinds,
        "answers": max(kinds.count("message_start"), kinds.count("message_stop")),
        "id": message.id,
        "model": message.model,
        "finish": message.stop_reason,
        "usage": figures((usage.input_tokens or 0) + read + written, usage.output_tokens, None, read, written),
        "text": "".join(b.text for b in content if b.type == "text"),
        "thinking": "".join(b.thinking for b in content if b.type == "thinking"),
        "calls": [call(b.id, b.name, b.input) for b in content if b.type == "tool_use"],
        "sent": content_blocks(sent["messages"][1]["content"]),
    }


def content_blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# Gemini


def gemini(kind, body, stream):
    import httpx2
    from google import genai
    from google.genai import types

    if stream and body.lstrip()[:1] == b"[":
        # The SDK always asks for server-sent events; without it the same chunks are one list.
        body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in json.loads(body))
    # Some fields are known to one of the two services only.
    vertex = b"willContinue" in body or b"partialArgs" in body
    error = {} if stream else json.loads(body).get("error", {})
    wire = Wire(httpx2, body, "text/event-stream" if stream else "application/json", error.get("code", 200))
    options = types.HttpOptions(base_url="http://test", client_args={"transport": httpx2.MockTransport(wire), "verify": False})
    client = genai.Client(vertexai=vertex, api_key="x", http_options=options)
    off = types.GenerateContentConfig(
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), automatic_continuation=False
    )
    hi = types.Content(role="user", parts=[types.Part(text="Hi")])
    if stream:
        chat = client.chats.create(model="m", config=off)
        chunks = list(chat.send_message_stream("Hi"))
        answer = chat.get_history()[1:]
    else:
        chunks = [client.models.generate_content(model="m", contents=[hi], config=off)]
        content = chunks[0].candidates and chunks[0].candidates[0].content
        answer = [content] if content else []
    answer = [content for content in answer if content.parts]
    sent = wire.next(lambda: client.models.generate_content(model="m", contents=[hi, *answer, hi], config=off))
    candidates = [c.candidates[0] for c in chunks if c.candidates]
    parts = [p for content in answer for p in content.parts or []]
    finish = [c.finish_reason for c in candidates if c.finish_reason]
    usage = ([c.usage_metadata for c in chunks if c.usage_metadata] or [None])[-1]
    calls = [p.function_call for p in parts if p.function_call]
    return {
        "pieces": any(c.partial_args or c.will_continue for c in calls),
        "ended": bool(finish),
        "id": ([c.response_id for c in chunks if c.response_id] or [None])[0],
        "model": ([c.model_version for c in chunks if c.model_version] or [None])[-1],
        "finish": finish[-1].name if finish else None,
        "usage": usage
        and figures(
            (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
            (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            usage.total_token_count,
            usage.cached_content_token_count,
            0,
            usage.thoughts_token_count,
        ),
        "text": "".join(p.text or "" for p in parts if not p.thought),
        "thinking": "".join(p.text or "" for p in parts if p.thought),
        "calls": [call(c.id, c.name, c.args or {}) for c in calls],
        "sent": join_gemini(part for content in sent["contents"][1:-1] for part in content.get("parts") or []),
    }


def join_gemini(parts):
    """A chat of the SDK keeps a stream as one content a chunk. A text that was cut into chunks is one text."""
    joined = []
    for part in parts:
        last = joined[-1] if joined else {}
        same = "text" in part and "text" in last and bool(part.get("thought")) == bool(last.get("thought"))
        if same and "thoughtSignature" not in last:
            joined[-1] = {**last, **part, "text": last["text"] + part["text"]}
        else:
            joined.append(part)
    return [part for part in joined if part != {"text": ""}]


# Bedrock


class Body:
    def __init__(self, body):
        self.body = body

    def stream(self):
        yield self.body

    def read(self, *_):
        return self.body

    def close(self):
        pass


_bedrock = []


def bedrock_client():
    if not _bedrock:
        import botocore.session
        from botocore.config import Config

        session = botocore.session.Session()
        session.set_credentials("x", "x")
        _bedrock.append(
            session.create_client("bedrock-runtime", region_name="us-east-1", config=Config(retries={"max_attempts": 0}))
        )
    return _bedrock[0]


def bedrock_send(body, kind, ask):
    from botocore.awsrequest import AWSResponse

    client, sent = bedrock_client(), []

    def answer(request, **_):
        sent.append(request.body)
        return AWSResponse(request.url, 200, {"content-type": kind}, Body(body))

    client.meta.events.register("before-send.bedrock-runtime", answer)
    try:
        return ask(client), sent
    finally:
        client.meta.events.unregister("before-send.bedrock-runtime", answer)


def bedrock(kind, body, stream):
    hi = {"role": "user", "content": [{"text": "Hi"}]}
    ended = True
    if stream:
        ask = lambda client: join_bedrock(client.converse_stream(modelId="m", messages=[hi])["stream"])
        (message, stop, usage, ended), _ = bedrock_send(body, "application/vnd.amazon.eventstream", ask)
    else:
        answer, _ = bedrock_send(body, "application/json", lambda client: client.converse(modelId="m", messages=[hi]))
        message, stop, usage = answer["output"]["message"], answer.get("stopReason"), answer.get("usage")
    content = [block for block in message["content"] if "SDK_UNKNOWN_MEMBER" not in block]
    message = {**message, "content": content}
    _, sent = bedrock_send(
        b'{"output":{"message":{"role":"assistant","content":[]}},"stopReason":"end_turn"}',
        "application/json",
        lambda client: client.converse(modelId="m", messages=[hi, message, hi]),
    )
    uses = [b["toolUse"] for b in content if "toolUse" in b]
    cited = lambda b: "".join(c.get("text", "") for c in b.get("citationsContent", {}).get("content", []))
    read = (usage or {}).get("cacheReadInputTokens", 0)
    written = (usage or {}).get("cacheWriteInputTokens", 0)
    return {
        "ended": ended,
        "id": None,
        "model": None,
        "finish": stop,
        "usage": usage
        and figures(
            usage.get("inputTokens", 0) + read + written, usage.get("outputTokens"), usage.get("totalTokens"), read, written
        ),
        "text": "".join(b.get("text", "") + cited(b) for b in content),
        "thinking": "".join(b["reasoningContent"].get("reasoningText", {}).get("text", "") for b in content if "reasoningContent" in b),
        "calls": [call(u["toolUseId"], u["name"], u["input"]) for u in uses if u.get("type") != "server_tool_use"],
        "sent": json.loads(sent[0])["messages"][1]["content"],
    }


def join_bedrock(events):
    """Botocore yields events; they are joined by the shapes of ContentBlock, as AWS documents ConverseStream."""
    blocks, stop, usage, role = {}, None, None, "assistant"
    for event in events:
        (name, value), = event.items()
        if name == "contentBlockStart":
            (key, start), = value["start"].items()
            block = blocks.setdefault(value["contentBlockIndex"], {})
            block[key] = dict(start)
            if key == "toolUse":
                block[key]["input"] = ""
            elif key == "toolResult":
                block[key]["content"] = []
        elif name == "contentBlockDelta":
            block = blocks.setdefault(value["contentBlockIndex"], {})
            (key, delta), = value["delta"].items()
            if key == "text":
                if "citationsContent" in block:
                    cited = block["citationsContent"]["content"]
                    cited[:] = [{"text": (cited[0]["text"] if cited else "") + delta}]
                else:
                    block["text"] = block.get("text", "") + delta
            elif key == "toolUse":
                block["toolUse"]["input"] += delta["input"]
            elif key == "toolResult":
                block["toolResult"]["content"] += delta
            elif key == "reasoningContent":
                held = block.setdefault("reasoningContent", {})
                if "redactedContent" in delta:
                    held["redactedContent"] = held.get("redactedContent", b"") + delta["redactedContent"]
                else:
                    text = held.setdefault("reasoningText", {"text": ""})
                    for field in ("text", "signature"):
                        if field in delta:
                            text[field] = text.get(field, "") + delta[field]
            elif key == "citation":
                if "citationsContent" not in block:
                    text = block.pop("text", "")
                    block["citationsContent"] = {"content": [{"text": text}] if text else [], "citations": []}
                block["citationsContent"]["citations"].append(delta)
            else:
                block[key] = delta
        elif name == "messageStop":
            stop = value.get("stopReason")
        elif name == "metadata":
            usage = value.get("usage")
    for block in blocks.values():
        if "toolUse" in block:
            text = block["toolUse"]["input"]
            block["toolUse"]["input"] = json.loads(text) if text.strip() else {}
    return {"role": role, "content": [blocks[i] for i in sorted(blocks)]}, stop, usage, stop is not None


# Mistral


def mistral(kind, body, stream):
    import httpx2
    from mistralai.client import Mistral
    from mistralai.client.models import AssistantMessage

    wire = Wire(httpx2, body, "text/event-stream" if stream else "application/json")
    client = Mistral(api_key="x", client=wire.client(), server_url="http://test")
    hi = {"role": "user", "content": "Hi"}
    if stream:
        chunks = [event.data for event in client.chat.stream(model="m", messages=[hi])]
        message = AssistantMessage.model_validate(join_mistral(chunks))
        finish = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
        finish, usage = (finish or [None])[-1], ([c.usage for c in chunks if c.usage] or [None])[-1]
        id, model = chunks[0].id, chunks[0].model
    else:
        answer = client.chat.complete(model="m", messages=[hi])
        message, finish, usage, id, model = answer.choices[0].message, answer.choices[0].finish_reason, answer.usage, answer.id, answer.model
    sent = wire.next(lambda: client.chat.complete(model="m", messages=[hi, message, hi]))
    sent = sent["messages"][1]
    chunks = sent.get("content") or []
    chunks = [{"type": "text", "text": chunks}] if isinstance(chunks, str) else chunks
    usage = usage and usage.model_dump(mode="json")
    return {
        "ended": finish is not None,
        "id": id,
        "model": model,
        "finish": finish,
        "usage": usage
        and figures(
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            usage.get("total_tokens"),
            (usage.get("prompt_tokens_details") or usage.get("prompt_token_details") or {}).get("cached_tokens")
            or usage.get("num_cached_tokens"),
        ),
        "text": "".join(c.get("text") or "" for c in chunks if c.get("type") == "text"),
        "thinking": "".join(
            t.get("text") or ""
            for c in chunks
            if c.get("type") == "thinking"
            for t in (c["thinking"] if isinstance(c["thinking"], list) else [{"text": c["thinking"]}])
        ),
        "calls": [call(c.id, c.function.name, json_or_text(c.function.arguments)) for c in message.tool_calls or []],
        "sent": [sent],
    }


def join_mistral(chunks):
    content, calls = [], {}
    for chunk in chunks:
        for choice in chunk.choices[:1]:
            delta = choice.delta.model_dump(mode="json", exclude_unset=True, by_alias=True)
            pieces = delta.get("content") or []
            for piece in [{"type": "text", "text": pieces}] if isinstance(pieces, str) else pieces:
                last = content[-1] if content else {}
                if piece["type"] == last.get("type") == "text":
                    last["text"] += piece["text"]
                elif piece["type"] == last.get("type") == "thinking":
                    last.update({**piece, "thinking": last["thinking"] + piece["thinking"]})
                else:
                    content.append(piece)
            for c in delta.get("tool_calls") or []:
                held = calls.get(c.get("index") or 0)
                if held is None or (c.get("id") not in (None, "null", held["id"])):
                    calls[c.get("index") or len(calls)] = c
                else:
                    held["function"]["arguments"] += c["function"]["arguments"]
    text_only = all(piece["type"] == "text" for piece in content)
    message = {"role": "assistant", "content": "".join(p["text"] for p in content) if text_only else content}
    return {**message, "tool_calls": list(calls.values())} if calls else message


# Ollama


def ollama(kind, body, stream):
    import httpx
    import ollama as package

    wire = Wire(httpx, body, kind or "application/x-ndjson")
    client = package.Client(host="http://test", transport=httpx.MockTransport(wire))
    hi = {"role": "user", "content": "Hi"}
    if stream:
        chunks = list(client.chat(model="m", messages=[hi], stream=True))
        message = chunks[0].message
        for chunk in chunks[1:]:
            for field in ("content", "thinking"):
                if getattr(chunk.message, field):
                    setattr(message, field, (getattr(message, field) or "") + getattr(chunk.message, field))
            if chunk.message.tool_calls:
                message.tool_calls = [*(message.tool_calls or []), *chunk.message.tool_calls]
        answer = chunks[-1]
    else:
        answer = client.chat(model="m", messages=[hi])
        message = answer.message
    sent = wire.next(lambda: client.chat(model="m", messages=[hi, message]))
    return {
        "ended": bool(answer.done),
        "id": None,
        "model": answer.model,
        "finish": answer.done_reason,
        "usage": figures(answer.prompt_eval_count, answer.eval_count),
        "text": message.content or "",
        "thinking": message.thinking or "",
        "calls": [call(getattr(c, "id", None), c.function.name, dict(c.function.arguments)) for c in message.tool_calls or []],
        "sent": [sent["messages"][1]],
    }


def tidy(provider, part):
    """One form for what means the same: arguments as JSON's value, Gemini's keys and bytes as its API writes them."""
    if isinstance(part, list):
        return [tidy(provider, p) for p in part]
    if not isinstance(part, dict):
        return part
    tidied = {}
    for key, value in part.items():
        if provider == "gemini":
            first, *rest = key.split("_")
            key = first + "".join(word.title() for word in rest)
            if key in ("thoughtSignature", "data") and isinstance(value, str):
                value = value.replace("-", "+").replace("_", "/")
        if key == "arguments":
            value = json_or_text(value)
            value = {} if value in (None, "") else value
        elif key not in ("input", "args", "response"):
            value = tidy(provider, value)
        tidied[key] = value
    return tidied


def reader(provider):
    if provider.startswith("openai"):
        import openai_answers

        return getattr(openai_answers, provider)
    return globals()[provider]



def expect(provider, kind, body):
    """What the SDK holds and would send, or the error it gives."""
    stream = is_stream(provider, kind, body)
    try:
        found = reader(provider)(kind, body, stream)
        return found | {"stream": stream, "sent": [tidy(provider, part) for part in found["sent"]]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:150], "stream": stream}


# A longer text is kept as its digest: enough to compare, and no copy of the recording.
LONGEST = 200


def digest(value):
    if isinstance(value, dict):
        return {key: digest(v) for key, v in value.items()}
    if isinstance(value, list):
        return [digest(v) for v in value]
    if isinstance(value, str) and len(value.encode()) > LONGEST:
        return "md5:" + hashlib.md5(value.encode()).hexdigest()
    return value


def main(recordings, folder):
    """Reads recordings, a JSON object a line, and writes FOLDER/PROVIDER.json for each provider in them."""
    found = {}
    for line in recordings:
        given = json.loads(line)
        expected = expect(given["provider"], given["type"], base64.b64decode(given["body"]))
        found.setdefault(given["provider"], {})[given["name"]] = digest(expected)
    for provider, answers in found.items():
        with open(f"{folder}/{provider}.json", "w") as file:
            lines = (f"    {json.dumps(name)}: {json.dumps(answers[name], ensure_ascii=False)}" for name in sorted(answers))
            file.write('{\n  "sdk": %s,\n  "answers": {\n%s\n  }\n}\n' % (json.dumps(sdk(provider)), ",\n".join(lines)))


if __name__ == "__main__":
    main(sys.stdin, sys.argv[1])
