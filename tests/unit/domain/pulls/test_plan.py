"""What has to be brought, before the first byte."""

from hypothesis import given
from hypothesis import strategies as st

from towline.domain.pulls.plan import PullPlan, plan_pull
from towline.domain.pulls.stores import StoreKind

LAYERS = (("sha256:aa", 100), ("sha256:bb", 20), ("sha256:cc", 3))
DIFFS = ("sha256:1", "sha256:2", "sha256:3")


def plan(
    *local: tuple[str, ...],
    store: StoreKind = StoreKind.CLASSIC,
    layers: tuple[tuple[str, int], ...] = LAYERS,
    diff_ids: tuple[str, ...] = DIFFS,
) -> PullPlan:
    return plan_pull(
        digest="sha256:dd", platform="linux/amd64", layers=layers, diff_ids=diff_ids, local_chains=local, store=store
    )


def present(made: PullPlan) -> list[bool]:
    return [layer.present for layer in made.layers]


def test_an_empty_agent_needs_everything() -> None:
    made = plan()
    assert (made.bytes_to_pull, made.bytes_present, made.total_is_final) == (123, 0, True)


def test_the_classic_store_spares_the_longest_common_prefix() -> None:
    made = plan(("sha256:1",), ("sha256:1", "sha256:2", "sha256:9"), ("sha256:2", "sha256:3"))
    assert present(made) == [True, True, False]
    assert (made.bytes_to_pull, made.bytes_present) == (3, 120)


def test_the_classic_store_brings_a_layer_again_that_lies_elsewhere() -> None:
    assert present(plan(("sha256:2", "sha256:3"))) == [False, False, False]


def test_the_containerd_store_spares_a_layer_wherever_it_lies() -> None:
    made = plan(("sha256:9", "sha256:3"), ("sha256:2",), store=StoreKind.CONTAINERD)
    assert present(made) == [False, True, True]
    assert made.bytes_to_pull == 100


def test_an_image_that_is_all_here_needs_nothing() -> None:
    made = plan(DIFFS)
    assert (made.bytes_to_pull, made.bytes_present) == (0, 123)


def test_a_layer_that_an_image_has_twice_counts_once() -> None:
    layers = (*LAYERS, ("sha256:bb", 20))
    made = plan(layers=layers, diff_ids=(*DIFFS, "sha256:2"))
    assert [(layer.digest, layer.places) for layer in made.layers] == [
        ("sha256:aa", 1),
        ("sha256:bb", 2),
        ("sha256:cc", 1),
    ]
    assert made.bytes_to_pull == 123


def test_a_repeated_layer_is_brought_if_one_of_its_places_needs_it() -> None:
    made = plan(("sha256:1", "sha256:2"), layers=(*LAYERS, ("sha256:bb", 20)), diff_ids=(*DIFFS, "sha256:2"))
    assert present(made) == [True, False, False]


def test_two_layers_of_equal_size_stay_two() -> None:
    assert plan(layers=(("sha256:aa", 7), ("sha256:bb", 7)), diff_ids=DIFFS[:2]).bytes_to_pull == 14


def test_without_diff_ids_the_total_is_an_upper_bound_and_not_final() -> None:
    made = plan(DIFFS, diff_ids=())
    assert (made.bytes_to_pull, made.total_is_final) == (123, False)


def test_an_image_without_layers() -> None:
    assert plan(layers=(), diff_ids=()).bytes_to_pull == 0


def test_the_short_id_is_what_the_engine_says() -> None:
    made = plan(layers=(("sha256:" + "0123456789abcdef" * 4, 1),), diff_ids=("sha256:1",))
    assert made.layers[0].short_id == "0123456789ab"


diff_ids = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=5)


@given(chain=diff_ids, local=st.lists(diff_ids, max_size=4), store=st.sampled_from(StoreKind))
def test_bytes_add_up_and_containerd_never_needs_more_than_classic(
    chain: list[str], local: list[list[str]], store: StoreKind
) -> None:
    layers = [(f"sha256:{diff_id}", ord(diff_id)) for diff_id in chain]

    def made(kind: StoreKind) -> PullPlan:
        return plan_pull(digest="d", platform="p", layers=layers, diff_ids=chain, local_chains=local, store=kind)

    assert made(store).bytes_to_pull + made(store).bytes_present == sum({ord(diff_id) for diff_id in chain})
    assert made(StoreKind.CONTAINERD).bytes_to_pull <= made(StoreKind.CLASSIC).bytes_to_pull
