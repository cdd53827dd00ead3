"""Workloads and recordings are read from files as written, and what is wrong is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from millstream.engine.data.graph import LogId
from millstream.scheduler.errors import SchedulerError, SimulationError
from millstream.scheduler.simulation import recording
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.workload_files import parse_workload, read_workload
from millstream.scheduler.simulation.workloads import utilisation

from tests.support.tree import ROOT

EXAMPLE = """
name = "two sensors"
[stream.packets]
kind = "regular"
rate = 100
count = 50
[class.gold]
priority = 6
target_ms = 300
[[box]]
name = "clean"
input = "packets"
cost_us = 100
[[query]]
name = "alarm"
class = "gold"
qos_ms = [[0, 1], [10, 1], [20, 0]]
boxes = [{ name = "hot", input = "clean", cost_us = 200, selectivity = 0.5 }]
[[query]]
name = "archive"
copies = 2
deadline_ms = 5
boxes = [{ name = "keep", input = "clean", cost_us = 400, call_us = 10, bytes_in = 80 }]
"""


def example(text: str = EXAMPLE, seed: int = 1):  # type: ignore[no-untyped-def]
    return parse_workload(tomllib.loads(text), seed)


def test_a_file_is_read_as_written() -> None:
    work = example()
    assert [delta.query.name for delta in work.deltas] == ["alarm", "archive.1", "archive.2"]
    alarm, archive = work.deltas[0].query, work.deltas[1].query
    assert alarm.qos == ((0.0, 1.0), (0.01, 1.0), (0.02, 0.0))
    assert archive.deadline_ns == 5_000_000
    # The shared box comes with the first query only.
    assert [len(delta.operators) for delta in work.deltas] == [3, 1, 1]
    keep = work.deltas[1].operators[0]
    assert (keep.cost_ns, keep.call_ns, keep.row_bytes_in) == (400_000.0, 10_000.0, 80.0)
    assert work.deltas[0].classes[0].priority == 6
    assert work.tuples == 50
    assert utilisation(work) == pytest.approx(100 * (100 + 200 + 2 * 410) * 1e-6)


def test_a_utilisation_scales_the_costs() -> None:
    assert utilisation(example("utilisation = 0.8\n" + EXAMPLE)) == pytest.approx(0.8)


def test_random_queries_are_drawn() -> None:
    text = "[stream.a]\ncount = 20\n[[random]]\nkind = 'select-join-project'\nqueries = 7\n"
    assert len(example(text).deltas) == 7
    assert example(text).deltas == example(text).deltas
    assert example(text).deltas != example(text, seed=2).deltas


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[stream.a]\nrat = 3\n[[query]]\n", "stream.a has no key 'rat'; it has burst, count, kind, rate"),
        ("[stream.a]\nkind = 'pulse'\n", "kind of stream.a is 'pulse'"),
        ("[[query]]\nboxes = []", "has no stream"),
        ("[stream.a]\n", "has no query"),
        ("[stream.a]\n[[query]]\nname = 'q'\n", "query 'q' has no box"),
        ("[stream.a]\n[[query]]\nname = 'q'\nboxes = [{name = 'b', input = 'x'}]", "box 'b' of query 'q' reads 'x'"),
        (
            "[stream.a]\n[[query]]\nname = 'q'\nboxes = [{name = 'b', input = 'a', cost_us = -1}]",
            "cost_us of box 'b' of query 'q' is negative",
        ),
        ("[stream.a]\n[[query]]\nname = 'q'\nclass = 'x'\nboxes = [{name = 'b', input = 'a'}]", "class of query 'q' names 'x'"),
        ("[stream.a]\n[[query]]\nname = 'q'\nqos_ms = [[5, 1], [5, 0]]\nboxes = [{name = 'b', input = 'a'}]", "qos_ms of query 'q'"),
        ("[stream.a]\n[[random]]\nkind = 'window-join'\n", "does not go with 1 streams"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        example(text)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text("name = ")
    with pytest.raises(SimulationError, match=r"w\.toml' cannot be read"):
        read_workload(path, 1)


def test_a_recording_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    work = example()
    made = recording.Recording(list(work.deltas), dict(work.arrivals), {LogId(1): 80}, {"server": "here"})
    path = tmp_path / "r.jsonl"
    recording.save(made, path)
    back = recording.load(path)
    assert back.deltas == made.deltas
    assert back.about == {"server": "here"}
    assert all((back.arrivals[log] == times).all() for log, times in made.arrivals.items())
    first, second = simulate(work, "hnr"), simulate(back.workload("r"), "hnr")
    assert first.finished_ns.tolist() == second.finished_ns.tolist()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"recording": 9}'], "not a recording of version 1"),
        (['{"recording": 1}', "{"], "line 2"),
        (['{"recording": 1}', '{"query": {"query": {}}}'], "line 2"),
        (['{"recording": 1}', '{"arrivals": {"log": 1}}'], "line 2"),
    ],
)
def test_a_broken_recording_is_refused_with_its_line(lines: list[str], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        recording.parse(lines)


def test_rows_of_a_recording_may_come_many_at_a_time() -> None:
    text = ['{"recording": 1}', '{"arrivals": {"log": 4, "start_ns": 5, "gaps_ns": [10], "rows": [2, 3]}}']
    assert recording.parse(text).arrivals[LogId(4)].tolist() == [5, 5, 15, 15, 15]


def test_the_example_in_the_documentation_runs() -> None:
    page = (ROOT / "docs" / "simulation.md").read_text()
    text = page.split("```toml\n")[1].split("```")[0]
    work = example(text)
    assert simulate(work, "hnr").summary()["results"] > 0


OVERLOAD = """
utilisation = 1.5
load = "class"
[stream.packets]
kind = "regular"
rate = 100
count = 400
[class.gold]
priority = 3
target_ms = 300
[class.low]
priority = 1
target_ms = 200
may_shed = true
[[query]]
name = "alarm"
class = "gold"
boxes = [{ name = "hot", input = "packets", cost_us = 100 }]
[[query]]
name = "archive"
class = "low"
copies = 2
boxes = [{ name = "keep", input = "packets", cost_us = 100 }]
"""


def test_a_class_that_may_be_shed_reads_a_stream_by_itself_and_load_is_managed_as_the_file_says() -> None:
    work = example(OVERLOAD)
    assert work.load == "class"
    assert [len(times) for times in work.arrivals.values()] == [400, 400]
    outcome = simulate(work, "cqc")
    summary = outcome.summary()
    assert summary["loss_share_gold"] == 0.0
    assert 0.2 < summary["loss_share_low"] < 0.6  # 1.0 of load for half a processor
    assert summary["results"] == 400 + 2 * 400 * (1.0 - summary["loss_share_low"])
    assert simulate(work, "cqc").summary() == summary
    untouched = simulate(work, "cqc", settings=RunSettings(load="none")).summary()
    assert untouched["results"] == 1_200
    assert untouched["response_ms_max"] > 1.5 * summary["response_ms_max"]


def test_an_unknown_load_manager_in_a_file_is_refused() -> None:
    with pytest.raises(SchedulerError, match="unknown load manager 'ration'"):
        simulate(example(OVERLOAD.replace('"class"\n[stream', '"ration"\n[stream')), "cqc")
