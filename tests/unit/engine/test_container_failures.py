"""The engine's words about containers, as recorded from dockerd 20.10.24 and 26.1.5, and what they mean."""

import pytest

from towline.domain.lifecycle import Reason
from towline.engine.failures import container_failure

_RUNC = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
_RUNC_26 = f"failed to create task for container: {_RUNC}"
_IN_INIT = f"{_RUNC}error during container init: "

SAMPLES = [
    (404, "No such image: 127.0.0.1:5100/nope:1", Reason.IMAGE_VANISHED),
    (404, f"No such image: bb@sha256:{'1' * 64}", Reason.IMAGE_VANISHED),
    (400, "No command specified", Reason.NO_COMMAND),
    (400, "no command specified", Reason.NO_COMMAND),
    (400, f'{_RUNC}exec: "nosuch": executable file not found in $PATH: unknown', Reason.COMMAND_NOT_FOUND),
    (400, f'{_RUNC}exec: "/no/such": stat /no/such: no such file or directory: unknown', Reason.COMMAND_NOT_FOUND),
    (400, f'{_RUNC}exec: "/etc": permission denied: unknown', Reason.COMMAND_NOT_FOUND),
    (400, f'{_RUNC_26}exec: "/etc": is a directory: unknown: permission denied', Reason.COMMAND_NOT_FOUND),
    (400, f'{_RUNC}exec: "nvidia-smi": executable file not found in $PATH: unknown', Reason.COMMAND_NOT_FOUND),
    (500, 'could not select device driver "" with capabilities: [[gpu]]', Reason.NO_DEVICE),
    (
        500,
        "driver failed programming external connectivity on endpoint p2 (25672593): "
        "Bind for 0.0.0.0:18080 failed: port is already allocated",
        Reason.PORT_IN_USE,
    ),
    (
        500,
        "driver failed programming external connectivity on endpoint p3 (d9ff75ae): "
        "Error starting userland proxy: listen tcp4 0.0.0.0:18081: bind: address already in use",
        Reason.PORT_IN_USE,
    ),
    (
        400,
        "invalid mount config for type \"volume\": invalid mount path: 'x' mount path must be absolute",
        Reason.MOUNT_INVALID,
    ),
    (
        400,
        "invalid mount config for type \"volume\": invalid specification: destination can't be '/'",
        Reason.MOUNT_INVALID,
    ),
    (
        400,
        'create ../x: "../x" includes invalid characters for a local volume name, only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are '
        "allowed. If you intended to pass a host directory, use absolute path",
        Reason.MOUNT_INVALID,
    ),
    (500, "source /data/overlay2/0c92/merged/bin/busybox is not directory", Reason.MOUNT_INVALID),
    (400, "Duplicate mount point: /d", Reason.MOUNT_INVALID),
    (
        500,
        f'{_IN_INIT}error mounting "/data/volumes/v1/_data" to rootfs at "/proc": "/data/overlay2/32a4/merged/proc" '
        "cannot be mounted because it is not of type proc: unknown",
        Reason.MOUNT_INVALID,
    ),
    (
        500,
        f'{_IN_INIT}error mounting "/data/volumes/v2/_data" to rootfs at "/d/sub": mkdir /data/overlay2/d74a/merged/d/sub: '
        "read-only file system: unknown",
        Reason.MOUNT_INVALID,
    ),
    (500, "Cannot mkdir: /bin/busybox is not a directory", Reason.CONTAINER_START_FAILED),
    (400, "the working directory 'x' is invalid, it needs to be an absolute path", Reason.CONTAINER_START_FAILED),
    (400, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", Reason.CONTAINER_START_FAILED),
    (400, "Minimum memory limit allowed is 6MB", Reason.CONTAINER_START_FAILED),
    (
        500,
        f"{_IN_INIT}error setting rlimits for ready process: error setting rlimit type 7: operation not permitted: unknown",
        Reason.CONTAINER_START_FAILED,
    ),
    (404, "network nonet not found", Reason.CONTAINER_START_FAILED),
]


@pytest.mark.parametrize(("status", "text", "reason"), SAMPLES)
def test_each_recorded_refusal_is_final_typed_and_quoted(status: int, text: str, reason: Reason) -> None:
    error = container_failure(text, status=status)
    assert (error.reason, error.retryable) == (reason, False)
    assert text in error.message


@pytest.mark.parametrize("status", [None, 500])
def test_a_stumble_of_the_engine_is_tried_again(status: int | None) -> None:
    error = container_failure("failed to create task for container: ttrpc: closed: unknown", status=status)
    assert (error.reason, error.retryable) == (Reason.ENGINE_ERROR, True)


def test_unknown_words_about_anything_but_a_start_are_tried_again() -> None:
    error = container_failure("driver failed to remove root filesystem: device or resource busy")
    assert (error.reason, error.retryable) == (Reason.ENGINE_ERROR, True)


def test_a_very_long_text_is_shortened_to_one_line() -> None:
    assert len(container_failure("a\nb " * 10_000, status=500).message) < 700
