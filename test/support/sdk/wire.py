"""What each SDK is given and asked in the same way."""

import json


class Wire:
    """A transport that answers the first request with a recording, and keeps the body of the next."""

    def __init__(self, httpx, body, kind, status=200):
        self.httpx, self.body, self.kind, self.status, self.sent = httpx, body, kind, status, []

    def __call__(self, request):
        self.sent.append(request.read())
        if len(self.sent) > 1:
            raise Sent()
        return self.httpx.Response(self.status, headers={"content-type": self.kind}, content=self.body)

    def client(self):
        return self.httpx.Client(transport=self.httpx.MockTransport(self))

    def next(self, send):
        try:
            send()
        except Exception:
            if len(self.sent) < 2:
                raise
        return json.loads(self.sent[-1])


class Sent(Exception):
    pass


def json_or_text(text):
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def figures(input=0, output=0, total=None, cached=0, written=0, reasoning=0):
    n = lambda x: x or 0
    return {
        "input_tokens": n(input),
        "output_tokens": n(output),
        "total_tokens": n(input) + n(output) if total is None else total,
        "cached_tokens": n(cached),
        "cache_write_tokens": n(written),
        "reasoning_tokens": n(reasoning),
    }


def call(id, name, arguments, kind=None):
    arguments = arguments if kind or arguments not in (None, "") else {}
    return {"id": id, "name": name, "arguments": arguments, "kind": kind}
