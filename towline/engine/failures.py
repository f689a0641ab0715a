"""What the engine's and the registries' words mean: the one place that reads error texts.

The engine answers most registry errors with HTTP 500, so the text decides, not the status. The samples that the patterns
were made from are recorded answers of dockerd 20.10 and 26.1 (both image stores) and podman 4.3; each is a test.
"""

import re
from dataclasses import dataclass
from typing import Final

from towline.domain.lifecycle import Reason
from towline.errors import ContainerError, PullError


@dataclass(frozen=True, kw_only=True)
class _Rule:
    pattern: re.Pattern[str]
    reason: Reason
    retryable: bool
    advice: str


def _rule(pattern: str, reason: Reason, advice: str, *, retryable: bool = False) -> _Rule:
    return _Rule(pattern=re.compile(pattern, re.IGNORECASE), reason=reason, retryable=retryable, advice=advice)


_PULL_RULES: Final = (
    _rule(r"no space left on device|disk quota exceeded", Reason.NO_SPACE, "free space on the agent, or unload images"),
    _rule(
        r"toomanyrequests|too many requests| 429\b|rate limit",
        Reason.RATE_LIMITED,
        "the registry limits how often it may be asked; use a credential, a mirror, or wait",
        retryable=True,
    ),
    _rule(
        r"x509|certificate|\btls: |\[SSL|http: server gave HTTP response to HTTPS client|first record does not look like a TLS",
        Reason.TLS,
        "the agent does not trust the registry's certificate, or speaks HTTPS to a plain registry",
    ),
    _rule(
        r"no such host|server misbehaving|name resolution|name or service not known|no address associated|"
        r"lookup [^ ]+( on [^ ]+)?: .*timeout",
        Reason.DNS,
        "check the registry's name, and the agent's name server",
        retryable=True,
    ),
    _rule(
        r"connection refused|all connection attempts failed",
        Reason.CONNECTION_REFUSED,
        "no registry listens there; check host and port",
        retryable=True,
    ),
    _rule(
        r"no matching manifest|does not match the (specified|requested) platform|image operating system|"
        r"cannot be used on this platform|was found but its platform",
        Reason.PLATFORM_MISMATCH,
        "the image has no variant for this agent's platform",
    ),
    _rule(
        r"verification failed|unexpected commit digest|digest.{0,40}mismatch|failed size validation",
        Reason.DIGEST_MISMATCH,
        "the bytes that came are not those that the registry announced; if it stays so, push the image again",
        retryable=True,
    ),
    _rule(
        r"no basic auth credentials|unauthorized|authentication required| 401\b|incorrect username or password",
        Reason.UNAUTHORIZED,
        "the registry wants a valid credential",
    ),
    _rule(
        r"denied|forbidden| 403\b",
        Reason.ACCESS_DENIED,
        "the image does not exist, or the credential may not read it",
    ),
    _rule(
        r"manifest.{0,200}not found|manifest unknown|name unknown|repository .* not found|unknown blob|blob unknown|"
        r": not found$| 404\b",
        Reason.IMAGE_NOT_FOUND,
        "check the image's name and tag",
    ),
    _rule(
        r"invalid reference format|invalid tag format|invalid repository", Reason.INVALID_REFERENCE, "check the image"
    ),
    _rule(
        r"unexpected HTTP status|unexpected status| 50[0-9]\b|invalid character|internal server error",
        Reason.REGISTRY_ERROR,
        "the registry failed; its operator has to look",
        retryable=True,
    ),
    _rule(
        r"connection reset|\bEOF\b|time-?out|deadline exceeded|broken pipe|failed to copy|short read|use of closed|"
        r"no route to host|network is unreachable|server disconnected",
        Reason.NETWORK,
        "the connection to the registry broke, or was never made",
        retryable=True,
    ),
)


_BY_STATUS: Final = {
    401: Reason.UNAUTHORIZED,
    403: Reason.ACCESS_DENIED,
    404: Reason.IMAGE_NOT_FOUND,
    429: Reason.RATE_LIMITED,
}
_URL: Final = re.compile(r"https?://\S+")


