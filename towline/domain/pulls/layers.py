"""One layer of a running pull: what the engine's lines say of it, and what may be believed."""

from dataclasses import dataclass
from typing import Final

from towline.domain.progress import LayerPhase, LayerProgress

_P: Final = LayerPhase
_HAS_ALL_BYTES: Final = frozenset({_P.DOWNLOADED, _P.EXTRACTING, _P.DONE, _P.PRESENT})


@dataclass(kw_only=True, slots=True)
class LayerState:
    """The fold of one layer's lines. Sizes and counts in bytes, compressed.

    `size` is the manifest's where `size_is_final`, else the largest that the stream has named. `counted` layers belong to
    what this pull has to bring. `done` is what may be believed: a line that claims the whole layer counts only once the
    engine confirms it, because closing a failed copy makes the classic store claim just that.
    """

    id: str
    size: int | None = None
    size_is_final: bool = False
    counted: bool = True
    places: int = 1
    """How often the image has it. The classic store downloads it once and extracts it at each place."""
    shows_kept_bytes: bool = False
    """The containerd store's first `Downloading` shows bytes kept from an earlier pull, too: those do not come now."""
    phase: LayerPhase = _P.WAITING
    mentioned: bool = False
    queued: bool = False
    """The engine said that the layer waits for a slot."""
    done: int = 0
    extracted: int = 0
    transferred: int = 0
    """Bytes seen to arrive in this attempt; never falls."""
    restarts: int = 0
    retried_bytes: int = 0
    retries: int = 0
    retry_until: float | None = None
    _base: int = 0
    _most: int = 0
    _seen_bytes: bool = False
    _extract_mark: int = 0
    _countdown: int = 0

    @property
    def token(self) -> tuple[int, int, int, LayerPhase]:
        """Changes when, and only when, the layer moved."""
        return self.done, self.extracted, self._extract_mark, self.phase

    @property
    def size_floor(self) -> int:
        """A size that the layer has at least; never falls."""
        return max(self.size or 0, self._most)

    @property
    def has_all_bytes(self) -> bool:
        """Nothing of it is left to download."""
        return self.phase in _HAS_ALL_BYTES

    def announce(self) -> None:
        """`Pulling fs layer`. Contradicts an earlier claim that the layer was here, else says nothing about bytes."""
        self.mentioned = True
        if self.phase is _P.PRESENT and self.counted:
            self._lose(self.done)
            self.done, self.phase = 0, _P.WAITING

    def queue(self) -> None:
        """`Waiting`: no download slot."""
        self.mentioned = True
        if self.phase is _P.WAITING:
            self.queued = True

    def download(self, current: int | None, total: int | None) -> None:
        """`Downloading`. `total` shrinks to the remainder when the engine resumes inside a pull; `current` then restarts."""
        self.mentioned = True
        if current is None and total is None:
            if not self.has_all_bytes:
                self._enter_download()
            return
        current = current or 0
        retried = self.phase is _P.RETRYING
        base = self._base_of(total, retried=retried)
        now = base + current if self.size is None else min(self.size, base + current)
        claims_all = self.size is not None and now >= self.size
        if claims_all and self.has_all_bytes:
            return
        self._base = base
        from_zero = retried and base == 0 and total is not None
        if claims_all:
            now = 0 if from_zero else max(self.done, base)
        if now < self.done or from_zero:
            self._lose(self.done - base)
            self.done, self.extracted = now, 0
        self._believe(now, kept=self.shows_kept_bytes and not self._seen_bytes)
        self._enter_download()

    def _base_of(self, total: int | None, *, retried: bool) -> int:
        """Bytes brought before the transfer that this line counts."""
        if total is None:
            return self.done if retried else self._base
        if self.size is None or (not self.size_is_final and total > self.size):
            self.size = total
        return max(0, self.size - total)

    def _enter_download(self) -> None:
        self.phase, self.queued, self.retry_until = _P.DOWNLOADING, False, None

    def _lose(self, lost: int) -> None:
        if lost > 0:
            self.restarts += 1
            self.retried_bytes += lost

    def _believe(self, done: int, *, kept: bool = False) -> None:
        """`done` bytes are here; `kept`: they need not have come now."""
        if not kept:
            self.transferred += max(0, done - self.done)
        self._seen_bytes = self._seen_bytes or done > 0
        self.done = max(self.done, done)
        self._most = max(self._most, self.done)

    def retry(self, seconds: int, at: float) -> None:
        """`Retrying in N seconds`. A number that does not go down starts the next try's countdown.

        After a checksum that did not match, the engine begins at zero.
        """
        self.mentioned = True
        if self.has_all_bytes:
            self._lose(self.done)
            self.done = self.extracted = self._base = 0
        if self.phase is not _P.RETRYING or seconds >= self._countdown:
            self.retries += 1
        self._countdown = seconds
        self.phase, self.queued, self.retry_until = _P.RETRYING, False, at + seconds

    def downloaded(self) -> None:
        """`Verifying Checksum`, `Download complete`: the whole blob is here."""
        self.mentioned = True
        if self.phase in {_P.EXTRACTING, _P.DONE}:
            return
        self._take_whole()
        self.phase = _P.DOWNLOADED

    def _take_whole(self) -> None:
        self._believe(max(self.done, self.size or 0))
        self.queued, self.retry_until = False, None

    def extract(self, current: int | None, total: int | None, *, in_bytes: bool) -> None:
        """`Extracting`. Bytes of compressed input read, or seconds (a clock that says nothing about progress)."""
        self.mentioned = True
        if in_bytes and total is not None and not self.size_is_final:
            self.size = max(self.size or 0, total)
        self._take_whole()
        self.phase = _P.EXTRACTING
        if current is not None and in_bytes:
            # At a layer's second place `extracted` stands still while this mark moves.
            self._extract_mark = current
            self._believe(current if self.size is None else min(current, self.size))
            self.extracted = max(self.extracted, min(current, self.done))

    def complete(self) -> None:
        """`Pull complete`: registered."""
        self.mentioned = True
        self._take_whole()
        self.extracted, self.phase = self.done, _P.DONE

    def exists(self) -> None:
        """`Already exists`. A blob that has two places is here only once no place needs it: then the plan knows."""
        self.mentioned = True
        if self._seen_bytes:
            self.downloaded()
        elif self.places == 1 or not self.counted:
            self.keep()

    def keep(self) -> None:
        """The registry need not serve it: its bytes are here, and were not transferred now."""
        self.phase, self.queued, self.retry_until = _P.PRESENT, False, None
        self.done = max(self.done, self.size or 0)

    def shown(self) -> LayerProgress:
        """The layer as others see it."""
        return LayerProgress(
            id=self.id,
            phase=self.phase,
            bytes_done=self.done,
            bytes_total=self.size,
            extracted_bytes=self.extracted,
        )
