"""What is imported is what is in the repository, in the direction that the contracts say."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.files import ROOT, tracked

PACKAGES = ("activities", "api", "towline", "workers", "workflows")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home/\w+|root/|work/|Users/\w+)")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_the_one_in_the_repository(name: str) -> None:
    assert Path(importlib.import_module(name).__file__ or "").parent == ROOT / name


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("name", ["utils", "common", "helpers", "manager"])
def test_there_are_no_drawers(name: str) -> None:
    assert [path for path in tracked("*.py") if path.stem.strip("_") == name or name in path.parent.parts] == []


def test_no_file_names_a_place_on_one_machine() -> None:
    found = []
    for path in tracked():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}" for number, line in enumerate(lines, 1) if MACHINE_PATH.search(line)
        ]
    assert [place for place in found if not place.startswith("tests/architecture/test_packages.py")] == []
