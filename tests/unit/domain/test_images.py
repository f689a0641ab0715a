"""Image references: Docker's grammar, what is refused and with which hint."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.domain.images import ImageRef
from towline.errors import FieldProblem, InvalidInputError

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        (" busybox\n", "docker.io/library/busybox:latest"),
        ("user/app", "docker.io/user/app:latest"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("docker.io/user/app", "docker.io/user/app:latest"),
        ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
        ("127.0.0.1:5000/app", "127.0.0.1:5000/app:latest"),
        ("127.0.0.1:5000/ns/app:v1", "127.0.0.1:5000/ns/app:v1"),
        ("192.168.253.131:10051/mabo/python", "192.168.253.131:10051/mabo/python:latest"),
        ("127.0.0.1:5000/app:V1", "127.0.0.1:5000/app:V1"),
        ("LOCALHOST:5000/app", "LOCALHOST:5000/app:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("Registry.Example.com/app", "Registry.Example.com/app:latest"),
        ("host:5000", "docker.io/library/host:5000"),
        ("127.0.0.1:5000", "docker.io/library/127.0.0.1:5000"),
        (f"127.0.0.1:5000/app@{DIGEST}", f"127.0.0.1:5000/app@{DIGEST}"),
        (f"{HEX}:latest", f"docker.io/library/{HEX}:latest"),
        ("sha256:latest", "docker.io/library/sha256:latest"),
        ("a__b/c--d.e_f", "docker.io/a__b/c--d.e_f:latest"),
        ("app:_x.-", "docker.io/library/app:_x.-"),
        ("r.io/a/b/c/d/e", "r.io/a/b/c/d/e:latest"),
    ],
)
def test_what_is_typed_becomes_canonical(text: str, canonical: str) -> None:
    assert str(ImageRef.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "familiar"),
    [
        ("docker.io/library/busybox:1", "busybox:1"),
        ("docker.io/user/app", "user/app:latest"),
        ("docker.io/library/a/b", "library/a/b:latest"),
        ("r.io/app", "r.io/app:latest"),
        (f"busybox@{DIGEST}", f"busybox@{DIGEST}"),
        ("docker.io/x.y/app", "docker.io/x.y/app:latest"),
    ],
)
def test_the_familiar_form_is_short_and_means_the_same(text: str, familiar: str) -> None:
    assert ImageRef.parse(text).familiar == familiar


def test_the_parts() -> None:
    ref = ImageRef.parse("127.0.0.1:5000/ns/app:v1")
    assert (ref.registry, ref.repository, ref.tag, ref.digest) == ("127.0.0.1:5000", "ns/app", "v1", None)
    assert ref.name == "127.0.0.1:5000/ns/app"


def test_a_tag_beside_a_digest_is_dropped_for_the_digest_counts() -> None:
    ref = ImageRef.parse(f"app:v1@{DIGEST}")
    assert (ref.tag, ref.digest) == (None, DIGEST)
    assert ref == ImageRef.parse(f"app@{DIGEST}")


def test_pinning_keeps_the_repository() -> None:
    assert str(ImageRef.parse("r.io/app:v1").pinned(DIGEST)) == f"r.io/app@{DIGEST}"
    with pytest.raises(InvalidInputError):
        ImageRef.parse("r.io/app").pinned("sha256:short")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("app:", "tag after the colon is missing"),
        ("app@", "sha256: and 64"),
        (":v1", "name before the tag is missing"),
        ("a//b", "between slashes is empty"),
        ("/a", "between slashes is empty"),
        ("a/", "between slashes is empty"),
        ("docker.io/", "between slashes is empty"),
        ("-app", "lower-case letters and digits"),
        ("a..b", "lower-case letters and digits"),
        ("a___b", "lower-case letters and digits"),
        ("app:-x", "does not begin with '.' or '-'"),
        ("app:" + "t" * 129, "at most 128"),
        ("127.0.0.1:5000/App", "must be in lower case: app"),
        ("Foo/bar", "must be in lower case: foo/bar"),
        ("LOCALHOST/app", "must be in lower case"),
        ("🔥", "outside ASCII"),
        ("\uff41\uff50\uff50", "outside ASCII"),
        ("a\u0000b", "control character"),
        ("a b", "blank"),
        (HEX, "image id"),
        (DIGEST, "image id"),
        ("sha256:0123456789ab", "image id"),
        (f"app@sha256:{HEX[1:]}", "64 hexadecimal"),
        (f"app@sha256:{HEX.upper()}", "lower case"),
        (f"app@sha512:{HEX}{HEX}", "sha256"),
        (f"app@@{DIGEST}", "sha256"),
        ("app:v1@", "sha256"),
        ("x.y:0/app", "between 1 and 65535"),
        ("x.y:65536/app", "between 1 and 65535"),
        ("x.y:" + "9" * 200 + "/app", "between 1 and 65535"),
        ("x.y:" + "9" * 5000 + "/app", "too long"),
        ("x.y:/app", "not a registry's host name"),
        ("[::1]:5000/app", "not a registry's host name"),
        ("host_x.y/app", "not a registry's host name"),
        ("docker pull busybox", "image alone: busybox"),
        ("sudo docker image pull r.io/a:b", "image alone: r.io/a:b"),
        ("docker run --rm busybox sh", "image alone."),
        ("https://127.0.0.1:5000/app", "without the scheme: 127.0.0.1:5000/app"),
        ("docker://app", "without the scheme: app"),
        ("https://", "It is a URL"),
        ("https://hub.docker.com/_/redis", "such as redis"),
        ("hub.docker.com/r/user/app", "such as user/app"),
        ("https://hub.docker.com/r/user/app/tags?page=1", "such as user/app."),
        ("https://hub.docker.com/", "catalogue page"),
    ],
)
def test_what_is_refused_says_why(text: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(hint)) as refused:
        ImageRef.parse(text)
    (problem,) = refused.value.fields
    assert problem.field == "image"
    assert hint in problem.problem
    assert len(refused.value.message) < 400


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("x.y/" + "b" * 251, True),
        ("x.y/" + "b" * 252, False),
        ("b" * 237, True),
        ("b" * 238, False),
        ("docker.io/" + "b" * 237, True),
        ("docker.io/library/" + "b" * 238, False),
    ],
)
@pytest.mark.parametrize("suffix", ["", ":" + "t" * 128, f"@{DIGEST}"])
def test_the_length_counts_the_normalised_name_with_its_registry_as_engine_20_does(
    name: str, accepted: bool, suffix: str
) -> None:
    if accepted:
        assert ImageRef.parse(name + suffix)
    else:
        with pytest.raises(InvalidInputError, match="255"):
            ImageRef.parse(name + suffix)


component = st.from_regex(r"[a-z0-9]{1,4}(?:(?:[._]|__|-{1,3})[a-z0-9]{1,4}){0,2}", fullmatch=True)
host = st.from_regex(
    r"[a-zA-Z0-9]{1,3}(?:\.[a-zA-Z0-9]{1,3}){1,2}(?::[1-9][0-9]{0,3})?|localhost(?::5000)?", fullmatch=True
)
suffix = st.one_of(
    st.just(""), st.from_regex(r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,9}", fullmatch=True), st.just(f"@{DIGEST}")
)


@given(registry=st.one_of(st.none(), host), path=st.lists(component, min_size=1, max_size=4), end=suffix)
def test_every_reference_of_the_grammar_parses_to_one_that_parses_to_itself(
    registry: str | None, path: list[str], end: str
) -> None:
    if registry is None and len(path) > 1:
        path[0] = path[0].replace(".", "-")  # Else it would be taken for a registry.
    ref = ImageRef.parse("/".join(([registry] if registry else []) + path) + end)
    assert ImageRef.parse(str(ref)) == ref
    assert ImageRef.parse(ref.familiar) == ref
    assert (ref.tag is None) != (ref.digest is None)
    assert registry is None or ref.registry == registry.replace("index.docker.io", "docker.io")


@given(st.text(max_size=40))
def test_any_text_is_either_a_reference_or_refused_with_its_field(text: str) -> None:
    refused: tuple[FieldProblem, ...] = ()
    try:
        ref = ImageRef.parse(text)
        assert ImageRef.parse(str(ref)) == ref
    except InvalidInputError as error:
        refused = error.fields
    assert [problem.field for problem in refused] in ([], ["image"])


def test_surrogates_and_great_lengths_are_refused_quickly() -> None:
    for text in ("a\ud800", "a" * 1_000_000, "a/" * 100_000, "a-" * 100_000, "docker pull " * 50_000, "a." * 100_000):
        with pytest.raises(InvalidInputError):
            ImageRef.parse(text)
