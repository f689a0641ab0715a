"""Sessions, events and pulls as the API sends them."""

from typing import Any

SESSION = "ses-0123456789abcdef"
EVENTS = f"/v1/sessions/{SESSION}/events"
LOGS = f"/v1/sessions/{SESSION}/logs"


def session(status: str = "TERMINATED", reason: str | None = "exited", **fields: Any) -> dict[str, Any]:
    """A session's view."""
    return {
        "id": SESSION,
        "name": None,
        "status": status,
        "reason": reason,
        "message": "",
        "owner": "ann",
        "image": "docker.io/library/busybox:latest",
        "exit_code": 0,
        "ended_by": None,
        "ended_why": "",
        "created_at": "2026-01-01T00:00:00Z",
        "ended_at": None,
        "kernels": [
            {"index": 0, "status": status, "reason": reason, "agent_id": "a1", "digest": None, "container_id": None}
        ],
        "pull": None,
        **fields,
    }


def step(seq: int, to: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """A transition of the only kernel."""
    data = {
        "seq": seq,
        "at": "2026-01-01T00:00:00Z",
        "kind": "transition",
        "kernel": 0,
        "from_status": "PENDING",
        "to_status": to,
        "session_status": to,
        "reason": None,
        "message": "",
        "actor": None,
        **fields,
    }
    return "transition", data


def pull(**fields: Any) -> dict[str, Any]:
    """A pull's progress."""
    return {
        "pull_id": "pull-1",
        "image": "docker.io/library/busybox:latest",
        "agent_id": "a1",
        "phase": "downloading",
        "verdict": "healthy",
        "verdict_reason": "",
        "bytes_total": 200_000_000,
        "bytes_done": 50_000_000,
        "bytes_present": 0,
        "total_is_final": True,
        "extracted_bytes": 0,
        "layers": {"total": 2, "present": 0, "waiting": 1, "downloading": 1, "extracting": 0, "done": 0},
        "shown_layers": [
            {
                "id": "0123456789ab",
                "phase": "downloading",
                "bytes_done": 50_000_000,
                "bytes_total": 150_000_000,
                "extracted_bytes": 0,
            }
        ],
        "rate_bytes_per_s": 10_000_000.0,
        "eta_seconds": 15.0,
        "eta_reason": "",
        "attempt": 1,
        "attempts_max": 3,
        "retry_in_seconds": None,
        "retried_bytes": 0,
        "restarts": 0,
        "stalled_for_seconds": 0.0,
        "waiters": 1,
        "queue_position": None,
        "started_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:05Z",
        "percent": 25.0,
        **fields,
    }


def problem(detail: str, *, retryable: bool = False, **fields: Any) -> dict[str, Any]:
    """A problem document."""
    return {"type": "about:blank", "title": "No", "detail": detail, "reason": "x", "retryable": retryable, **fields}


def account(progress: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A pull as it is listed: in flight with its progress, or past without."""
    return {
        "id": "pull-1",
        "image": "docker.io/library/busybox:latest",
        "digest": None,
        "agent_id": "a1",
        "outcome": "in-flight",
        "reason": None,
        "message": "",
        "bytes_pulled": 0,
        "attempts": 1,
        "started_at": "2026-01-01T00:00:00Z",
        "ended_at": None,
        "waits": [{"session_id": SESSION, "outcome": "waiting"}],
        "other_waiters": 0,
        "progress": progress,
        **fields,
    }
