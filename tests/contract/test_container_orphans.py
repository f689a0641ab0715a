"""Orphans on a real engine: only what its session does not want is removed, and only what is ours is asked about."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.container_subjects import AGENT_ID, Images, RealSubject, push_images, real_subject
from tests.rig.registry import RegistryProcess
from towline.domain.ids import LABEL_FLEET, container_labels, container_name, new_id, new_session_id
from towline.engine.orphans import remove_orphans


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def subject(request: pytest.FixtureRequest, registry: RegistryProcess) -> AsyncIterator[RealSubject]:
    images: Images = push_images(registry)
    async with real_subject(request.getfixturevalue(request.param), images, watching=False) as ready:
        yield ready


def _create_for(subject: RealSubject, *, fleet_id: str, agent_id: str) -> str:
    session_id = new_session_id()
    labels = container_labels(fleet_id=fleet_id, agent_id=agent_id, session_id=session_id, kernel=0, owner="ann")
    name = container_name(session_id, 0)
    subject.client.create_container(subject.image, ["true"], name=name, labels=labels)
    return name


async def test_only_what_is_ours_and_not_wanted_is_removed(subject: RealSubject) -> None:
    over, alive = subject.spec("sleep", "60"), subject.spec("sleep", "60")
    await subject.start(over)
    await subject.start(alive)
    ours = subject.containers.labels[LABEL_FLEET]
    left = {
        container_name(alive.session_id, 0),
        _create_for(subject, fleet_id=new_id("flt"), agent_id=AGENT_ID),
        _create_for(subject, fleet_id=ours, agent_id="another"),
        "a-stranger",
    }
    subject.host.put_foreign("a-stranger")
    asked: set[str] = set()

    async def is_wanted(session_id: str, kernel: int) -> bool:
        assert kernel == 0
        asked.add(session_id)
        return session_id != over.session_id

    removed = await remove_orphans(subject.containers, is_wanted)
    assert [one.session_id for one in removed] == [over.session_id]
    assert subject.host.names() == left
    assert asked == {over.session_id, alive.session_id}
