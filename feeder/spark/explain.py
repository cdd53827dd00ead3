"""How the queries of a script would be cut, in words."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.engine.language.recipes import AggregateRecipe, ProjectRecipe
from millstream.engine.plan.physical import PhysicalNode, SourceNode
from millstream.engine.plan.text import expression_text
from millstream.feeder.spark.cuts import ANYWHERE, BY_KEY, MERGEABLE, ONE_PLACE, Cut
from millstream.feeder.spark.cutting import cut, lowest_kept
from millstream.feeder.spark.nodes import is_anywhere, name_of, schema_of
from millstream.feeder.spark.script import Node, read_script

_WAYS = {
    ANYWHERE: "runs where the rows are; nothing is shuffled",
    BY_KEY: "all rows of a key are brought together",
    MERGEABLE: "each stretch of rows is aggregated where it is, then the parts are merged",
}


def explained(text: str) -> Iterator[str]:
    """Yield the lines. Raises the engine's errors for the script."""
    script = read_script(text)
    if script.whole is not None:
        yield f"the whole script runs in one task: {script.whole}"
        return
    for number, query in enumerate(script.queries):
        if number:
            yield ""
        found = cut(query.root)
        yield f"{query.name}: {_WAYS.get(found.label, f'runs in one place: {found.reason}')}"
        lines = _labelled(query.root, found)
        width = max(len(operator) for operator, _ in lines)
        for operator, label in lines:
            yield f"  {operator.ljust(width)}  {label}"
        yield from _shuffles(found)


def _aggregates_named(node: PhysicalNode) -> str:
    """Return the aggregates with what they are asked of, as in `COUNT(*), SUM(v) FILTER (WHERE w > 3) hopping window`; else nothing."""
    recipe = node.recipe
    if not isinstance(recipe, AggregateRecipe) or not recipe.aggregates:
        return ""
    below = node.inputs[0].node
    if isinstance(below, PhysicalNode) and isinstance(below.recipe, ProjectRecipe):
        names = [field.name for field in schema_of(below.inputs[0].node).fields]
        texts = [expression_text(column, names.__getitem__) for column in below.recipe.columns]
    else:
        texts = [field.name for field in schema_of(below).fields]
    calls = []
    for call in recipe.aggregates:
        arguments = ", ".join(texts[at] for at in call.arguments) or "*"
        condition = "" if call.filter is None else f" FILTER (WHERE {texts[call.filter]})"
        calls.append(f"{call.function.upper()}({'DISTINCT ' if call.distinct else ''}{arguments}){condition}")
    return ", ".join(calls) + ("" if recipe.window is None else f" {recipe.window.kind.value} window")


def _shuffles(found: Cut) -> Iterator[str]:
    if found.second is None:
        return
    for exchange in found.exchanges:
        names = [schema_of(exchange.root).fields[k].name for k in exchange.keys]
        by = f"by {', '.join(names)}" if names else "to one bucket"
        yield f"  shuffle: rows of {', '.join(exchange.streams)} {by}"
    if found.rest is not None:
        yield f"  then in one place: {found.reason}"


def _labelled(root: Node, found: Cut) -> list[tuple[str, str]]:
    """Return each operator with its label, the streams first."""
    lines: list[tuple[str, str]] = []
    seen: set[int] = set()
    lowest = lowest_kept(root) if found.rest is not None else None

    def visit(node: Node, above: bool) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        here = above and node is not lowest
        if isinstance(node, SourceNode):
            name = f"read {node.stream}"
        else:
            name = _aggregates_named(node) or name_of(node.recipe)
            for ref in node.inputs:
                visit(ref.node, here)
        one = found.label == ONE_PLACE or here
        lines.append((name, ONE_PLACE if one else ANYWHERE if is_anywhere(node) else found.label))

    visit(root, lowest is not None)
    return lines
