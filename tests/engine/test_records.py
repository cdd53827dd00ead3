"""Records: like the standard library's data classes with slots in everything, but written when first used."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import ClassVar

import pytest
from millstream.engine.data.records import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A frozen one with a default, and a class variable that is no field."""

    KIND: ClassVar[str] = "point"

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class Named(Point):
    """One that inherits, with a default of its own for an inherited field, and a check."""

    y: int = field(default=7)
    name: str = "none"

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is below nought")


@dataclass(slots=True)
class Counter:
    """One that changes, with a made default."""

    seen: list[int] = field(default_factory=list)
    count: int = 0


def standard(record: type) -> type:
    """Return the same class as the standard library makes it."""
    namespace = {"__annotations__": {"x": "int", "y": "int"}, "y": 2, "__module__": __name__}
    return dataclasses.dataclass(frozen=True, slots=True)(type(record.__name__, (), namespace))


SHAPES: list[dict[str, object]] = [
    {},
    {"a": ...},
    {"a": ..., "b": 3, "c": field(default=4)},
    {"a": ..., "made": field(default_factory=list), "kept": field(default_factory=dict, init=False), "fixed": field(default=9, init=False)},
    {"a": 1, "name": field(kw_only=True), "other": field(default=2, kw_only=True)},
    {"a": ..., "aside": field(default=1, compare=False), "hidden": field(default=2, repr=False), "odd": field(default=3, hash=False)},
]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kw_only", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=[", ".join(shape) or "nothing" for shape in SHAPES])
def test_a_record_of_any_shape_does_what_the_standard_one_does(shape: dict[str, object], kw_only: bool, frozen: bool) -> None:
    def made(maker: Callable[..., Callable[[type], type]]) -> type:
        namespace = {"__annotations__": dict.fromkeys(shape, "int"), "__module__": __name__, "__doc__": "A shape."}
        values = {name: value for name, value in shape.items() if value is not ...}
        return maker(frozen=frozen, slots=True, kw_only=kw_only)(type("Shape", (), namespace | values))

    ours, theirs = made(dataclass), made(dataclasses.dataclass)
    for arguments, named in [
        ((), {}),
        ((5,), {}),
        ((5, 6), {}),
        ((), {"a": 5}),
        ((), {"a": 5, "name": 6}),
        ((5,), {"name": 7, "other": 8}),
    ]:
        one, other = outcome(ours, arguments, named), outcome(theirs, arguments, named)
        assert one == other
    assert [(f.name, f.init, f.kw_only) for f in fields(ours)] == [(f.name, f.init, f.kw_only) for f in fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]


def outcome(kind: type, arguments: tuple[int, ...], named: dict[str, int]) -> tuple[object, ...]:
    """Return what one sees of a record and its twin: text, equality, hash; or the error."""
    try:
        record, twin = kind(*arguments, **named), kind(*arguments, **named)
    except TypeError as error:
        return (str(error).replace("test_a_record_of_any_shape_does_what_the_standard_one_does.<locals>.", ""),)
    seen: list[object] = [repr(record), record == twin, record == (), list(dataclasses.asdict(record).values())]
    try:
        seen.append(hash(record))
    except TypeError as error:
        seen.append(str(error))
    return tuple(seen)


def test_a_record_is_made_compared_hashed_and_shown_like_a_data_class() -> None:
    same = standard(Point)
    assert repr(Point(1)) == repr(same(1)) == "Point(x=1, y=2)"
    assert hash(Point(1, 3)) == hash(same(1, 3))
    assert Point(1) == Point(1, 2) != Point(1, 3)
    assert Point(1) != same(1)
    assert (Point(1).total, Point.KIND, hasattr(Point(1), "__dict__")) == (3, "point", False)


def test_the_standard_librarys_functions_know_records() -> None:
    assert [one.name for one in fields(Named)] == ["x", "y", "name"]
    assert replace(Named(1), name="n") == Named(1, 7, "n")
    assert dataclasses.asdict(Named(1)) == {"x": 1, "y": 7, "name": "none"}
    assert dataclasses.is_dataclass(Counter)
    match Point(4, 5):
        case Point(x, y):
            assert (x, y) == (4, 5)


def test_frozen_ones_refuse_and_others_take_values() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del Point(1).x  # type: ignore[misc]
    counter = Counter()
    counter.seen.append(1)
    counter.count += 1
    assert (counter, Counter()) == (Counter([1], 1), Counter([], 0))
    with pytest.raises(TypeError):
        hash(counter)


def test_wrong_arguments_are_named_also_the_first_time() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Only:
        value: int

    with pytest.raises(TypeError, match=r"Only\.__init__"):
        Only(1)  # type: ignore[misc]
    assert Only(value=1).value == 1


def test_records_are_copied_and_pickled() -> None:
    for record in (Point(1), Named(1, 2, "n"), Counter([3], 4)):
        assert copy.copy(record) == record
        assert pickle.loads(pickle.dumps(record)) == record


def test_a_pickled_record_can_be_the_first_of_its_class_in_a_process() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        value: int

    fresh = Fresh.__new__(Fresh)
    fresh.__setstate__([5])  # type: ignore[attr-defined]
    assert fresh.value == 5


def test_nothing_is_written_before_the_first_use_and_all_of_it_then() -> None:
    @dataclass(frozen=True, slots=True)
    class Late:
        value: int

    assert "__eq__" not in vars(Late)
    assert Late(1) == Late(1)
    assert {"__eq__", "__repr__", "__hash__", "__setattr__"} <= vars(Late).keys()


def test_a_check_of_a_subclass_runs_and_plain_subclasses_work() -> None:
    class Plain(Point):
        __slots__ = ()

    assert Plain(1).total == 3
    with pytest.raises(ValueError, match="below nought"):
        Named(-1)


def test_threads_that_come_at_the_same_time_all_get_their_record() -> None:
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class Shared:
            value: int

        made: list[Shared] = []
        gate = threading.Barrier(4)

        def work(number: int, kind: type[Shared] = Shared, made: list[Shared] = made, gate: threading.Barrier = gate) -> None:
            gate.wait()
            made.append(kind(number))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {one.value for one in made} == {0, 1, 2, 3}
        assert Shared(0) in made


def test_a_record_may_have_an_abstract_base() -> None:
    class Shape(ABC):
        __slots__ = ()

        @abstractmethod
        def area(self) -> int: ...

    @dataclass(frozen=True, slots=True)
    class Square(Shape):
        side: int

        def area(self) -> int:
            return self.side**2

    assert (isinstance(Square(3), Shape), Square(3).area(), isinstance(3, Square)) == (True, 9, False)


def test_what_cannot_be_a_record_is_refused() -> None:
    class Own:
        def __init__(self) -> None: ...

    with pytest.raises(TypeError, match="Own"):
        dataclass(slots=True)(Own)
    with pytest.raises(TypeError, match="slots"):
        dataclass(frozen=True, slots=False)(type("Loose", (), {}))
