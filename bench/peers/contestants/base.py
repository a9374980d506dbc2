"""What the Python contestants share: commands come in lines, and `done` goes back."""

import asyncio
import gc
import json
import logging
import os
import sys

URL = sys.argv[1] if len(sys.argv) > 1 else ""
FILE = os.environ.get("PEERS_FILE", "")


def found(query: str) -> str:
    return f"found {query}"


# The conversation of bench/stores.exs: 4 messages a turn, of 2.7 KB each, with words that a search can tell apart.
TURNS = 125


def words(n, count):
    return " ".join(f"word{k * (n + 7) * 7919 % 5003}" for k in range(1, count + 1))


def turn(n):
    """Role, text, and the call's id and arguments as a model writes them."""
    arguments = json.dumps({"path": f"lib/file_{n}.ex", "text": words(n, 60)}, separators=(",", ":"))
    return [
        ("assistant", words(n, 200), (f"call_{n}", arguments)),
        ("tool", words(n + 1, 700), (f"call_{n}", None)),
        ("assistant", words(n + 2, 200), None),
        ("user", words(n + 3, 100), None),
    ]


class Saves:
    """Conversations to save and turns to append, in the form of a library that `write` gets. An id is saved once."""

    def __init__(self, form, write):
        self.form, self.write, self.last = form, write, 0

    def prepare(self, conversations, appends):
        def whole():
            return [self.form([("user", "Begin.", None)])] + [self.form(turn(n)) for n in range(1, TURNS + 1)]

        self.ready = [[message for part in whole() for message in part] for _ in range(conversations)]
        self.more = [self.form(turn(TURNS + n)) for n in range(1, appends + 1)]
        gc.collect()

    async def save(self):
        for messages in self.ready:
            self.last += 1
            await self.write(f"c{self.last}", messages)

    async def append(self):
        for messages in self.more:
            await self.write(f"c{self.last}", messages)


async def serve(turns, stream, saves):
    # A library's logger that is left at debug costs more than the library.
    logging.disable(logging.WARNING)
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, *numbers = line.split()
        if what == "turns":
            await turns(int(numbers[0]))
        elif what == "many":
            await many(turns, *map(int, numbers))
        elif what == "prepare":
            saves.prepare(*map(int, numbers))
        elif what in ("save", "append"):
            await getattr(saves, what)()
        elif what != "settle":
            await stream(f"{what}-{numbers[0]}")
        print("done", flush=True)


async def many(turns, conversations, length):
    await asyncio.gather(*[turns(length) for _ in range(conversations)])


def main(turns, stream, saves):
    asyncio.run(serve(turns, stream, saves))
