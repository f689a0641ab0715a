"""Placement: who gets which agent, who waits and why, who is refused, and that nothing is promised twice."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.domain.lifecycle import Reason
from towline.domain.placement import AgentRoom, Wish, choose, who_fits
from towline.domain.sessions import ClusterMode, Resources

GIB = 1 << 30
BOTH = {"zone": "x", "disk": "ssd"}
SINGLE, MULTI = ClusterMode.SINGLE_AGENT, ClusterMode.MULTI_AGENT


def agent(
    name: str,
    *,
    cpu: float = 4.0,
    gib: int = 8,
    gpu: int = 0,
    platform: str = "linux/amd64",
    group: str = "default",
    labels: dict[str, str] | None = None,
) -> AgentRoom:
    """An empty agent."""
    return AgentRoom(
        agent_id=name,
        platform=platform,
        resource_group=group,
        labels=labels or {},
        cpu=cpu,
        memory_bytes=gib * GIB,
        gpu=gpu,
        cpu_free=cpu,
        memory_bytes_free=gib * GIB,
        gpu_free=gpu,
    )


def used(room: AgentRoom, *, cpu: float = 0.0, gib: int = 0, gpu: int = 0) -> AgentRoom:
    """The same agent with less that is free."""
    return replace(
        room,
        cpu_free=room.cpu_free - cpu,
        memory_bytes_free=room.memory_bytes_free - gib * GIB,
        gpu_free=room.gpu_free - gpu,
    )


def wish(
    *,
    kernels: int = 1,
    cpu: float = 1.0,
    gib: int = 1,
    gpu: int = 0,
    mode: ClusterMode = SINGLE,
    platform: str | None = None,
    pinned: str | None = None,
    group: str | None = None,
    labels: dict[str, str] | None = None,
    overdue: bool = False,
) -> Wish:
    """What a session asks for."""
    return Wish(
        kernels=kernels,
        resources=Resources(cpu=cpu, memory_bytes=gib * GIB, gpu=gpu),
        cluster_mode=mode,
        platform=platform,
        agent=pinned,
        resource_group=group,
        agent_labels=labels,
        is_overdue=overdue,
    )


class TestWhoIsChosen:
    @pytest.mark.parametrize(
        ("asked", "agents", "chosen"),
        [
            (wish(), [agent("a"), agent("b", gib=16)], ("b",)),
            (wish(), [agent("b"), agent("a")], ("a",)),
            (wish(), [agent("a", cpu=2), agent("b", cpu=4)], ("b",)),
            (wish(), [used(agent("a"), gib=4), agent("b", gib=6)], ("b",)),
            (wish(gpu=1), [agent("a", gib=64), agent("b", gpu=2)], ("b",)),
            (wish(cpu=4, gib=8), [agent("a")], ("a",)),
            (wish(pinned="b"), [agent("a", gib=64), agent("b")], ("b",)),
            (wish(platform="linux/arm64/v8"), [agent("a"), agent("b", platform="linux/arm64")], ("b",)),
            (wish(platform="linux/arm64"), [agent("a", platform="")], ("a",)),
            (wish(group="gpu"), [agent("a", gib=64), agent("b", group="gpu")], ("b",)),
            (wish(), [agent("a"), agent("b", gib=16, group="gpu")], ("b",)),
            (wish(labels={"zone": "x"}), [agent("a", gib=64, labels={"zone": "y"}), agent("b", labels=BOTH)], ("b",)),
            (wish(labels=BOTH), [agent("a", gib=64, labels={"zone": "x"}), agent("b", labels=BOTH)], ("b",)),
            (wish(), [replace(agent("a", gib=64), cordoned=True), agent("b")], ("b",)),
            (wish(), [replace(agent("a", gib=64), online=False), agent("b")], ("b",)),
            (wish(kernels=3), [agent("a"), agent("b", gib=16)], ("b", "b", "b")),
            (wish(kernels=4, gib=3, mode=MULTI), [agent("a"), agent("b")], ("a", "b", "a", "b")),
            (wish(kernels=2, gib=8, mode=MULTI), [agent("a"), agent("b")], ("a", "b")),
        ],
    )
    def test_the_fitting_agent_with_the_most_room(
        self, asked: Wish, agents: list[AgentRoom], chosen: tuple[str, ...]
    ) -> None:
        assert choose(asked, agents).agents == chosen

    def test_the_choice_is_explained(self) -> None:
        assert choose(wish(), [agent("a"), agent("b")]).message == "a: the most room of 2 fitting agents"
        assert choose(wish(), [agent("a")]).message == "a: the most room of 1 fitting agent"

    def test_and_so_is_why_no_other_was(self) -> None:
        others = [
            replace(agent("b"), cordoned=True),
            replace(agent("c"), online=False),
            agent("d", platform="linux/arm64"),
            used(agent("e"), gib=8),
            agent("f", group="gpu"),
        ]
        asked = wish(platform="linux/amd64", group="default", labels={"zone": "x"})
        agents = [replace(room, labels={"zone": "x"}) for room in [agent("a"), *others]]
        assert choose(asked, [*agents, agent("g"), agent("h")]).message == (
            "a: the most room of 1 fitting agent; not b (cordoned), c (away), d (not of the platform linux/amd64), "
            "e (no room), f (not in the resource group default) and 2 more"
        )
        assert choose(replace(asked, agent="a"), agents).message == "a: the most room of 1 fitting agent"

    def test_and_large_labels_make_no_large_message(self) -> None:
        asked = wish(labels={f"label-{n}": "x" * 1024 for n in range(64)})
        fitting = agent("z", labels=asked.agent_labels)
        assert len(choose(asked, [*(agent(name) for name in "abcdefg"), fitting]).message) < 1000
        assert len(choose(asked, [agent("a")]).message) < 200

    def test_also_that_room_is_kept_for_others(self) -> None:
        choice = choose(wish(gib=8), [agent("a"), agent("b")], ahead=[wish(gib=8)])
        assert choice.message == "b: the most room of 1 fitting agent; not a (its room goes to sessions before)"

    def test_tenths_of_cores_fill_an_agent_to_the_last(self) -> None:
        room = agent("a", cpu=1.0)
        for _ in range(9):
            room = used(room, cpu=0.1)
        assert choose(wish(cpu=0.1), [room]).agents == ("a",)


class TestWhoWaits:
    @pytest.mark.parametrize(
        ("asked", "agents", "why"),
        [
            (wish(), [], "no agent has registered yet"),
            (wish(pinned="a"), [], "no agent has registered yet"),
            (wish(), [replace(agent("a"), online=False)], "no fitting agent is online"),
            (wish(pinned="a"), [replace(agent("a"), cordoned=True), agent("b")], "no fitting agent is online"),
            (wish(), [replace(agent("a"), cordoned=True)], "open for new work; not a (cordoned)"),
            (wish(gib=5), [used(agent("a"), gib=4), replace(agent("b"), cordoned=True)], "on a; not b (cordoned)"),
            (wish(gib=5), [used(agent("a"), gib=4)], "4294967296 bytes, 0 GPUs on a"),
            (wish(cpu=3), [used(agent("a"), cpu=2)], "the most that is free is 2 cores"),
            (wish(cpu=3), [used(agent("a"), cpu=4.0 + 1e-15)], "the most that is free is 0 cores"),
            (wish(gpu=1), [used(agent("a", gpu=1), gpu=1)], "1 GPUs; the most"),
            (wish(kernels=2, gib=4), [used(agent("a"), gib=1), used(agent("b"), gib=1)], "2 kernels of"),
            (wish(kernels=2, gib=8, mode=MULTI), [agent("a"), used(agent("b"), gib=1)], "2 kernels of"),
        ],
    )
    def test_with_the_reason_and_the_numbers(self, asked: Wish, agents: list[AgentRoom], why: str) -> None:
        choice = choose(asked, agents)
        assert (choice.agents, choice.never, choice.reason) == ((), False, Reason.NO_CAPACITY)
        assert why in choice.message


class TestWhoIsRefused:
    @pytest.mark.parametrize(
        ("asked", "agents", "why"),
        [
            (wish(gib=9), [agent("a"), agent("b")], "the largest agent, a, has 4 cores, 8589934592 bytes, 0 GPUs"),
            (wish(gpu=1), [agent("a")], "needs 1 cores, 1073741824 bytes, 1 GPUs"),
            (wish(kernels=3, gib=3), [agent("a"), agent("b")], "3 kernels of"),
            (wish(kernels=5, gib=4, mode=MULTI), [agent("a"), agent("b")], "5 kernels of"),
            (wish(pinned="c"), [agent("a")], "there is no agent c"),
            (wish(pinned="a", gib=9), [agent("a"), agent("b", gib=16)], "the largest agent, a,"),
            (wish(platform="linux/arm64"), [agent("a")], "no agent is of the platform linux/arm64"),
            (wish(group="gpu"), [agent("a")], "no agent is in the resource group gpu"),
            (wish(group="gpu", labels=BOTH), [agent("a")], "in the resource group gpu; labelled zone=x, disk=ssd"),
            (wish(labels=BOTH, pinned="a"), [agent("a"), agent("b", labels=BOTH)], "agent a is not labelled zone=x"),
        ],
    )
    def test_for_good_what_no_agent_could_take_when_empty(self, asked: Wish, agents: list[AgentRoom], why: str) -> None:
        choice = choose(asked, [used(room, gib=1) for room in agents])
        assert (choice.agents, choice.never, choice.reason) == ((), True, Reason.CANNOT_EVER_FIT)
        assert why in choice.message

    def test_not_while_a_lost_or_cordoned_agent_could_take_it(self) -> None:
        large = [replace(agent("a", gib=64), online=False), replace(agent("b", gib=64), cordoned=True), agent("c")]
        assert not choose(wish(gib=32), large).never


class TestWhoseTurn:
    def test_the_last_room_is_kept_for_whom_it_fits_and_came_first(self) -> None:
        choice = choose(wish(gib=8), [agent("a")], ahead=[wish(gib=8)])
        assert (choice.agents, choice.reason) == ((), Reason.NO_CAPACITY)
        assert choice.message.endswith("what is free goes to 1 session that came before")

    def test_with_room_for_both_nobody_waits(self) -> None:
        assert choose(wish(gib=8), [agent("a"), agent("b")], ahead=[wish(gib=8)]).agents == ("b",)
        assert choose(wish(gib=4), [agent("a")], ahead=[wish(gib=4)]).agents == ("a",)

    def test_one_ahead_that_does_not_fit_now_keeps_nobody_waiting(self) -> None:
        agents = [used(agent("a"), gib=4)]
        ahead = [wish(gib=8), wish(pinned="gone"), wish(platform="linux/arm64")]
        assert choose(wish(gib=4), agents, ahead=ahead).agents == ("a",)

    def test_for_one_that_is_overdue_room_is_kept_on_the_largest_agent_that_could_take_it(self) -> None:
        agents = [used(agent("a"), gib=4), used(agent("b", gib=9), gib=6), agent("small", gib=4)]
        ahead = [wish(gib=8, overdue=True)]
        assert choose(wish(gib=3), agents[:2], ahead=ahead).agents == ("a",)
        assert choose(wish(gib=4), agents[1:], ahead=ahead).agents == ("small",)
        choice = choose(wish(gib=1), agents[1:2], ahead=ahead)
        assert choice.message == "needs 1 cores, 1073741824 bytes; what is free goes to 1 session that came before"
        assert choose(wish(gib=1), agents[1:2], ahead=[wish(gib=10, overdue=True)]).agents == ("b",)

    def test_and_only_for_the_first_of_them_and_on_as_few_agents_as_need_be(self) -> None:
        agents = [used(agent(name), gib=1) for name in ("a", "b", "c", "d")]
        ahead = [wish(gib=8, kernels=2, mode=MULTI, overdue=True), wish(gib=8, overdue=True)]
        assert choose(wish(gib=1), agents, ahead=ahead).agents == ("c",)
        # The first could be given room now, so that none has to be kept; the second has none kept all the same.
        first_fits = [wish(gib=1, overdue=True), wish(gib=8, overdue=True)]
        assert choose(wish(gib=7), agents, ahead=first_fits).agents == ("b",)

    def test_a_placement_does_not_move_what_is_kept(self) -> None:
        ahead = [wish(gib=8, overdue=True)]
        for on_a, on_b in product(range(1, 8), repeat=2):
            agents = [used(agent("a"), gib=on_a), used(agent("b"), gib=on_b)]
            assert choose(wish(), agents, ahead=ahead).agents == ("b",)

    def test_who_fits_leaves_it_what_is_kept(self) -> None:
        agents = [used(agent("a"), gib=4), used(agent("b"), gib=5)]
        waiting = [("large", wish(gib=8, overdue=True)), ("first", wish(gib=4)), ("second", wish(gib=3))]
        assert who_fits(waiting, agents, limit=9) == ("second",)
        assert who_fits(waiting[1:], agents, limit=9) == ("first", "second")
        assert who_fits(waiting, [agent("a"), agents[1]], limit=9) == ("large", "second")

    def test_nor_does_one_that_would_need_a_closed_agent(self) -> None:
        agents = [agent("a"), replace(agent("b"), cordoned=True)]
        assert choose(wish(gib=8), agents, ahead=[wish(gib=8, pinned="b")]).agents == ("a",)

    def test_who_fits_goes_by_the_turn(self) -> None:
        waiting = [("large", wish(gib=9)), ("first", wish(gib=5)), ("second", wish(gib=5)), ("third", wish(gib=3))]
        assert who_fits(waiting, [agent("a")], limit=9) == ("first", "third")
        assert who_fits(waiting, [agent("a")], limit=1) == ("first",)
        assert who_fits(waiting, [], limit=9) == ()


rooms = st.lists(
    st.builds(
        agent, st.sampled_from(["a", "b", "c"]), cpu=st.sampled_from([1.0, 2.0]), gib=st.integers(1, 4), gpu=st.just(1)
    ),
    max_size=3,
    unique_by=lambda room: room.agent_id,
)
wishes = st.builds(
    wish,
    kernels=st.integers(1, 3),
    cpu=st.sampled_from([0.5, 1.0]),
    gib=st.integers(1, 3),
    gpu=st.integers(0, 1),
    mode=st.sampled_from(ClusterMode),
)


def possible(asked: Wish, assigned: tuple[str, ...], agents: list[AgentRoom]) -> bool:
    """Whether these agents have room for these kernels."""
    free = {room.agent_id: room for room in agents}
    return all(
        free[name].cpu_free >= count * asked.resources.cpu
        and free[name].memory_bytes_free >= count * asked.resources.memory_bytes
        and free[name].gpu_free >= count * asked.resources.gpu
        for name, count in Counter(assigned).items()
    )


@given(asked=wishes, agents=rooms)
def test_a_choice_is_possible_and_complete_and_none_means_that_there_is_none(
    asked: Wish, agents: list[AgentRoom]
) -> None:
    chosen = choose(asked, agents).agents
    names = [room.agent_id for room in agents]
    every_way = product(names, repeat=asked.kernels)
    ways = [way for way in every_way if asked.cluster_mode is MULTI or len(set(way)) == 1]
    assert bool(chosen) is any(possible(asked, way, agents) for way in ways)
    if chosen:
        assert len(chosen) == asked.kernels
        assert possible(asked, chosen, agents)
        assert asked.cluster_mode is MULTI or len(set(chosen)) == 1


@given(queue=st.lists(wishes, max_size=6), agents=rooms)
def test_whoever_fits_by_the_turn_is_chosen_behind_those_ahead(queue: list[Wish], agents: list[AgentRoom]) -> None:
    fitting = who_fits([(str(turn), asked) for turn, asked in enumerate(queue)], agents, limit=99)
    for turn, asked in enumerate(queue):
        assert bool(choose(asked, agents, ahead=queue[:turn]).agents) is (str(turn) in fitting)


@given(asked=wishes, agents=rooms)
def test_the_order_of_the_agents_does_not_matter(asked: Wish, agents: list[AgentRoom]) -> None:
    assert choose(asked, agents) == choose(asked, agents[::-1])
