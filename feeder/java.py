"""Finds a Java for Spark: JAVA_HOME, the PATH, then the places where distributions put theirs.

`python -m millstream.feeder.java` prints the home it found, or one line that says what to install and exits with 1. The set-up
of this repository calls it, so that the one who looks and the one who needs it cannot disagree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millstream.feeder.errors import JavaNotFoundError

JAVA_RELEASE_MIN = 17  # Spark 4 is compiled for it
PROBE_SECONDS_MAX = 30  # a cold start on a busy machine takes seconds; a java that hangs is no java

_JVM_FOLDERS = ("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: its home folder and its release, such as 17."""

    home: Path
    release: int


def find_java() -> Java:
    """Return the first Java that is recent enough; raises JavaNotFoundError, naming what is too old."""
    too_old: list[Java] = []
    for program in _candidates():
        java = probe(program)
        if java is not None and java.release >= JAVA_RELEASE_MIN:
            return java
        if java is not None:
            too_old.append(java)
    seen = f"; found only Java {max(java.release for java in too_old)}" if too_old else ""
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_RELEASE_MIN} or later{seen}",
        hint=f"install a JRE (Debian: apt-get install openjdk-{JAVA_RELEASE_MIN}-jre-headless) or set JAVA_HOME",
    )


def probe(program: Path) -> Java | None:
    """Ask a java program for its home and release; None when it does not run or does not answer as a Java does."""
    try:
        answer = subprocess.run(
            [str(program), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_settings(answer.stderr + answer.stdout)


def parse_settings(text: str) -> Java | None:
    """Read `java.home` and `java.specification.version` (17, or 1.8 in the old style) from the listed settings."""
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    release = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if home is None or release is None:
        return None
    return Java(Path(home.group(1).strip()), int(release.group(1)))


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    for pattern in _JVM_FOLDERS:
        for home in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            yield home / "bin" / "java"


def main() -> int:
    """Print the home of the Java that Spark would get; `--quiet` prints nothing and only answers by exit code."""
    try:
        java = find_java()
    except JavaNotFoundError as error:
        if "--quiet" not in sys.argv:
            print(f"{error.message}: {error.hint}", file=sys.stderr)
        return 1
    if "--quiet" not in sys.argv:
        print(java.home)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
