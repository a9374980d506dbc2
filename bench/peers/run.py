"""The same work by the contestants that are there, interleaved: CPU time and memory of each one's own process, and the bytes it
sent. See README.md. Needs nothing but Python, and rustc for the server.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
PYTHON = os.environ.get("PEERS_PYTHON", str(ROOT / "_build/peers/python/bin/python"))
NODE = os.environ.get("PEERS_NODE", str(ROOT / "_build/peers/node"))
BEAM = os.environ.get("PEERS_BEAM", str(ROOT / "_build/prod/lib"))
LANGCHAIN = os.environ.get("PEERS_LANGCHAIN", str(ROOT / "_build/peers/elixir/prod/lib"))
# The command, which may be in another root directory.
ELIXIR = os.environ.get("PEERS_ELIXIR", "elixir").split()
TICKS = os.sysconf("SC_CLK_TCK")

# Whoever waits actively would be charged for waiting: schedulers that do are told not to.
QUIET = "+sbwt none +sbwtdcpu none +sbwtdio none"


class Missing(Exception):
    pass


def ours(url):
    return elixir(BEAM, "ash_agent_*", "AshAgent.Runtime", "ash_agent.exs", url)


def langchain(url):
    return elixir(LANGCHAIN, "*", "LangChain.Function", "langchain.exs", url)


def elixir(folder, libraries, module, script, url):
    found = sorted(pathlib.Path(folder).glob(libraries + "/ebin"))
    command = [*ELIXIR, "--erl", QUIET, *(argument for path in found for argument in ("-pa", str(path)))]
    # It may have been compiled for another VM.
    if subprocess.run([*command, "-e", f"Code.ensure_loaded!({module})"], capture_output=True).returncode != 0:
        raise Missing(f"{module} cannot be loaded from {folder}")
    return [*command, str(HERE / "contestants" / script), url]


def python(module, script):
    def command(url):
        has = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True) if os.path.exists(PYTHON) else None
        if has is None or has.returncode != 0:
            raise Missing(f"{module} is not installed for {PYTHON}")
        return [PYTHON, str(HERE / "contestants" / script), url]

    return command


def node(url):
    if not os.path.exists(f"{NODE}/node_modules/ai"):
        raise Missing(f"ai is not installed in {NODE}")
    return ["node", str(HERE / "contestants/ai.mjs"), url]


CONTESTANTS = {
    "ash_agent": ours,
    "LangChain": langchain,
    "pydantic-ai": python("pydantic_ai", "pydantic_ai_.py"),
    "openai-agents": python("agents", "openai_agents_.py"),
    "LangGraph": python("langgraph.checkpoint.sqlite", "langgraph_.py"),
    "Vercel ai": node,
}

# Nothing in their documentation stores a conversation.
WITHOUT_A_STORE = {"LangChain"}


class Contestant:
    def __init__(self, name, url, folder):
        self.name = name
        self.file = pathlib.Path(folder) / name
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            CONTESTANTS[name](url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "PEERS_NODE": NODE, "PEERS_FILE": str(self.file), "OPENAI_API_KEY": "key", "MIX_ENV": "prod"},
            text=True,
        )
        try:
            self.expect("ready")
        except SystemExit:
            self.stop()
            raise

    def expect(self, word):
        line = self.process.stdout.readline().strip()
        if line != word:
            self.errors.seek(0)
            sys.exit(f"{self.name} said {line!r}:\n{self.errors.read().decode()[-2000:]}")

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.expect("done")

    def cpu(self):
        """Seconds of all threads, from the kernel, so that every contestant is measured alike."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stored(self):
        """Bytes of its files, with nothing left in a log."""
        if self.file.exists():
            connection = sqlite3.connect(self.file)
            connection.execute("pragma wal_checkpoint(truncate)")
            connection.close()
        return sum(path.stat().st_size for path in self.file.parent.glob(self.name + "*"))

    def stop(self):
        self.process.kill()
        self.process.wait()


def measure(contestant, command, units, least, stats):
    """CPU microseconds and bytes sent a unit. It is done again until the kernel's ticks of 10 ms are a small part."""
    stats()
    before, times = contestant.cpu(), 0
    while contestant.cpu() - before < least and times < 2_000:
        contestant.do(command)
        times += 1
    used = contestant.cpu() - before
    return used * 1e6 / units / times, stats()["bytes"] / units / times


def measure_saves(contestant, saves, appends):
    """CPU and wall milliseconds of a first save and of an append, and the megabytes of a save. What is written behind a save
    counts as its CPU, not as its time."""
    found = []
    contestant.do(f"prepare {saves} {appends}")
    size = contestant.stored()
    for command, times in [("save", saves), ("append", appends)]:
        before, began = contestant.cpu(), time.monotonic()
        contestant.do(command)
        took = time.monotonic() - began
        contestant.do("settle")
        found += [(contestant.cpu() - before) * 1e3 / times, took * 1e3 / times]
        if command == "save":
            found.append((contestant.stored() - size) / 1e6 / times)
    return found


