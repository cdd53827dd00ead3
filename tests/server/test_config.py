"""Where a setting comes from, what is refused, and that the documents list every setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from millstream.server.config import Config, flag_of, load_config, setting_fields, variable_of
from millstream.server.errors import ConfigError

ROOT = Path(__file__).parents[2]


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    file = write(tmp_path / "millstream.toml", "[server]\nport = 1\nworkers = 3\nhost = '::1'\n")
    config = load_config({"port": 3, "host": None}, {"MILLSTREAM_PORT": "2", "MILLSTREAM_WORKERS": "2"}, file)
    assert (config.port, config.workers, config.host, config.policy) == (3, 2, "::1", Config().policy)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nprot = 1", "unknown setting prot in [server]"),
        ("[sever]\nport = 1", "unknown section [sever]"),
        ("[limits]\nport = 1", "unknown setting port in [limits]"),
        ("port = 1", "unknown section [port]"),
        ("[server]\nport = 'x'", "port in"),
        ("[server]\nrewrite = 'perhaps'", "it must be true or false"),
        ("[server]\nworkers = -1", "it must be at least 0"),
        ("[server]\noptimise_settle_s = nan", "it must be at least 0.1"),
        ("[server]\nport = 70000", "it must be at most 65535"),
        ("[server]\nmetrics_port = 65536", "it must be at most 65535"),
        ("[server]\nworkers = 1.5", "it must be a whole number"),
        ("[server]\nshed_seed = 100000000000000000000", "it must be at most 9007199254740992"),
        ("[server]\ndrain_s = inf", "it must be at most 1000000000"),
        ("[limits]\nresults_kept_s = 1e300", "it must be at most 1000000000"),
        ("[limits]\nframe_bytes_max = 4294967296", "it must be at most 4294967295"),
        ("[limits]\nslow_subscriber = 'kill'", "it must be one of disconnect, gap"),
        ("[server", "is not a TOML file"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_config({}, {}, write(tmp_path / "millstream.toml", text))


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load_config({}, {}, tmp_path / "nowhere.toml")


def test_listening_beyond_loopback_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="MILLSTREAM_ADMIN_TOKEN"):
        load_config({"host": "0.0.0.0"}, {}, None)
    assert load_config({"host": "0.0.0.0", "admin_token": "s"}, {}, None).host == "0.0.0.0"


def test_half_of_tls_and_a_shared_token_are_refused() -> None:
    with pytest.raises(ConfigError, match="both"):
        load_config({"tls_cert": "a.pem"}, {}, None)
    with pytest.raises(ConfigError, match="same token"):
        load_config({"admin_token": "s", "reader_token": "s"}, {}, None)


def test_the_configuration_document_lists_every_setting_with_its_names_and_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    rows = {m[0]: m for m in re.findall(r"^\| `(--[a-z-]+)` \| `(\w+)` \| `(\w+)` \| (.*?) \|", text, re.MULTILINE)}
    for definition in setting_fields():
        flag = flag_of(definition.name)
        assert rows.pop(flag)[1:] == (variable_of(definition.name), definition.name, shown(definition.default)), flag
    assert not rows, "the document lists settings that do not exist"


def shown(default: object) -> str:
    if default == "":
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_the_deployed_file_sets_every_setting_and_is_accepted() -> None:
    file = ROOT / "deploy" / "millstream.toml"
    load_config({}, {}, file)
    keys = set(re.findall(r"^#? ?(\w+) = ", file.read_text("utf-8"), re.MULTILINE))
    assert keys == {d.name for d in setting_fields()}
