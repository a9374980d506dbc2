# Reads traces, one a line as {"protobuf": base64, "json": {...}}, and answers for each one a line: nothing, or what is wrong
# with it. The bytes are decoded by the package opentelemetry-proto, and have to say what the JSON says; what was said is
# judged by the JSON schemas of the semantic conventions, whose folder is the argument. With --which it names the packages.
import base64, importlib.metadata, json, pathlib, sys

try:
    import jsonschema
    from google.protobuf import json_format
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
except ImportError:
    sys.exit(1)

if "--which" in sys.argv:
    for name in ("opentelemetry-proto", "jsonschema"):
        print(f"{name}-{importlib.metadata.version(name)}")
    sys.exit(0)

SCHEMAS = {
    "gen_ai.input.messages": "gen-ai-input-messages.json",
    "gen_ai.output.messages": "gen-ai-output-messages.json",
    "gen_ai.system_instructions": "gen-ai-system-instructions.json",
    "gen_ai.tool.definitions": "gen-ai-tool-definitions.json",
}

validators = {}
for key, name in SCHEMAS.items():
    schema = json.loads((pathlib.Path(sys.argv[1]) / name).read_text())
    validators[key] = jsonschema.Draft202012Validator(schema)


def check(case):
    traces = TracesData.FromString(base64.b64decode(case["protobuf"]))
    for resource in case["json"]["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                # The format's one deviation from Protobuf's own JSON.
                for ids in [span, *span.get("links", [])]:
                    for key in ("traceId", "spanId", "parentSpanId"):
                        if key in ids:
                            ids[key] = base64.b64encode(bytes.fromhex(ids[key])).decode()
                for attribute in span["attributes"]:
                    if attribute["key"] in validators:
                        value = json.loads(attribute["value"]["stringValue"])
                        for error in validators[attribute["key"]].iter_errors(value):
                            yield f"{attribute['key']}: {error.message}"
    told = json_format.ParseDict(case["json"], TracesData())
    for traces_of in (traces, told):
        for span in traces_of.resource_spans[0].scope_spans[0].spans:
            if not span.HasField("status"):
                span.status.SetInParent()
    if traces != told:
        yield "the bytes and the JSON differ"


for line in sys.stdin:
    try:
        problems = list(check(json.loads(line)))
    except Exception as error:
        problems = [repr(error)]
    print(" | ".join(problems).replace("\n", " "), flush=True)
