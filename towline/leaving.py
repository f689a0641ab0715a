"""How a process ends that has used Temporal's client."""

import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def leave_after(run: Callable[[], object]) -> NoReturn:
    """Run it, then end the process with the code that Python would give, all output written."""
    try:
        run()
        code = 0
    except SystemExit as leaving:
        code = _code(leaving.code)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader has gone.
            code = code or 1
    # The client's native threads may still want the interpreter while it is taken down, and abort the process: of processes that
    # end right after they connected, one in twenty did.
    os._exit(code)


def _code(said: object) -> int:
    if said is None or isinstance(said, int):
        return said or 0
    sys.stderr.write(f"{said}\n")
    return 1
