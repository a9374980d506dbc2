"""Whether the vendors' own SDKs take the fields that hold answers to a schema, and leave the schema as it is.

A line of the input is {"provider", "fields"}. Prints what is wrong, and exits with 1 then.
"""

import json
import sys
import typing
import warnings

warnings.filterwarnings("ignore")


def typed(kind, value, path=""):
    """A typed dictionary has the keys that it needs, and no others."""
    from pydantic import TypeAdapter

    TypeAdapter(kind).validate_python(value)
    known = typing.get_type_hints(kind)
    unknown = set(value) - set(known)
    assert not unknown, f"{path}: {unknown} are not among {sorted(known)}"


def same(made, ours):
    assert made == ours, f"the SDK makes {json.dumps(made, sort_keys=True)}\nof {json.dumps(ours, sort_keys=True)}"


def openai_strict(schema):
    import copy

    from openai.lib._pydantic import _ensure_strict_json_schema

    made = copy.deepcopy(schema)
    same(_ensure_strict_json_schema(made, path=(), root=made), schema)


def openai_chat(fields):
    from openai.types.shared_params import ResponseFormatJSONSchema
    from openai.types.shared_params.response_format_json_schema import JSONSchema

    given = fields.pop("response_format")
    typed(ResponseFormatJSONSchema, given)
    typed(JSONSchema, given["json_schema"])
    openai_strict(given["json_schema"]["schema"])


def openai_responses(fields):
    from openai.types.responses import ResponseFormatTextJSONSchemaConfigParam, ResponseTextConfigParam

    given = fields.pop("text")
    typed(ResponseTextConfigParam, given)
    typed(ResponseFormatTextJSONSchemaConfigParam, given["format"])
    openai_strict(given["format"]["schema"])


def anthropic(fields):
    from anthropic import transform_schema
    from anthropic.types import JSONOutputFormatParam, OutputConfigParam

    given = fields.pop("output_config")
    typed(OutputConfigParam, given)
    typed(JSONOutputFormatParam, given["format"])
    same(transform_schema(given["format"]["schema"]), given["format"]["schema"])


def bedrock(fields):
    from botocore.session import Session
    from botocore.validate import ParamValidator

    shape = Session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    errors = ParamValidator().validate({"modelId": "m", **fields}, shape)
    assert not errors.has_errors(), errors.generate_report()
    config = fields.pop("outputConfig")
    json.loads(config["textFormat"]["structure"]["jsonSchema"]["schema"])


def gemini(fields):
    import httpx
    from google import genai
    from wire import Wire

    config = fields.pop("generationConfig")
    wire = Wire(httpx, b'{"candidates": []}', "application/json")
    options = genai.types.HttpOptions(base_url="http://test", httpx_client=wire.client())
    client = genai.Client(api_key="x", http_options=options)
    own = {"response_mime_type": config["responseMimeType"], "response_json_schema": config["responseJsonSchema"]}
    client.models.generate_content(model="m", contents="Hi", config=own)
    same(json.loads(wire.sent[0])["generationConfig"], config)


def mistral(fields):
    from mistralai.client.models import ResponseFormat

    given = fields.pop("response_format")
    made = ResponseFormat.model_validate(given, strict=True)
    same(json.loads(made.model_dump_json(by_alias=True, exclude_unset=True)), given)


def ollama(fields):
    from ollama._types import ChatRequest

    given = fields.pop("format")
    made = ChatRequest(model="m", messages=[{"role": "user", "content": "Hi"}], format=given)
    same(made.model_dump()["format"], given)


wrong = 0
for line in sys.stdin:
    given = json.loads(line)
    try:
        fields = given["fields"]
        globals()[given["provider"]](fields)
        assert not fields, f"{list(fields)} are not read"
    except Exception as error:
        wrong += 1
        print(f"{given['provider']}: {error}", file=sys.stderr)
sys.exit(1 if wrong else 0)
