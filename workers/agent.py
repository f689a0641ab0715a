"""The agent's workers: long pulls on one queue, short work on the other, so that neither waits for the other's slots."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.worker import Worker

from activities.containers import ContainerActivities, Containers
from activities.images import ImageActivities, Images
from activities.presence import PresenceActivities
from towline.domain.agents import AgentFacts
from towline.domain.queues import container_queue, pull_queue
from workers.links import Links

_HEARTBEAT_THROTTLE: Final = timedelta(milliseconds=50)
"""The SDK would hold heartbeats back for most of their time-out; the activities pace themselves, and are to be seen."""

_WAITERS: Final = 2000
"""Every waiter of a pull is an activity; the limit on transfers is the engine's, not this one."""

_SHORT: Final = 200
_GRACE: Final = timedelta(seconds=5)


def agent_workers(
    client: Client,
    *,
    agent_id: str,
    images: Images,
    containers: Containers,
    boot_id: str,
    facts: Callable[[], Awaitable[AgentFacts]],
    links: Links,
    on_superseded: Callable[[], None] = lambda: None,
) -> tuple[Worker, Worker]:
    """The two workers of one agent, or of one life of it."""
    of_images = ImageActivities(agent_id=agent_id, images=images, signals=links)
    of_containers = ContainerActivities(containers=containers, exits=links)
    presence = PresenceActivities(boot_id=boot_id, facts=facts, signals=links, on_superseded=on_superseded)
    pulls = Worker(
        client,
        task_queue=pull_queue(agent_id),
        activities=[of_images.check_and_pull],
        max_concurrent_activities=_WAITERS,
        max_heartbeat_throttle_interval=_HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=_HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=_GRACE,
    )
    short = Worker(
        client,
        task_queue=container_queue(agent_id),
        activities=[
            of_images.check_image,
            of_containers.start_container,
            of_containers.end_container,
            of_containers.read_logs,
            presence.attend,
        ],
        max_concurrent_activities=_SHORT,
        max_heartbeat_throttle_interval=_HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=_HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=_GRACE,
    )
    return pulls, short
