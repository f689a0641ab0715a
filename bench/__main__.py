"""`make bench`: prints a table, and writes it to `.towline/bench.md`."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.placement import placing
from bench.pulls import crowding, responsiveness
from bench.starts import Starter, compare
from tests.acceptance.stack import running_stack
from tests.rig.engines import EngineOptions, classic_engine
from tests.rig.images import ImageRecipe, Layer, demo_image, push
from tests.rig.registry import RegistryProcess

_FIGURES = ("what", "measured", "limit")
_COLUMNS = ("what", "peer", "runs", "ours, ms", "peer, ms", "difference, ms", "ratio")
_WIDE = {"TOWLINE_AGENT__UNIQUE_PULLS_MAX": "100", "TOWLINE_AGENT__CPU": "64"}
WARM_RUNS = 20
COLD_RUNS = 9


def measure(work: Path) -> Iterator[str]:
    """Run everything on engines, a registry and stacks of our own; a table at a time."""
    yield table(_FIGURES, [figure.row() for figure in placing()])
    with classic_engine(work) as engine, RegistryProcess(work / "registry") as registry:
        client = engine.client().api
        small = push(registry.host, "bench/small", "1", ImageRecipe(layers=(Layer.busybox(),))).reference
        large = push(registry.host, "bench/large", "1", demo_image()).reference
        client.pull(small)
        with running_stack(work / "s", engine.url) as stack:
            warm = Starter(stack, client, engine.url, small)
            cold = Starter(stack, client, engine.url, large)

            def cold_ours() -> float:
                cold.forget_image()
                return cold.ours()

            def cold_command_line() -> float:
                cold.forget_image()
                return cold.command_line()

            def cold_bare() -> float:
                cold.forget_image()
                return cold.bare(pull=True)

            comparisons = (
                compare("warm start", "engine create + start", WARM_RUNS, warm.ours, warm.bare),
                compare("cold start, 150 MB", "docker pull && docker run -d", COLD_RUNS, cold_ours, cold_command_line),
                compare("cold start, 150 MB", "engine pull + create + start", COLD_RUNS, cold_ours, cold_bare),
            )
            yield table(_COLUMNS, [comparison.row() for comparison in comparisons])
            yield table(_FIGURES, [figure.row() for figure in responsiveness(stack, registry)])
        (work / "crowd").mkdir()
        options = EngineOptions(max_concurrent_downloads=100)
        with (
            classic_engine(work / "crowd", options) as wide,
            running_stack(work / "crowd", wide.url, settings=_WIDE) as stack,
        ):
            yield table(_FIGURES, [figure.row() for figure in crowding(stack, registry)])


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Measure and write."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        work = Path(directory)
        (work / "s").mkdir()
        # PostgreSQL runs as another account when we are root, and has to reach its data.
        work.chmod(0o755)
        target = Path(".towline/bench.md")
        target.parent.mkdir(exist_ok=True)
        with target.open("w") as report:
            for text in measure(work):
                report.write(f"{text}\n")
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
