"""The journal's files beyond their records: what a crash leaves beside them, a full disk, numbers that are never given twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from millstream.server.errors import StorageError
from millstream.server.journal.checkpoint_files import write_body
from millstream.server.journal.journal import Journal
from millstream.server.journal.known import Known
from millstream.server.journal.records import DEFINITION, ROWS, Record
from millstream.server.journal.segments import HEADER_BYTES, Segment, segment_path
from millstream.server.journal.store import Store

from tests.support.failing_disk import FailingDisk
from tests.support.journals import JOURNAL, ROOT, KeptLedger, Start, start_over
from tests.support.memory_disk import MemoryDisk


def opened(disk: MemoryDisk, ledger: KeptLedger, said: list[str] | None = None) -> Journal:
    heard = [] if said is None else said
    journal = Journal(ROOT, disk, ledger, fsync_s=3600.0, report=lambda kind, message: heard.append(message))
    journal.start()
    return journal


def rows(lo: int, count: int, stream: int = 1) -> Record:
    return Record(ROWS, stream, lo, lo + count, lo, {}, bytes(8 * count))


@pytest.fixture
def stopped() -> tuple[MemoryDisk, KeptLedger]:
    """Two segments, the second without rows."""
    disk, ledger = MemoryDisk(), KeptLedger()
    journal = opened(disk, ledger)
    journal.append(rows(0, 5))
    journal.roll(5, [Record(DEFINITION, 1, 5, 5, 0, {"kind": "stream", "name": "s", "statement": "CREATE STREAM s (v BIGINT)"})])
    journal.note_segments()
    write_body(disk, JOURNAL, ledger.identity, 5, b"state")
    journal.stop()
    return disk, ledger


def told(start: Start) -> list[str]:
    assert not start.refused
    return [message for _, message in start.said]


def test_a_file_under_its_temporary_name_is_removed_and_said_to_be(stopped: tuple[MemoryDisk, KeptLedger]) -> None:
    disk, ledger = stopped
    for name in ("00000000000000000009.journal.part", "00000000000000000009.checkpoint.part"):
        disk.files[JOURNAL / name] = bytearray(b"half")
    start = start_over(disk, ledger)
    assert [message.split(": ")[0] for message in told(start)] == [
        str(JOURNAL / name) for name in ("00000000000000000009.checkpoint.part", "00000000000000000009.journal.part")
    ]
    assert not [name for name in disk.names(JOURNAL) if name.endswith(".part")]
    assert told(start_over(disk, ledger)) == []


def test_a_segment_that_was_let_go_of_before_a_crash_is_removed_and_said_to_be(stopped: tuple[MemoryDisk, KeptLedger]) -> None:
    disk, ledger = stopped
    assert ledger.noted is not None
    ledger.noted = replace(ledger.noted, first=5)
    start = start_over(disk, ledger)
    (message,) = told(start)
    assert message.startswith(f"{segment_path(JOURNAL, 0)}: it was let go of")
    assert not disk.exists(segment_path(JOURNAL, 0))
    assert [w[0] for w in start.found] == [DEFINITION]


def test_an_empty_last_segment_is_begun_anew_only_if_the_catalogue_knows_that_it_held_nothing(
    stopped: tuple[MemoryDisk, KeptLedger],
) -> None:
    disk, ledger = stopped
    path = segment_path(JOURNAL, 5)
    disk.files[path].clear()
    assert ledger.noted is not None
    refused = start_over(disk.copy(), replace(ledger, noted=replace(ledger.noted, is_empty=False)))
    assert f"{path}, byte 0: the file is empty" in refused.refused
    said: list[str] = []
    journal = opened(disk, ledger, said)
    assert len(said) == 1
    assert "it is begun anew" in said[0]
    assert len(disk.files[path]) == HEADER_BYTES
    journal.append(rows(5, 2))
    journal.stop()
    again = start_over(disk, ledger)
    assert told(again) == []
    assert [w[2:4] for w in again.found] == [(0, 5), (5, 7)]


class FullDisk(MemoryDisk):
    """A disk that takes so many bytes more."""

    room = 1 << 30

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        wanted = b"".join(parts)[: self.room]
        if not wanted:
            raise OSError(28, "No space left on device")
        self.room -= len(wanted)
        return super().write(handle, [wanted])


@pytest.mark.parametrize("room", [0, 1, HEADER_BYTES - 1])
def test_a_segment_that_a_full_disk_does_not_let_begin_leaves_nothing_behind_however_often_it_is_tried(room: int) -> None:
    disk, ledger = FullDisk(), KeptLedger()
    journal = opened(disk, ledger)
    journal.append(rows(0, 3))
    names, handles = disk.names(JOURNAL), len(disk.open_handles)
    for _ in range(5):
        disk.room = room
        with pytest.raises(StorageError):
            journal.roll(3)
        assert (disk.names(JOURNAL), len(disk.open_handles)) == (names, handles)
    disk.room = 1 << 30
    journal.append(rows(3, 3))
    journal.roll(6)
    journal.append(rows(6, 1))
    journal.stop()
    start = start_over(disk, ledger)
    assert told(start) == []
    assert [w[2:4] for w in start.found] == [(0, 3), (3, 6), (6, 7)]


@pytest.mark.parametrize("forced", [False, True])
def test_a_sector_that_a_failing_machine_never_wrote_is_a_tear_unless_the_disk_was_known_to_have_it(forced: bool) -> None:
    """The system writes pages back in any order: one may be missing with later ones there."""
    disk, ledger = MemoryDisk(), KeptLedger()
    journal = opened(disk, ledger)
    journal.append(rows(0, 5))
    journal.wait_safe()
    place = journal.segments[-1].size
    journal.append(Record(ROWS, 1, 5, 405, 0, {}, bytes([1]) * 3200))
    if forced:
        journal.wait_safe()
    journal.append(rows(405, 2))
    failed = disk.copy()
    journal.stop()
    path = segment_path(JOURNAL, 0)
    failed.files[JOURNAL / "durable-end"] = bytearray(disk.files[JOURNAL / "durable-end"])
    failed.files[JOURNAL / "durable-end"][64:] = bytes(128)  # as old as can be: it says nothing
    failed.files[path][1024:1536] = bytes(512)
    start = start_over(failed, replace(ledger, noted=Known(0, 0, HEADER_BYTES)))
    if forced:  # the record behind it says so
        assert f"{path}, byte {place}: a record is damaged that the disk had" in start.refused
        return
    (message,) = [message for kind, message in start.said if kind == "journal_cut"]
    assert message.startswith(f"{path}, byte {place}: ")
    assert message.endswith("rows lost: 402 at most")
    assert [w[2:4] for w in start.found] == [(0, 5)]


def test_rows_whose_bytes_look_like_a_record_are_never_taken_for_one() -> None:
    """A publisher may know the format, and send records as text; behind damage they are bytes of a row all the same."""
    disk, ledger = MemoryDisk(), KeptLedger()
    other = KeptLedger(identity=bytes(16))
    forging = MemoryDisk()
    forged = opened(forging, other)
    forged.append(rows(1000, 4, stream=7))
    forged.stop()
    text = bytes(forging.files[segment_path(JOURNAL, 0)][HEADER_BYTES:])
    journal = opened(disk, ledger)
    journal.append(Record(ROWS, 1, 0, 1, 0, {}, text))
    journal.append(rows(1, 1))
    journal.stop()
    disk.files[segment_path(JOURNAL, 0)][HEADER_BYTES] ^= 1
    start = start_over(disk, ledger)
    assert f"byte {HEADER_BYTES}: a record is damaged that the disk had" in start.refused
    assert "what is damaged has 1 row at most" in start.refused


def test_the_number_of_a_dropped_stream_is_never_given_again_and_a_catalogue_that_would_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = store.add_definition("stream", "s", "CREATE STREAM s (v BIGINT)")
    store.forget([("stream", "s")], [])
    store.close()
    again = Store(tmp_path)
    assert again.add_definition("stream", "s", "CREATE STREAM s (v BIGINT)") == first + 1
    assert again.number_max == first + 1
    again.number_max_at_least(40)
    assert again.add_definition("stream", "t", "CREATE STREAM t (v BIGINT)") == 41
    again.close()
    disk, ledger = MemoryDisk(), KeptLedger(number_max=3)
    journal = opened(disk, ledger)
    journal.append(rows(0, 1, stream=3))
    journal.stop()
    assert told(start_over(disk.copy(), ledger)) == []
    assert "rows of stream number 3" in start_over(disk, replace(ledger, number_max=2)).refused


def test_the_note_of_what_is_on_disk_says_less_but_never_more_when_it_is_lost_or_damaged(stopped: tuple[MemoryDisk, KeptLedger]) -> None:
    disk, ledger = stopped
    for spoil in (lambda c: c.clear(), lambda c: c.__setitem__(70, c[70] ^ 1), lambda c: c.__setitem__(5, c[5] ^ 1)):
        tried = disk.copy()
        spoil(tried.files[JOURNAL / "durable-end"])
        (message,) = told(start_over(tried, ledger))
        assert message.startswith(str(JOURNAL / "durable-end"))
        assert told(start_over(tried, ledger)) == []


def test_what_the_catalogue_notes_of_a_journal_is_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.known() is None
    identity = store.identity
    store.note_known(Known(3, 9, 77, is_empty=True))
    store.close()
    again = Store(tmp_path)
    assert (again.known(), again.identity) == (Known(3, 9, 77, is_empty=True), identity)
    again.close()


def test_a_segment_says_at_which_arrival_number_a_replay_begins() -> None:
    from millstream.server.journal.segments import LET_GO, salvaged

    assert Segment(Path("x"), 5, 0, previous=LET_GO).stands_at == 5
    assert Segment(Path("x"), 5, 0, previous=salvaged(70)).stands_at == 70


def test_a_disk_that_does_not_take_rows_is_told_once_and_told_again_when_it_takes_as_much(tmp_path: Path) -> None:
    disk, said = FailingDisk(), list[str]()
    journal = Journal(tmp_path, disk, KeptLedger(), fsync_s=3600.0, report=lambda kind, message: said.append(kind))
    journal.start()
    journal.append(rows(0, 5))
    disk.breaks(wanted=lambda operation, name: operation == "write")
    for _ in range(3):
        with pytest.raises(StorageError, match="cannot be written"):
            journal.append(rows(5, 100))
    assert said == ["journal_refuses"]
    disk.is_mended()
    journal.append(rows(5, 1))  # a little may fit where much does not
    assert said == ["journal_refuses"]
    journal.append(rows(6, 100))
    journal.append(rows(106, 100))
    assert said == ["journal_refuses", "journal_goes_on"]
    journal.stop()
