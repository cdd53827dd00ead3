"""Writes the parts of the reference that come from the code: messages, states, error codes, test vectors.

    python -m tests.support.reference          # from the root; rewrites docs/protocol.md, docs/errors.md and vectors.json

Tests compare the files with what this would write, so the reference cannot lie.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, get_type_hints

from millstream.protocol import limits
from millstream.protocol.codec import FORMS, Encoder
from millstream.protocol.errors import CODES, OLDER_CODES
from millstream.protocol.framing import build_frame
from millstream.protocol.messages import Message
from millstream.protocol.states import CLIENT_WORDS, SERVER_WORDS, TRANSITIONS

from tests.support.conversations import CONVERSATION
from tests.support.pairs import joined

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT / "docs" / "protocol.md"
ERRORS = ROOT / "docs" / "errors.md"
VECTORS = ROOT / "tests" / "protocol" / "vectors.json"
TYPE_NAMES: dict[Any, str] = {
    int: "number",
    str: "text",
    bool: "boolean",
    int | None: "number or nil",
    str | None: "text or nil",
    bytes | None: "bytes or nil",
    list[Any]: "list",
    list[int]: "list of numbers",
    dict[str, Any]: "map",
    dict[str, Any] | None: "map or nil",
}


def diagram() -> str:
    """Return the table as a Mermaid state diagram: transitions that change the state, and one line for those that stay."""
    lines = ["stateDiagram-v2", "    [*] --> START"]
    for (state, speaker), words in TRANSITIONS.items():
        for word, next_state in words.items():
            if next_state is not state:
                lines.append(f"    {state.name} --> {next_state.name}: {speaker.value} says {word}")
        staying = sum(next_state is state for next_state in words.values())
        if staying:
            lines.append(f"    {state.name} --> {state.name}: {speaker.value} says any of {staying} others")
    lines.append("    CLOSED --> [*]")
    return "\n".join(lines)


def speakers(kind: str) -> str:
    """Return who may say a message of this kind."""
    return {(True, True): "both ways", (True, False): "client to server", (False, True): "server to client"}[
        kind in CLIENT_WORDS, kind in SERVER_WORDS
    ]


def messages() -> str:
    """Return the reference of all messages: a heading, the docstring, the fields."""
    parts = []
    for kind, form in FORMS.items():
        text = inspect.cleandoc(form.message_class.__doc__ or "")
        parts.append(f"### {kind}\n\n*{speakers(kind)}.* {text}\n")
        rows = [f"| `{field.name}` | {type_name(form.message_class, field.name)} | {default_of(field)} |" for field in form.fields]
        if form.takes_payload:
            rows.append("| *payload* | bytes | see above |")
        parts.append("| field | type | when left out |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def type_name(message_class: type[Message], name: str) -> str:
    """Return how the reference calls a field's type."""
    return TYPE_NAMES[get_type_hints(message_class)[name]]


def default_of(field: Any) -> str:
    """Return what a field is when it is left out."""
    if field.required:
        return "required"
    words = {None: "nil", True: "true", False: "false"}
    if isinstance(field.default, list | dict):
        return "empty"
    return words[field.default] if field.default is None or isinstance(field.default, bool) else f"`{json.dumps(field.default)}`"


def limits_table() -> str:
    """Return the limits a client must know."""
    names = [
        "GREETING_FRAME_BYTES_MAX",
        "FRAME_BYTES_MAX",
        "HEADER_BYTES_MAX",
        "MESSAGE_ROWS_MAX",
        "TRAIN_ROWS_MAX",
        "ARRAY_ITEMS_MAX",
        "MAP_ITEMS_MAX",
        "CONTAINERS_MAX",
        "NESTED_BYTES_MAX",
        "ANSWER_CREDIT_BYTES",
        "REQUESTS_MAX",
        "CHANNELS_MAX",
        "SUBSCRIPTIONS_MAX",
        "PRODUCER_NAME_BYTES_MAX",
        "POSITION_BYTES_MAX",
        "REJECTIONS_LISTED_MAX",
    ]
    return "| limit | value |\n|---|---|\n" + "\n".join(f"| `{name}` | {getattr(limits, name):,} |" for name in names)


def replaced(text: str, name: str, content: str) -> str:
    """Return `text` with what lies between the markers of `name` replaced."""
    begin, end = f"<!-- {name}: written by tests/support/reference.py -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def protocol_text(text: str) -> str:
    """Return docs/protocol.md with its generated parts as they should be."""
    text = replaced(text, "states", f"```mermaid\n{diagram()}\n```")
    text = replaced(text, "limits", limits_table())
    return replaced(text, "messages", messages())


def errors_text() -> str:
    """Return docs/errors.md as it should be."""
    rows = "\n".join(f"| `{code}` | {meaning} | {mend} |" for code, (meaning, mend) in CODES.items())
    newer = " ".join(
        f"`{code}` is new in version {since} of the protocol; clients of an older version get `{older}` instead."
        for code, (since, older) in OLDER_CODES.items()
    )
    return f"""# Error codes

Every error that the server reports, and every `MillstreamError` of the Python client, has one of these codes. The list is closed: a
new code needs a new protocol version. An error also has a sentence that says what is wrong. Where they are known, it has the line,
column and token of the statement, and a hint how to fix it.

{newer}

| code | meaning | what to do |
|---|---|---|
{rows}
"""


def vectors() -> list[dict[str, Any]]:
    """Return every message of the sample conversation with its frame in hexadecimal; bytes in a field are `{"hex": …}`."""
    encoder, result = Encoder(), []
    for speaker, message in CONVERSATION:
        payload = getattr(message, "payload", None)
        header = encoder.encode(message)
        buffers, _ = build_frame(header, payload, limits.FRAME_BYTES_MAX)
        fields = {
            name: {"hex": value.hex()} if isinstance(value, bytes) else value
            for name in message.__dataclass_fields__
            if name != "payload" and (value := getattr(message, name)) is not None and value not in ([], {})
        }
        form = next(form for form in FORMS.values() if form.message_class is type(message))
        entry = {"speaker": speaker.value, "kind": form.kind, "fields": fields, "frame": joined(buffers).hex()}
        if payload is not None:
            entry["payload"] = bytes(payload).hex()  # type: ignore[arg-type]
        result.append(entry)
    return result


def vectors_text() -> str:
    """Return vectors.json as it should be: one vector a line."""
    return "[\n" + ",\n".join(json.dumps(vector) for vector in vectors()) + "\n]\n"


def write() -> None:
    """Rewrite all three files."""
    PROTOCOL.write_text(protocol_text(PROTOCOL.read_text()))
    ERRORS.write_text(errors_text())
    VECTORS.write_text(vectors_text())


if __name__ == "__main__":
    write()
