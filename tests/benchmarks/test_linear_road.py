"""Linear Road: traffic by the rules, the queries' answers over it, and a judge that finds every planted error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
import pytest
from millstream import run_script
from millstream.client.benchmarks.linear_road.overload import RECEIPTS, SEEN, LossyDrive, faults
from millstream.client.benchmarks.linear_road.rules import LIMITS_S, RoadAnswers, Rules, late
from millstream.client.benchmarks.linear_road.traffic import COLUMNS, SCHEMA, Traffic
from millstream.client.benchmarks.linear_road.workload import QUERIES, answers, lossy_statements, script, statements
from millstream.client.cli import run

from tests.support.live_server import Harness
from tests.support.live_server import run as serve

SAMPLE = Path(__file__).parent / "linear_road" / "20seconds.dat"  # of the benchmark's authors, by way of mjsax/aeolus (Apache-2.0)
NO_HISTORY = pa.table({"vid": [7], "day": [3], "xway": [0], "toll": [42]})
SMALL = Traffic(2, 600, 0, seed=5, rate_max=40.0, spread=2.0, trip_segments=4.0, jam_cars=120, accident_s=60.0)


def answered(rows: pa.Table, history: pa.Table) -> RoadAnswers:
    found = run_script(script(), input=rows, history=history)
    return answers({kind: found[query].table.to_batches() for kind, query in QUERIES.items()})


@cache
def small() -> tuple[Rules, RoadAnswers]:
    rows = SMALL.table()
    return Rules(rows.to_batches(), SMALL.history), answered(rows, SMALL.history)


# --- traffic ---


def columns(rows: pa.Table) -> dict[str, Any]:
    return {name: rows.column(name).to_numpy() for name in COLUMNS}


def test_cars_report_every_30_s_from_entry_to_exit_and_drive_no_further_than_their_speed() -> None:
    c = columns(Traffic(1, 400, 0, seed=3, rate_max=30.0).table())
    assert (np.diff(c["time"]) >= 0).all()
    reports = {name: values[c["type"] == 0] for name, values in c.items()}
    order = np.lexsort((reports["time"], reports["vid"]))
    vid, time, lane, pos, speed, towards = (reports[n][order] for n in ("vid", "time", "lane", "pos", "speed", "dir"))
    assert (reports["seg"] == reports["pos"] // 5_280).all()
    assert ((speed >= 0) & (speed <= 100)).all()
    goes_on = (vid[1:] == vid[:-1]) & (lane[:-1] != 4)
    assert (np.diff(time)[goes_on] == 30).all()
    assert (lane[1:][goes_on] != 0).all()
    assert (lane[np.append(True, ~goes_on)] == 0).all()
    ahead = np.diff(pos)[goes_on] * np.where(towards[1:][goes_on] == 0, 1, -1)
    assert (np.abs(ahead) <= 5_280).all()  # a car that is to meet another one at its place may be set back
    assert ahead.mean() > 0


def test_traffic_depends_on_its_seed_alone_and_a_later_part_is_in_full_flow_from_its_first_second() -> None:
    assert Traffic(1, 60, seed=4).table().equals(Traffic(1, 60, seed=4).table())
    assert not Traffic(1, 60, seed=5).table().equals(Traffic(1, 60, seed=4).table())
    dense = Traffic(1, 2, 9_000, rate_max=200.0)
    c = columns(dense.table())
    assert np.bincount(c["time"][c["type"] == 0])[9_000:].tolist() == [200, 200] == [dense.rate(9_000)] * 2
    assert len(np.unique(c["seg"][c["type"] == 0])) > 20


def test_the_small_traffic_has_all_that_the_rules_speak_of() -> None:
    rules, _ = small()
    assert rules.counts["charged"] > 20
    assert rules.counts["accident"] > 100
    assert rules.counts["balance"] > 50
    assert rules.counts["expenditure"] > 10
    c = columns(SMALL.table())
    trips = np.bincount(c["vid"][(c["type"] == 0) & (c["lane"] == 4)])
    assert trips.max() > 1  # cars that came back


# --- the queries ---


def test_every_answer_is_right() -> None:
    rules, found = small()
    assert rules.wrong(found) == []
    assert (found.balance["balance"] > 0).sum() > 2
    assert (found.expenditure["toll"] > 0).sum() > 2


def test_the_sample_of_the_benchmarks_authors_is_read_as_it_stands() -> None:
    rows = pc.read_csv(SAMPLE, pc.ReadOptions(column_names=list(COLUMNS))).cast(SCHEMA)
    found = answered(rows, NO_HISTORY)
    assert len(found.toll["vid"]) == 279  # each car's first report; nobody leaves
    assert np.isnan(found.toll["lav"]).all()
    assert found.toll["toll"].sum() == 0
    assert found.expenditure["toll"].tolist() == [0]
    assert Rules(rows.to_batches(), NO_HISTORY).wrong(found) == []


def report(time: int, vid: int, seg: int, *, speed: int = 30, lane: int = 1, at: int = 0, towards: int = 0) -> dict[str, int]:
    row = dict.fromkeys(COLUMNS, -1)
    return {
        **row,
        "type": 0,
        "time": time,
        "vid": vid,
        "speed": speed,
        "xway": 0,
        "lane": lane,
        "dir": towards,
        "seg": seg,
        "pos": seg * 5_280 + at,
    }


def crowded() -> list[dict[str, int]]:
    """52 cars crawl through segment 10 in the first minute. Car 1 comes in the second, drives on in the third, and asks. Car 2 exits."""
    rows = [report(vid - 100, vid, 10, speed=20, at=vid) for vid in range(100, 152)]
    rows += [report(70, 1, 10, lane=0), report(71, 2, 10, lane=0), report(100, 1, 10, at=9), report(101, 2, 10, lane=4)]
    rows += [report(130, 1, 11), report(131, 2, 10, lane=0)]
    asks = [(129, 1, 1), (135, 1, 2), (135, 2, 3)]
    rows += [{**dict.fromkeys(COLUMNS, -1), "type": 2, "time": time, "vid": vid, "qid": qid} for time, vid, qid in asks]
    rows += [{**dict.fromkeys(COLUMNS, -1), "type": 3, "time": 136, "vid": 7, "xway": 0, "day": 3, "qid": 4}, report(140, 3, 50)]
    return sorted(rows, key=lambda row: row["time"])


def collided() -> list[dict[str, int]]:
    """Cars 1 and 2 stand in segment 20 from 0 on, and have reported four times at 95. Car 1 drives on at 155. Others come by."""
    rows = [report(30 * n, 1, 20) for n in range(5)] + [report(30 * n + 5, 2, 20) for n in range(8)]
    rows += [report(155, 1, 20, at=900)]
    enters = [(100, 11, 20), (121, 12, 16), (122, 13, 15), (123, 14, 21), (179, 15, 20), (181, 16, 20)]
    rows += [report(time, vid, seg) for time, vid, seg in enters]
    rows += [report(124, 17, 19, towards=1), report(125, 18, 18, lane=4)]
    return sorted(rows, key=lambda row: row["time"])


def test_what_a_crowd_costs_worked_out_by_hand() -> None:
    rows = pa.Table.from_pylist(crowded(), SCHEMA)
    found = answered(rows, NO_HISTORY)
    told = dict(zip(zip(found.toll["vid"].tolist(), found.toll["time"].tolist(), strict=True), found.toll["toll"].tolist(), strict=True))
    assert {key: toll for key, toll in told.items() if toll} == {(1, 70): 2 * 2 * 2, (2, 71): 8}  # 52 cars in the first minute, LAV 20
    assert (2, 101) not in told  # an exit is told nothing
    assert told[2, 131] == 0  # in the second minute only two cars were there
    paid = dict(zip(found.balance["qid"].tolist(), found.balance["balance"].tolist(), strict=True))
    assert paid == {1: 0, 2: 8, 3: 0}  # charged on driving on; car 2 left by the exit of the segment
    assert found.expenditure["toll"].tolist() == [42]
    assert Rules(rows.to_batches(), NO_HISTORY).wrong(found) == []


def test_who_is_told_of_an_accident_worked_out_by_hand() -> None:
    rows = pa.Table.from_pylist(collided(), SCHEMA)
    found = answered(rows, NO_HISTORY)
    # Detected at 95, in the second minute: told in the third, in which it is cleared, and no more in the fourth; up to four segments ahead.
    told = sorted(zip(found.accident["time"].tolist(), found.accident["vid"].tolist(), found.accident["seg"].tolist(), strict=True))
    assert told == [(121, 12, 20), (179, 15, 20)]
    assert Rules(rows.to_batches(), NO_HISTORY).wrong(found) == []


# --- the judge ---


def changed(part: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    rules, found = small()
    return rules.wrong(replace(found, **{part: change(dict(getattr(found, part)))}))


def without(row: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda columns: {name: np.delete(values, row) for name, values in columns.items()}


def repeated(row: int, **changes: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(columns: dict[str, Any]) -> dict[str, Any]:
        return {name: np.append(values, values[row] + changes.get(name, 0)) for name, values in columns.items()}

    return change


def shifted(name: str, row: int, by: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(columns: dict[str, Any]) -> dict[str, Any]:
        values = columns[name].copy()
        values[row] = 0 if np.isnan(values[row]) else values[row] + by
        return {**columns, name: values}

    return change


@pytest.mark.parametrize("part", list(QUERIES))
def test_a_missing_answer_one_told_twice_and_one_that_nobody_asked_for_are_found(part: str) -> None:
    assert [text.split(":")[0] for text in changed(part, without(3))] == [f"1 {part} answers are missing"]
    assert [text.split(":")[0] for text in changed(part, repeated(3))] == [f"1 {part} answers are told twice"]
    assert [text.split(":")[0] for text in changed(part, repeated(3, time=100_000))] == [f"1 {part} answers are not called for"]


@pytest.mark.parametrize(
    ("part", "name", "by"),
    [
        ("toll", "toll", 2), ("toll", "lav", 1e-6), ("accident", "seg", 1), ("accident", "xway", 1), ("accident", "dir", 1),
        ("balance", "balance", 1), ("balance", "result_time", -61), ("balance", "result_time", 1), ("expenditure", "toll", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("row", [0, -1])
def test_a_wrong_value_is_found(part: str, name: str, by: float, row: int) -> None:
    faults = changed(part, shifted(name, row, by))
    what = "LAV" if name == "lav" else name
    assert any(text.startswith(f"1 {part} answers have a wrong {what}: ") for text in faults)


@pytest.mark.parametrize("kind", list(LIMITS_S))
def test_an_answer_that_took_too_long_is_found_and_a_faster_run_has_tighter_limits(kind: str) -> None:
    limit = LIMITS_S[kind]
    assert late(kind, [0.1, limit]) == []
    assert late(kind, [0.1, limit], speedup=2)[0].startswith(f"1 {kind} answers took longer than {limit / 2:g} s")
    assert late(kind, []) == []


def test_no_comment_of_the_queries_has_a_semicolon() -> None:
    assert all(statement.partition("CREATE ")[1] for statement in statements())
    assert len(statements()) == script().count("CREATE ")


def test_a_run_that_cannot_be_is_refused_with_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("many", "0", "2@0", "2@x", "2:0", "2:10801", "2:x"):
        assert run(["bench", "linear-road", part]) == 2
        assert "write 2, " in capsys.readouterr().err


# --- where tolls may lose reports ---


@cache
def lossy() -> LossyDrive:
    """Half of the cars are shed before the tolls' class from the third minute to the sixth, on a server."""
    drive = LossyDrive(SMALL, 1.0)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for statement in drive.statements:
            await client.execute(statement)
        await client.publish("history", SMALL.history)
        subscriptions = {kind: await client.subscribe(query) for kind, query in drive.queries.items()}
        host = harness.server.application.host
        rows = SMALL.table()
        for begin in range(0, 600, 60):
            host.network.set_drop_ratio("input", host.class_nodes["tolls"].id, 0.5 if 120 <= begin < 360 else 0.0)
            minute = compute.and_(compute.greater_equal(rows["time"], begin), compute.less(rows["time"], begin + 60))
            await client.publish("input", rows.filter(minute))
        await client.finish("input")
        for kind, subscription in subscriptions.items():
            async for batch in subscription:
                drive.take(kind, batch)
        await drive.ended(client, subscriptions)
        assert not host.unbalanced()

    serve(test)
    return drive


