# What the OpenAI SDK of PyPI makes of a door: python openai_client.py FOLDER URL, run by an interpreter that has `openai`. Prints JSON: by
# scenario, the bytes that came and what the program has then.
import json
import sys

import httpx2 as httpx
import openai

url = sys.argv[2]
model = "agent"


class Keeping(httpx.SyncByteStream):
    def __init__(self, stream, sent):
        self.stream, self.sent, self.bytes = stream, sent, []

    def __iter__(self):
        for chunk in self.stream:
            self.bytes.append(chunk)
            yield chunk

    def close(self):
        self.sent.append(b"".join(self.bytes).decode())
        self.stream.close()


class Transport(httpx.HTTPTransport):
    def __init__(self, sent):
        super().__init__()
        self.sent = sent

    def handle_request(self, request):
        response = super().handle_request(request)
        response.stream = Keeping(response.stream, self.sent)
        return response


def client(sent, path="/v1"):
    http = httpx.Client(transport=Transport(sent))
    return openai.OpenAI(api_key="ada", base_url=url + path, max_retries=0, http_client=http)


def streamed(scene):
    sent, events = [], []
    with client(sent).responses.create(model=model, input=scene, stream=True) as stream:
        for event in stream:
            events.append(event.type)
    last = event.response
    return {
        "sent": sent,
        "last": event.type,
        "status": last.status,
        "reason": last.incomplete_details and last.incomplete_details.reason,
        "output": ["".join(part.text for part in item.content) for item in last.output],
        "id": last.id,
        "events": events,
    }


def helper():
    sent, texts = [], []
    with client(sent).responses.stream(model=model, input="think") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
        final = stream.get_final_response()
    return {"sent": sent, "text": "".join(texts), "output_text": final.output_text, "status": final.status}


def whole():
    ask = client([]).responses.create
    one = ask(model=model, input="hello")
    two = ask(model=model, input="hello", previous_response_id=one.id)
    fork = ask(model=model, input="hello", previous_response_id=one.id)
    return {
        "sent": [],
        "output_text": [r.output_text for r in (one, two, fork)],
        "status": one.status,
        "same": two.conversation.id == one.conversation.id,
        "forked": fork.conversation.id != one.conversation.id,
    }


def background():
    responses = client([]).responses
    response = responses.create(model=model, input="slow", background=True)
    first, before, after = response.status, [], []
    with responses.retrieve(response.id, stream=True) as stream:
        for event in stream:
            before.append(event)
            if len(before) == 10:
                break
    number, began = before[-1].sequence_number, before[0].response.id
    with responses.retrieve(began, stream=True, starting_after=number) as stream:
        after = list(stream)
    text = "".join(e.delta for e in before + after if e.type == "response.output_text.delta")
    response = responses.retrieve(response.id)
    return {"sent": [], "first": first, "text": text, "status": response.status, "same": response.output_text == text}


def cancel():
    responses = client([]).responses
    response = responses.create(model=model, input="slow", background=True)
    cancelled = responses.cancel(response.id)
    return {"sent": [], "status": cancelled.status, "later": responses.retrieve(response.id).status}


def errors():
    found = []
    for more in ({"instructions": "x"}, {"model": "gpt"}, {"previous_response_id": "resp_1"}, {"conversation": "eve-1"}):
        try:
            client([]).responses.create(**{"model": model, "input": "hello", **more})
        except openai.APIStatusError as error:
            found.append([type(error).__name__, error.status_code, error.code, error.param])
    return {"sent": [], "errors": found}


def rows():
    sent = []
    with client(sent, "/rows").responses.create(model=model, input="rows", stream=True) as stream:
        events = [event.type for event in stream]
    return {"sent": sent, "events": events}


scenes = ["hello", "think", "two calls", "cut", "refused", "retry", "ask"]
scenarios = {scene: streamed(scene) for scene in scenes}
for play in (helper, whole, background, cancel, errors, rows):
    scenarios[play.__name__] = play()
print(json.dumps({"scenarios": scenarios}, indent=1))