def pull_failure(
    text: str, *, image: str, registry_status: int | None = None, retry_after_seconds: float | None = None
) -> PullError:
    """The typed error for the engine's or a registry's `text` about a pull of `image`. Unknown words are retried.

    `registry_status` is the HTTP status of a registry's own answer, which can be trusted; an engine's cannot.
    """
    rule = _rule_for(_without_names(text, image), registry_status)
    if rule is None:
        return PullError(f"{image}: the engine said: {_short(text)}", reason=Reason.ENGINE_ERROR, retryable=True)
    return PullError(
        f"{image}: {rule.advice} (said: {_short(text)})",
        reason=rule.reason,
        retryable=rule.retryable,
        retry_after_seconds=retry_after_seconds if rule.reason is Reason.RATE_LIMITED else None,
    )


def _rule_for(text: str, registry_status: int | None) -> _Rule | None:
    said = next((rule for rule in _PULL_RULES if rule.pattern.search(text)), None)
    # Some registries say 401 or 403 to who asks too often: there the words are better than the status.
    if registry_status is None or (said is not None and said.reason is Reason.RATE_LIMITED):
        return said
    reason = _BY_STATUS.get(registry_status, Reason.REGISTRY_ERROR)
    return next(rule for rule in _PULL_RULES if rule.reason is reason)


def _without_names(text: str, image: str) -> str:
    """The text without URLs and the image's name and tag: an image may be called `denied/x509:timeout`."""
    name = re.split(r"@|:(?=[^/]*$)", image)[0]
    path = re.escape(name.partition("/")[2] or name)
    suffix = r"[:@]\w[\w.-]*(?::[0-9a-f]+)?"
    return re.sub(rf"(?:[\w.:-]+/)+{path}(?:{suffix})?|\b{path}{suffix}", "…", _URL.sub("…", text))


_CONTAINER_RULES: Final = (
    _rule(r"^no such image|image not known|image .* not found$", Reason.IMAGE_VANISHED, "the image is gone"),
    _rule(r"^no command specified", Reason.NO_COMMAND, "the image names no command; give one"),
    _rule(
        r"invalid mount|error mounting|invalid characters for a local volume name|duplicate mount point|"
        r"^source .* is not directory|bind source path|mounts denied",
        Reason.MOUNT_INVALID,
        "check the mounts",
    ),
    _rule(
        r"could not select device driver|nvidia-container-cli|unresolvable CDI device",
        Reason.NO_DEVICE,
        "this agent has no such device",
    ),
    _rule(
        r"non-overlapping IPv4 address pool|predefined address pools have been fully subnetted",
        Reason.NO_NETWORK,
        "the engine has no address range left for the session's network: remove unused networks, or set default-address-pools",
    ),
    _rule(r"port is already allocated|address already in use", Reason.PORT_IN_USE, "choose another host port"),
    _rule(r"no space left on device|disk quota exceeded", Reason.NO_SPACE, "free space on the agent"),
    _rule(
        r"cannot mkdir: |working directory .* invalid|chdir to cwd",
        Reason.CONTAINER_START_FAILED,
        "the working directory cannot be used in this image",
    ),
    _rule(
        r"ttrpc: |transport is closing|error while dialing|context deadline exceeded|resource temporarily unavailable",
        Reason.ENGINE_ERROR,
        "the engine could not do it just now",
        retryable=True,
    ),
    _rule(
        r"executable file not found|exec format error|exec: .*(no such file or directory|permission denied|is a directory)",
        Reason.COMMAND_NOT_FOUND,
        "the command cannot be executed in this image",
    ),
)


def container_failure(text: str, *, status: int | None = None) -> ContainerError:
    """The typed error for the engine's `text` about a container.

    `status`: of the answer to a create or a start, the container's own steps. What is not known there is the container's
    failure and final; everywhere else it is the engine's, and tried again.
    """
    for rule in _CONTAINER_RULES:
        if rule.pattern.search(text):
            return ContainerError(f"{rule.advice} (said: {_short(text)})", reason=rule.reason, retryable=rule.retryable)
    return ContainerError(
        f"the engine said: {_short(text)}",
        reason=Reason.ENGINE_ERROR if status is None else Reason.CONTAINER_START_FAILED,
        retryable=status is None,
    )


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 600 else f"{one_line[:600]}…"
