"""Runs the cases of scenarios on several processes, keeps every result in a file, and takes up where it stopped.

The name of a result's file is a digest of the case and of the code that makes it (`code_digest.py`), so a changed policy is never
answered from an old run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import as_completed
from pathlib import Path

from millstream.scheduler.experiments.code_digest import run_digest
from millstream.scheduler.experiments.frame import ExperimentCase, Result
from millstream.scheduler.simulation.run_processes import RunProcesses

Progress = Callable[[int, int, ExperimentCase], None]


class ResultStore:
    """Results in a folder, or only in memory."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, Result] = {}
        if folder is not None:
            _drop_parts(folder)

    def _path(self, case: ExperimentCase) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.sha256((run_digest(case) + case.key).encode()).hexdigest()[:32]
        return self._folder / f"{digest}.json"

    def get(self, case: ExperimentCase) -> Result | None:
        """Return what is kept of a case."""
        if case.key in self._known:
            return self._known[case.key]
        path = self._path(case)
        if path is None or case.live or not path.is_file():
            return None
        try:
            kept: Result = json.loads(path.read_text())["result"]
        except (ValueError, KeyError, TypeError):
            return None  # cut off, as by a full disk or a loss of power: it is run again and written anew
        self._known[case.key] = kept
        return kept

    def put(self, case: ExperimentCase, result: Result) -> None:
        """Keep a result; a file appears whole or not at all."""
        # Through JSON in memory as well, so that a run and its repetition from a file are judged on the same values.
        text = json.dumps({"case": json.loads(case.key), "result": result})
        self._known[case.key] = json.loads(text)["result"]
        path = self._path(case)
        if path is not None and not case.live:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(text)
            part.replace(path)

    def result(self, case: ExperimentCase) -> Result:
        """Return the result of a case that was run."""
        found = self.get(case)
        if found is None:
            found = case.run()
            self.put(case, found)
        return found


def _drop_parts(folder: Path) -> None:
    """Remove files that a process which is no more was writing."""
    for part in folder.glob("*.part"):
        writer = part.name.split(".")[-2]
        if not (writer.isdigit() and Path("/proc", writer).exists()):
            part.unlink(missing_ok=True)


def run_cases(cases: Iterable[ExperimentCase], store: ResultStore, *, processes: int = 1, progress: Progress | None = None) -> None:
    """Run what is not kept yet, longest expected first as listed; equal cases run once. Live cases come last and one by one."""
    every = [case for case in {case.key: case for case in cases}.values() if store.get(case) is None]
    missing = [case for case in every if not case.live]
    _run_simulated(missing, store, processes, progress)
    for done, case in enumerate((case for case in every if case.live), len(missing) + 1):
        store.put(case, case.run())
        if progress is not None:
            progress(done, len(every), case)


def _run_simulated(missing: Sequence[ExperimentCase], store: ResultStore, processes: int, progress: Progress | None) -> None:
    if processes <= 1 or len(missing) <= 1:
        for done, case in enumerate(missing, 1):
            store.put(case, case.run())
            if progress is not None:
                progress(done, len(missing), case)
        return
    _run_apart(missing, store, processes, progress)


def _run_apart(missing: Sequence[ExperimentCase], store: ResultStore, processes: int, progress: Progress | None) -> None:
    with RunProcesses(processes) as pool:  # interrupted, or a run failed: what is not kept by now is run again next time
        waiting = {pool.submit(case.run): case for case in missing}
        for done, future in enumerate(as_completed(waiting), 1):
            store.put(waiting[future], future.result())
            if progress is not None:
                progress(done, len(missing), waiting[future])
