"""Orphans on a real engine: found for what they are, and removed only where their session is over."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.contract.container_subjects import AGENT_ID, Images, RealSubject, push_images, real_subject
from tests.rig.engines import Engine
from tests.rig.registry import RegistryProcess
from towline.domain.ids import LABEL_FLEET, container_labels, container_name
from towline.domain.sessions import SessionSpec
from towline.engine.orphans import Neglect, Orphan, list_orphans, remove_orphans


@pytest.fixture
async def subject(classic_engine: Engine, registry: RegistryProcess) -> AsyncIterator[RealSubject]:
    images: Images = push_images(registry)
    async with real_subject(classic_engine, images, watching=False) as ready:
        yield ready


def _create_only(subject: RealSubject, spec: SessionSpec) -> None:
    labels = container_labels(
        fleet_id=subject.containers.labels[LABEL_FLEET],
        agent_id=AGENT_ID,
        session_id=spec.session_id,
        kernel=0,
        owner=spec.owner,
    )
    subject.client.create_container(subject.image, ["true"], name=container_name(spec.session_id, 0), labels=labels)


def _reasons(orphans: list[Orphan]) -> dict[str, Neglect]:
    return {orphan.container.session_id: orphan.why for orphan in orphans}


async def test_orphans_are_listed_with_the_reason_and_removed_only_after_their_session(subject: RealSubject) -> None:
    over, alive, unstarted = subject.spec("sleep", "60"), subject.spec("sleep", "60"), subject.spec()
    await subject.start(over)
    await subject.start(alive)
    _create_only(subject, unstarted)
    subject.host.put_foreign("a-stranger")
    asked: list[str] = []

    async def is_over(session_id: str) -> bool:
        asked.append(session_id)
        return session_id == over.session_id

    now = datetime.now(UTC)
    assert _reasons(await list_orphans(subject.containers, is_over, now=now)) == {over.session_id: Neglect.SESSION_OVER}
    later = now + timedelta(minutes=11)
    both = {over.session_id: Neglect.SESSION_OVER, unstarted.session_id: Neglect.NEVER_STARTED}
    assert _reasons(await list_orphans(subject.containers, is_over, now=later)) == both
    removed = await remove_orphans(subject.containers, is_over, now=later)
    assert _reasons(removed) == {over.session_id: Neglect.SESSION_OVER}
    left = {container_name(spec.session_id, 0) for spec in (alive, unstarted)}
    assert subject.host.names() == left | {"a-stranger"}
    assert set(asked) == {over.session_id, alive.session_id, unstarted.session_id}
