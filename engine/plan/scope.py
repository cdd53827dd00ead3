"""Finding a column by name among the attributes of a FROM clause."""

from __future__ import annotations

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, UnknownName
from millstream.engine.data.nearest import did_you_mean, listed
from millstream.engine.data.records import dataclass
from millstream.engine.language.dialect import walked
from millstream.engine.language.statements import Place
from millstream.engine.plan.logical import Attribute, Attributes, Role
from sqlglot import exp

WINDOW_TIME = "window_time"


class AmbiguousName(UnknownName):
    """A name that several columns answer to."""


def place_of(node: exp.Expr) -> Place | None:
    """Return where an expression begins in the text: the least place that one of its parts carries."""
    best: tuple[int, int] | None = None
    for part in walked(node):
        line, column = part.meta.get("line"), part.meta.get("col")
        if line is not None and column is not None and (best is None or (line, column) < best):
            best = (line, column)
    return None if best is None else Place(*best)


def located(problem: EngineError, node: exp.Expr) -> EngineError:
    """Return the error with the place of `node`, unless it has one."""
    if problem.line is None:
        place = place_of(node)
        if place is not None:
            problem.line, problem.column = place.line, place.column
    return problem


def folded(identifier: exp.Expr | None) -> str | None:
    """Return the name an identifier stands for: as it is when quoted, else in lower case."""
    if identifier is None:
        return None
    if isinstance(identifier, exp.Identifier) and identifier.args.get("quoted"):
        return str(identifier.this)
    return str(identifier.name).lower()


@dataclass(frozen=True, slots=True)
class Scope:
    """Attributes by position. `hints` explains names that are not there for a reason, such as a windows' bounds in a join."""

    attributes: Attributes
    hints: tuple[tuple[str, str], ...] = ()

    def qualifiers(self) -> tuple[str, ...]:
        """Return the aliases in order."""
        return tuple(dict.fromkeys(a.qualifier for a in self.attributes if a.qualifier))

    def find(self, name: str, qualifier: str | None = None) -> int:
        """Return the position of a column; UnknownName with the nearest name, or AmbiguousName."""
        spend(len(self.attributes) // 8)
        found = [
            i
            for i, a in enumerate(self.attributes)
            if (a.called or a.name) == name and a.role is not Role.CHANGE and _answers_to(a, qualifier)
        ]
        if len(found) == 1:
            return found[0]
        if not found:
            bound = self._bound_of_joined_window(name, qualifier)
            if bound is not None:
                return bound
            raise self._unknown(name, qualifier)
        roles = {self.attributes[i].role for i in found}
        if len(roles) == 1 and Role.PLAIN not in roles:
            return found[0]  # the bounds of windows that are joined are equal
        aliases = sorted({f"{self.attributes[i].qualifier}.{name}" for i in found if self.attributes[i].qualifier})
        hint = f"write {' or '.join(aliases)}" if len(aliases) > 1 else "give the columns different names with AS"
        raise AmbiguousName(f"column {name} is ambiguous", hint=hint, token=name)

    def _bound_of_joined_window(self, name: str, qualifier: str | None) -> int | None:
        """a.window_start of tumbling windows that were joined: both sides' bounds are equal and stand once."""
        if qualifier not in self.qualifiers():
            return None
        return next((i for i, a in enumerate(self.attributes) if a.name == name and a.role is not Role.PLAIN and a.qualifier is None), None)

    def mend_of(self, name: str, qualifier: str | None) -> str | None:
        """Return why a name is not there, or the one that is nearest to it; None where there is nothing of that kind to say."""
        if qualifier is not None and qualifier not in self.qualifiers():
            return did_you_mean(qualifier, self.qualifiers())
        reason = next((reason for known, reason in self.hints if known == name), None)
        return reason or did_you_mean(name, self._words(qualifier))

    def _words(self, qualifier: str | None) -> list[str]:
        return [a.word for a in self.attributes if qualifier in (None, a.qualifier)]

    def _unknown(self, name: str, qualifier: str | None) -> UnknownName:
        mend = self.mend_of(name, qualifier)
        if qualifier is not None and qualifier not in self.qualifiers():
            return UnknownName(f"there is no {qualifier} in FROM", hint=mend or listed(self.qualifiers(), "names"), token=qualifier)
        shown = f"{qualifier}.{name}" if qualifier else name
        return UnknownName(f"there is no column {shown}", hint=mend or listed(self._words(qualifier), "columns"), token=name)

    def of_role(self, role: Role) -> int | None:
        """Return the position of the first attribute with a role, or None."""
        return next((i for i, a in enumerate(self.attributes) if a.role is role), None)

    def attribute(self, position: int) -> Attribute:
        """Return the attribute at a position."""
        return self.attributes[position]


def _answers_to(attribute: Attribute, qualifier: str | None) -> bool:
    return not attribute.covered if qualifier is None else attribute.qualifier == qualifier
