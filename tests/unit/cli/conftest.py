"""The program as it is called, against a fake API."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.unit.cli.fake_api import FakeApi, fake_api
from towline.cli.main import main


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a call ended."""

    code: int
    out: str
    err: str


Towline = Callable[..., Done]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API."""
    with fake_api() as running:
        yield running


@pytest.fixture
def towline(api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Towline:
    """Call `towline` in this process, off a terminal."""
    monkeypatch.setenv("TOWLINE_API_URL", api.url)
    monkeypatch.setenv("TOWLINE_TOKEN", "the-token")

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["towline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Done(code=int(ended.value.code or 0), out=out, err=err)

    return call
