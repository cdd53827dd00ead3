"""The flag that writes expected files anew: pytest tests/golden --regenerate, then read the difference by eye."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write the expected files of the golden cases anew")