def versions(names):
    lines = [subprocess.run([*ELIXIR, "--version"], capture_output=True, text=True).stdout.strip().splitlines()[-1]]
    script = (
        "import importlib.metadata as m, sys\nprint('Python', sys.version.split()[0])\n"
        "for p in sys.argv[1:]:\n try: print(p, m.version(p))\n except m.PackageNotFoundError: pass"
    )
    if os.path.exists(PYTHON):
        packages = ["pydantic-ai-slim", "openai-agents", "langgraph", "langgraph-checkpoint-sqlite", "langchain-openai", "openai"]
        lines += subprocess.run([PYTHON, "-c", script, *packages], capture_output=True, text=True).stdout.splitlines()
    for package in ["ai", "@ai-sdk/openai-compatible"]:
        path = pathlib.Path(NODE) / "node_modules" / package / "package.json"
        if path.exists():
            lines.append(f"{package} {json.loads(path.read_text())['version']}")
    if os.path.exists(f"{NODE}/node_modules/ai"):
        lines.append("Node " + subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip())
    if "LangChain" in names:
        application = pathlib.Path(LANGCHAIN) / "langchain/ebin/langchain.app"
        lines.append("LangChain " + re.search(r'{vsn, *"([^"]+)"}', application.read_text()).group(1))
    cpu = [line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{cpu[0] if cpu else os.uname().machine}, {os.cpu_count()} cores; " + ", ".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="once, and short: shows that everything works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="tasks whose command begins so")
    given = parser.parse_args()
    quick = given.quick
    rounds, least, warm = (1, 0.1, 0.01) if quick else (given.rounds, 1.0, 3.0)

    folder = tempfile.mkdtemp()
    subprocess.run(["rustc", "--edition", "2021", "-O", "-o", f"{folder}/server", str(HERE / "server.rs")], check=True)
    server = subprocess.Popen([f"{folder}/server"], stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    stats = lambda: json.load(urllib.request.urlopen(f"{url}/stats"))

    pieces = 2_000 if quick else 20_000
    tasks = [
        ("a turn of 10", "turns 10", 10),
        ("a turn of 50", "turns 50", 50),
        ("a turn of 200", "turns 200", 200),
        (f"a streamed piece of {pieces:,}", f"pieces {pieces}", pieces),
        ("200 conversations of 10 at once, a turn", "many 200 10", 2_000),
    ]
    saves, appends = (2, 3) if quick else (20, 50)
    if quick:
        tasks = tasks[:1] + tasks[3:4] + [("20 conversations of 10 at once, a turn", "many 20 10", 200)]
    tasks = [task for task in tasks if task[1].startswith(given.only)]
    does_save = "save".startswith(given.only)

    contestants = []
    try:
        for name in CONTESTANTS:
            try:
                contestants.append(Contestant(name, f"{url}/v1", folder))
            except Missing as why:
                print(f"{name} is left out: {why}", file=sys.stderr)
        for contestant in contestants:
            for command in ["turns 10", "turns 50"] if tasks else []:
                measure(contestant, command, 1, warm, stats)
        measured = {}
        for _ in range(rounds):
            for _title, command, units in tasks:
                for contestant in contestants:
                    found = measure(contestant, command, units, least, stats)
                    measured.setdefault((command, contestant.name), []).append(found)
        memory = [contestant.memory() for contestant in contestants]
        stored = {contestant.name: [] for contestant in contestants}
        stores = [contestant for contestant in contestants if does_save and contestant.name not in WITHOUT_A_STORE]
        for contestant in stores:
            measure_saves(contestant, 2, 3)
        for _ in range(rounds):
            for contestant in stores:
                stored[contestant.name].append(measure_saves(contestant, saves, appends))
        print(f"{versions([contestant.name for contestant in contestants])}\n")
        print("| CPU, us (bytes sent) | " + " | ".join(c.name for c in contestants) + " |")
        print("|---|" + "--:|" * len(contestants))
        for title, command, _units in tasks:
            cells = []
            for contestant in contestants:
                times, sent = zip(*measured[command, contestant.name])
                spread = (max(times) - min(times)) / statistics.median(times) * 100
                cell = f"{statistics.median(times):,.1f} ±{spread / 2:.0f} %"
                sent = statistics.median(sent)
                cells.append(f"{cell} ({sent:,.0f})" if sent >= 1 else cell)
            print(f"| {title} | " + " | ".join(cells) + " |")
        print("| memory after that, MB | " + " | ".join(f"{used:,.0f}" for used in memory) + " |")
        titles = ["CPU of a first save of 501 messages, ms", "its time, ms", "its file, MB", "CPU of an append of 4, ms", "its time, ms"]
        for position, title in enumerate(titles if does_save else []):
            found = [[round[position] for round in stored[contestant.name]] for contestant in contestants]
            print(f"| {title} | " + " | ".join(f"{statistics.median(times):,.2f}" if times else "–" for times in found) + " |")
        for command in [command for _, command, _ in tasks if command.startswith("turns")]:
            sent = {c.name: statistics.median(b for _, b in measured[command, c.name]) for c in contestants}
            if min(sent.values()) * 1.5 < max(sent.values()):
                sys.exit(f"somebody did less: {sent}")
    finally:
        for contestant in contestants:
            contestant.stop()
        server.kill()
        shutil.rmtree(folder)


main()
