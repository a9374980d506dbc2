"""What the Python contestants share: commands come in lines, and `done` goes back."""

import asyncio
import logging
import sys

URL = sys.argv[1] if len(sys.argv) > 1 else ""


def found(query: str) -> str:
    return f"found {query}"


async def serve(turns, stream):
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
        else:
            await stream(f"{what}-{numbers[0]}")
        print("done", flush=True)


async def many(turns, conversations, length):
    await asyncio.gather(*[turns(length) for _ in range(conversations)])


def main(turns, stream):
    asyncio.run(serve(turns, stream))
