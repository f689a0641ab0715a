"""What holds of any valid stream in any order, and of any rubbish."""

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.domain.pulls.streams import a_tracker, assert_sound, layer_id, line, plan_of, seen
from towline.domain.progress import LayerPhase, PullProgress
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line of one layer, and how many of its bytes the engine truly has when it sends it."""

    message: dict[str, object]
    truth: int


@dataclass(kw_only=True)
class Script:
    """The life of one layer as the classic store tells it."""

    id: str
    size: int
    steps: list[Step] = field(default_factory=list)

    def say(self, status: str, truth: int, **detail: object) -> None:
        self.steps.append(Step(message=line(status, self.id, **detail), truth=truth))

    def life(self, chance: random.Random) -> "Script":
        self.say("Pulling fs layer", 0)
        if chance.random() < 0.5:
            self.say("Waiting", 0)
        have = 0
        for _ in range(chance.choice((0, 0, 1, 2))):
            have = self.broken_transfer(chance, have)
        self.transfer(chance, have, self.size)
        self.extraction(chance)
        return self

    def transfer(self, chance: random.Random, base: int, upto: int) -> None:
        for offset in sorted(chance.randint(base, upto) for _ in range(chance.randint(0, 4))):
            self.say("Downloading", offset, current=offset - base, total=self.size - base)

    def broken_transfer(self, chance: random.Random, base: int) -> int:
        """Some bytes, perhaps the false claim of all, a countdown; then the engine resumes, or begins at zero."""
        upto = chance.randint(base, self.size)
        self.transfer(chance, base, upto)
        if chance.random() < 0.5:
            self.say("Downloading", upto, current=self.size - base, total=self.size - base)
        resumes = chance.random() < 0.7
        for seconds in (2, 1):
            unit = "second" if seconds == 1 else "seconds"
            self.say(f"Retrying in {seconds} {unit}", upto)
        return upto if resumes else 0

    def extraction(self, chance: random.Random) -> None:
        if chance.random() < 0.5:
            self.say("Verifying Checksum", self.size)
        self.say("Download complete", self.size)
        for offset in sorted(chance.randint(0, self.size) for _ in range(chance.randint(0, 3))):
            self.say("Extracting", self.size, current=offset, total=self.size)
        self.say("Pull complete", self.size)


def interleave(scripts: list[Script], chance: random.Random) -> list[tuple[str, Step]]:
    queues = [deque((script.id, step) for step in script.steps) for script in scripts]
    order = []
    while left := [queue for queue in queues if queue]:
        order.append(chance.choice(left).popleft())
    return order


seeds = st.integers(0, 2**32).map(random.Random)
sizes = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 9 * MIB)), min_size=1, max_size=6)


@settings(max_examples=120, deadline=None)
@given(sizes=sizes, chance=seeds, planned=st.booleans())
def test_classic_streams_are_sound_and_never_claim_more_than_the_engine_has(
    sizes: list[int], chance: random.Random, planned: bool
) -> None:
    scripts = [Script(id=layer_id(number), size=size).life(chance) for number, size in enumerate(sizes)]
    tracker = a_tracker(plan_of({script.id: script.size for script in scripts}) if planned else None)
    tracker.feed(line("Pulling from app", "latest"), 0.0)
    before, at = seen(tracker, 0.0), 0.0
    for name, step in interleave(scripts, chance):
        at += chance.random()
        tracker.feed(step.message, at)
        now = seen(tracker, at)
        assert_sound(before, now)
        layer = tracker.fold.layers[name]
        # Whether the engine will resume is not known before its next line of bytes.
        assert layer.phase is LayerPhase.RETRYING or layer.done <= step.truth
        before = now
    tracker.feed(line("Status: Downloaded newer image for app:latest"), at)
    end = seen(tracker, at)
    assert_sound(before, end)
    assert end.percent == 100.0
    assert end.bytes_done == end.bytes_total
    if planned:
        assert end.bytes_total == sum(sizes)


@settings(max_examples=80, deadline=None)
@given(sizes=sizes, chance=seeds, kept_share=st.floats(0, 1))
def test_containerd_streams_are_sound_though_every_line_comes_ten_times(
    sizes: list[int], chance: random.Random, kept_share: float
) -> None:
    plan = plan_of({layer_id(number): size for number, size in enumerate(sizes)})
    tracker = a_tracker(plan, store=StoreKind.CONTAINERD)
    at = 0.0
    offsets = {layer_id(number): int(size * kept_share) // MIB * MIB for number, size in enumerate(sizes)}
    before: PullProgress | None = None
    for number in chance.sample(range(len(sizes)), len(sizes)):
        tracker.feed(line("Pulling fs layer", layer_id(number)), at)
    open_layers = dict(enumerate(sizes))
    while open_layers:
        at += 0.1
        for number, size in list(open_layers.items()):
            name = layer_id(number)
            offsets[name] = min(size, offsets[name] + chance.choice((0, 0, MIB, 2 * MIB)))
            if offsets[name] >= size and chance.random() < 0.5:
                tracker.feed(line("Download complete", name, hidecounts=True), at)
                del open_layers[number]
            elif offsets[name]:
                tracker.feed(line("Downloading", name, current=offsets[name], total=size), at)
            now = seen(tracker, at)
            assert_sound(before, now)
            assert now.restarts == 0
            before = now
    assert before is not None
    assert before.percent == 99.9
    tracker.feed(line("Status: Downloaded newer image for app:latest"), at)
    assert seen(tracker, at).percent == 100.0


numbers = st.one_of(
    st.none(), st.integers(-5, 3 * MIB), st.floats(), st.booleans(), st.text(max_size=3), st.integers(2**60, 2**70)
)
statuses = st.one_of(
    st.sampled_from(
        [
            "Pulling fs layer",
            "Waiting",
            "Downloading",
            "Downloading",
            "Pulling layer fs",
            "Retrying in 5 seconds",
            "Retrying in 1 second",
            "Retrying in soon",
            "Verifying Checksum",
            "Download complete",
            "Extracting",
            "Pull complete",
            "Already exists",
            "Pulling from deadbeef0001",
            "Digest: sha256:zz",
            "WARNING: odd",
        ]
    ),
    st.text(max_size=5),
    st.none(),
)
details = st.one_of(
    st.none(),
    st.just("half"),
    st.fixed_dictionaries({}, optional={"current": numbers, "total": numbers, "units": st.sampled_from(["s", "", 7])}),
)
ids = st.one_of(
    st.sampled_from([layer_id(0), layer_id(1), layer_id(2), "latest", "deadbeef0001", ""]), st.none(), numbers
)
rubbish = st.fixed_dictionaries(
    {}, optional={"status": statuses, "id": ids, "progressDetail": details, "errorDetail": st.none(), "aux": numbers}
)
plans = st.sampled_from(
    [
        None,
        plan_of({layer_id(0): 0, layer_id(1): 5_000, layer_id(2): MIB}),
        plan_of({layer_id(0): 3, layer_id(1): 5_000, layer_id(2): MIB}, present=[layer_id(1)]),
        plan_of({}),
    ]
)


@settings(max_examples=250, deadline=None)
@given(messages=st.lists(rubbish, max_size=40), plan=plans, store=st.sampled_from(StoreKind))
def test_no_line_raises_or_makes_a_false_number(
    messages: list[dict[str, object]], plan: PullPlan | None, store: StoreKind
) -> None:
    tracker = a_tracker(plan, store=store)
    before: PullProgress | None = None
    for second, message in enumerate(messages):
        tracker.feed(message, float(second))
        now = seen(tracker, float(second))
        assert_sound(before, now)
        before = now
    assert not tracker.succeeded
