"""An image on the engine: its id is not the digest of its manifest on one store, and is on the other."""

from towline.engine.local_images import LocalImage

_ID, _DIGEST, _OTHER = (f"sha256:{digit * 64}" for digit in "123")


def test_an_id_and_a_digest_are_told_apart() -> None:
    image = LocalImage(image_id=_ID, digests=(_DIGEST,), platform="linux/amd64")
    assert image.digest_for(_DIGEST) == _DIGEST
    assert image.digest_for(None) == _DIGEST
    assert image.digest_for(_OTHER) == _DIGEST


def test_where_the_id_is_a_manifests_digest_it_may_be_asked_for() -> None:
    image = LocalImage(image_id=_ID, digests=(), platform="linux/amd64")
    assert image.digest_for(_ID) == _ID
    assert image.digest_for(None) is None
