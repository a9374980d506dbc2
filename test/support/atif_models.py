# Reads trajectories, one a line, and answers for each one a line: nothing, or what is wrong with it. Judged by the models
# of nvidia-nat-atif and of Harbor, whichever are there; with --which it names them.
import importlib, json, sys

models = {}
for name in ("nat.atif", "harbor.models.trajectories"):
    try:
        models[name] = importlib.import_module(name).Trajectory
    except ImportError:
        pass

if "--which" in sys.argv:
    print(" ".join(models))
    sys.exit(0 if models else 1)

for line in sys.stdin:
    problems = []
    for name, model in models.items():
        try:
            model.model_validate(json.loads(line))
        except Exception as error:
            problems.append(f"{name}: {error}")
    print(" | ".join(problems).replace("\n", " "), flush=True)
