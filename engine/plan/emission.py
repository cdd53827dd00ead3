"""When answers leave: the defaults and refusals of K9, for an aggregate and for a whole query."""

from __future__ import annotations

from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.language.recipes import EmitKind, EmitSpec, WindowKind, WindowSpec
from millstream.engine.language.syntax import Place
from millstream.engine.plan.logical import Aggregate, Filter, Node, Project, RelationToStream, Union, change_position
from millstream.engine.plan.steps import append_only_change
from millstream.engine.plan.window_kinds import PER_WINDOW

STREAM_WORDS = {"i": "ISTREAM", "d": "DSTREAM", "r": "RSTREAM"}


def aggregate_emit(spec: WindowSpec | None, emit: EmitSpec | None, stream: str | None) -> EmitSpec:
    """Return how an aggregate emits: FINAL by default in a window, CHANGES without one. [UNBOUNDED] and [LANDMARK] never end."""
    if spec is None:
        return emit if emit is not None else EmitSpec(EmitKind.CHANGES)
    kind = spec.kind
    if stream is not None and kind in (*PER_WINDOW, WindowKind.LANDMARK):
        raise Unsupported(
            f"{STREAM_WORDS[stream]} over a {kind.value.upper()} window is not supported",
            hint="it answers once per window; leave the word out, or write EMIT CHANGES, or [RANGE d] for what holds at each instant",
        )
    if emit is not None and emit.kind is EmitKind.EVERY and spec.rows_slide > 1:
        raise Unsupported("EMIT EVERY over [ROWS n SLIDE m] is not supported", hint="leave SLIDE or EMIT EVERY out")
    endless = kind in (WindowKind.UNBOUNDED, WindowKind.LANDMARK)
    if endless and (emit is None or emit.kind is EmitKind.FINAL):
        wanted = "EMIT EVERY" if kind is WindowKind.LANDMARK else "EMIT CHANGES or EMIT EVERY"
        raise InvalidDefinition(f"[{kind.value.upper()}] needs {wanted}, as it never closes", hint=f"add {wanted.split(' or ')[0]}")
    return emit if emit is not None else EmitSpec()


def check_empty(emit: EmitSpec, has_keys: bool, spec: WindowSpec | None) -> None:
    """Refuse EMIT EMPTY where it has no meaning (K6)."""
    if not emit.empty:
        return
    if has_keys:
        raise Unsupported("EMIT EMPTY goes with queries without keys only", hint="leave out GROUP BY or EMPTY (K6)")
    if spec is None or spec.kind not in (WindowKind.HOPPING, WindowKind.CUMULATE) or emit.kind is not EmitKind.FINAL:
        raise Unsupported("EMIT EMPTY needs a tumbling or hopping window", hint="write [RANGE … SLIDE …] after the stream's name")


def settled(
    node: Node, emit: EmitSpec | None, stream: str | None, every_us: int | None, place: Place | None = None
) -> tuple[Node, EmitSpec]:
    """Return the plan with its emission carried out at the root, and the emission in force."""
    place = place or Place()
    if stream is not None:
        return _relation_to_stream(node, emit, stream, every_us, place)
    if change_position(node.attributes) is not None:
        return node, EmitSpec(EmitKind.CHANGES)
    if emit is None:
        return node, EmitSpec()
    if emit.kind is EmitKind.CHANGES:
        return append_only_change(node), emit
    if emit.kind is EmitKind.EVERY or emit.empty:
        _check_takes(node, emit, place)
    return node, emit


def _check_takes(node: Node, emit: EmitSpec, place: Place) -> None:
    """EVERY and EMPTY act on the outermost aggregate; only filters and projections may stand between it and the answer."""
    if all(isinstance(n, Aggregate) and n.emit == emit for n in _outermost(node)):
        return
    word = "EMIT EVERY" if emit.kind is EmitKind.EVERY else "EMIT EMPTY"
    hint = "leave it out, or put it on a query whose outermost step is the aggregate"
    raise Unsupported(f"{word} needs an aggregate whose answer it is", hint=hint, line=place.line, column=place.column, token=word)


def _outermost(node: Node) -> list[Node]:
    """Return what decides when answers leave: below projections and filters, in every branch of a union."""
    while isinstance(node, Project | Filter):
        node = node.input
    return [found for branch in node.branches for found in _outermost(branch)] if isinstance(node, Union) else [node]


def _relation_to_stream(node: Node, emit: EmitSpec | None, stream: str, every_us: int | None, place: Place) -> tuple[Node, EmitSpec]:
    at = {"line": place.line, "column": place.column, "token": STREAM_WORDS[stream]}
    if emit is not None:
        message = "EMIT inside ISTREAM, DSTREAM or RSTREAM is not supported"
        raise Unsupported(message, hint="leave EMIT out", **at)  # type: ignore[arg-type]
    change = change_position(node.attributes)
    if change is None:
        if stream == "i":
            return node, EmitSpec()  # every row comes once and never goes
        message = f"{STREAM_WORDS[stream]} of rows that never leave is not supported"
        raise Unsupported(message, hint="write a window after the stream's name", **at)  # type: ignore[arg-type]
    attributes = tuple(a for i, a in enumerate(node.attributes) if i != change)
    return RelationToStream(attributes=attributes, input=node, stream=stream, every_us=every_us), EmitSpec()