def test_classes_change_no_answer_while_nothing_is_shed() -> None:
    rules, usual = small()
    found = run_script(";\n".join(lossy_statements(300.0)), input=SMALL.table(), history=SMALL.history)
    told = answers({kind: found[query].table.to_batches() for kind, query in QUERIES.items()})
    assert rules.wrong(told) == []
    assert len(told.toll["vid"]) == len(usual.toll["vid"])


def test_warnings_are_whole_and_tolls_are_right_for_the_reports_that_were_kept_while_half_are_shed() -> None:
    drive, (rules, _) = lossy(), small()
    found = answers({kind: drive.rows[kind] for kind in QUERIES})
    known = Rules(drive.seen(), SMALL.history, rules)
    assert rules.wrong_of_warnings(found) == []
    assert known.wrong_of_tolls(found) == []
    assert faults(drive) == []
    lost = {second: shed for second, (_, shed) in drive.receipts.items() if shed}
    assert set(lost) <= set(range(120, 360))
    assert len(lost) > 200
    assert 0 < drive.told < len(found.toll["vid"]) < rules.counts["toll"]
    assert known.tolls_alike(found.toll) == len(found.toll["vid"])
    assert 0 < rules.tolls_alike(found.toll) <= len(found.toll["vid"])


def test_the_judge_finds_a_toll_of_a_report_that_was_shed_and_receipts_that_do_not_add_up() -> None:
    drive, (rules, _) = lossy(), small()
    found = answers({kind: drive.rows[kind] for kind in QUERIES})
    fewer = replace(drive, kept={second: cars for second, cars in drive.kept.items() if second != 200})
    assert any("not called for" in text for text in Rules(fewer.seen(), SMALL.history, rules).wrong_of_tolls(found))
    seen, shed = drive.receipts[200]
    assert [text.split(":")[0] for text in faults(replace(drive, receipts={**drive.receipts, 200: (seen + 1, shed)}))] == ["second 200"]
    assert "do not add up" in faults(replace(drive, receipts={k: v for k, v in drive.receipts.items() if k != 200}))[0]
    for kind in (SEEN, RECEIPTS):
        counts = {**drive.counts, kind: {**drive.counts[kind], "processed": 0}}
        assert f"the account of {kind} does not balance" in faults(replace(drive, counts=counts))[0]
    shown = [{**row, "shed": 1} if row["name"] == "danger" else row for row in drive.shown]
    assert faults(replace(drive, shown=shown)) == ["a stream behind which accidents are told lost rows"]
