from __future__ import annotations

import stat
from pathlib import Path

import pytest
from millstream.feeder import java
from millstream.feeder.errors import JavaNotFoundError

SETTINGS = """Property settings:
    java.class.version = 61.0
    java.home = {home}
    java.specification.version = {version}
    java.vendor = Someone

openjdk version "{version}.0.15"
"""


def fake_java(folder: Path, version: str) -> Path:
    """Put a program there that answers as a Java of that release does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{SETTINGS.format(home=folder, version=version)}END\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which only the tests' own Javas are to be found."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    monkeypatch.setattr(java, "_JVM_FOLDERS", (f"{tmp_path}/jvm/*",))


def test_a_java_named_by_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "java-21", "21")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "mine", "17")))
    assert java.find_java() == java.Java(tmp_path / "mine", 17)


def test_one_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11")))
    fake_java(tmp_path / "jvm" / "java-17", "17")
    fake_java(tmp_path / "jvm" / "java-21", "21")
    assert java.find_java().release == 21


def test_without_any_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"^Spark needs Java 17 or later$") as caught:
        java.find_java()
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint
    fake_java(tmp_path / "jvm" / "java-8", "1.8")
    with pytest.raises(JavaNotFoundError, match="found only Java 8"):
        java.find_java()


def test_a_program_that_does_not_answer_as_java_does_is_none(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "java").chmod(0o755)
    assert java.probe(tmp_path / "java") is None
    assert java.probe(tmp_path / "missing") is None
    assert java.parse_settings("java.home = x") is None


def test_the_command_prints_the_home_or_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["java"])
    assert java.main() == 1
    assert capsys.readouterr().err.count("\n") == 1
    fake_java(tmp_path / "jvm" / "java-17", "17")
    assert java.main() == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "jvm" / "java-17")
    monkeypatch.setattr("sys.argv", ["java", "--quiet"])
    assert java.main() == 0
    assert capsys.readouterr().out == ""
