"""What `millstream journal check` says of a data directory."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.journal import first_format
from millstream.server.journal.catalogue_copy import CatalogueCopy, read_catalogue
from millstream.server.journal.checkpoint_files import checked_body, checkpoint_bases, checkpoint_path
from millstream.server.journal.disk import Disk, read
from millstream.server.journal.known import FOLDER, NEW_FOLDER
from millstream.server.journal.reading import files_of
from millstream.server.journal.records import DEFINITION
from millstream.server.journal.survey import Verdict, survey


@dataclass(slots=True)
class Checked:
    """A line for each file, and the problems."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_whole: bool = True

    def say(self, problem: str) -> None:
        """Add a problem for which the directory is not whole."""
        self.problems.append(problem)
        self.is_whole = False


def check_directory(disk: Disk, directory: Path) -> Checked:
    """Judge catalogue, segments and checkpoints of a directory, as a server would, and each checkpoint besides."""
    made = Checked()
    catalogue = read_catalogue(disk, directory)
    files_of(disk, directory, catalogue)  # a catalogue of another directory says so from now on
    for problem in catalogue.problems:
        made.say(problem)
    if catalogue.is_whole:
        made.lines.append(
            f"catalogue: {len(catalogue.definitions)} definitions, {len(catalogue.queries)} queries, format {catalogue.format}"
        )
    if disk.exists(directory / NEW_FOLDER):
        made.lines.append(f"{NEW_FOLDER}: a conversion from version 0.1.0 is not finished; the next start does that")
    _list_segments(made, disk, directory, catalogue)
    _check_checkpoints(made, disk, directory, catalogue)
    return made


def _list_segments(made: Checked, disk: Disk, directory: Path, catalogue: CatalogueCopy) -> None:
    files = files_of(disk, directory, catalogue)
    defined = {d.position: d.content for d in catalogue.definitions}
    judged = catalogue.format != first_format.FORMAT_VERSION and files.identity is not None
    for reading in files.readings():
        state = "whole" if not reading.holes else f"{len(reading.holes)} damaged place{'' if len(reading.holes) == 1 else 's'}"
        rows = sum(reading.rows.values())
        made.lines.append(f"{reading.path.name}: {reading.bytes} bytes, {len(reading.records)} records, {rows} rows, {state}")
        for hole in reading.holes if not judged else ():
            made.say(str(hole))
        for record in reading.records:
            if record.kind == DEFINITION and record.meta != defined.get(record.stream, record.meta):
                made.say(f"catalogue and journal do not agree on {record.meta['kind']} {record.meta['name']}: the catalogue is damaged")
    if judged:
        assert files.identity is not None
        number_max = catalogue.number_max if catalogue.is_whole else 1 << 32
        for problem in survey(disk, directory / FOLDER, files.identity, catalogue.known, number_max).problems:
            if problem.verdict is Verdict.NOTED:
                made.problems.append(str(problem))
            else:
                made.say(f"{problem} ({'a start is refused' if problem.verdict is Verdict.REFUSED else 'a start cuts it off'})")


def _check_checkpoints(made: Checked, disk: Disk, directory: Path, catalogue: CatalogueCopy) -> None:
    identity = files_of(disk, directory, catalogue).identity or b""
    for at in checkpoint_bases(disk, directory / FOLDER):
        path = checkpoint_path(directory / FOLDER, at)
        content = read(disk, path)
        try:
            if first_format.checkpoint_body(content) is None:
                checked_body(content, identity, at)
            made.lines.append(f"{path.name}: {len(content)} bytes, whole")
        except ValueError as problem:
            made.say(f"{path}: {problem}")
