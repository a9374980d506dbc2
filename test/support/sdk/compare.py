"""compare.py KEPT MADE: fails where what was made differs from what is kept. Recordings that are not here are no difference."""

import json
import sys
from pathlib import Path

kept_in, made_in = map(Path, sys.argv[1:])
failed = False
for made_file in sorted(made_in.glob("*.json")):
    kept = json.loads((kept_in / made_file.name).read_text())
    made = json.loads(made_file.read_text())
    different = [name for name, answer in made["answers"].items() if kept["answers"].get(name) != answer]
    different += [key for key in ("sdk",) if kept[key] != made[key]]
    print(f"{made['sdk']}: {len(made['answers'])} of {len(kept['answers'])} recordings are here, {len(different)} differ")
    for name in different:
        print(f"  {name}")
    failed = failed or different != []
sys.exit(1 if failed else 0)
