"""A session of several kernels on the real stack: they talk over their own network, and nothing of it is left."""

import docker
import pytest

from tests.acceptance.stack import RunningStack
from tests.rig.images import PushedImage
from towline.domain.ids import network_name

pytestmark = pytest.mark.usefixtures("no_leftovers")
WORKER = 'echo "$TOWLINE_KERNEL_INDEX of $TOWLINE_KERNELS in $TOWLINE_PEERS" | nc -l -p 7000; sleep 600'
MAIN = "for peer in worker-1 worker-2; do until nc -w 2 $peer 7000 < /dev/null 2> /dev/null | grep .; do usleep 50000; done; done"
SCRIPT = f"case $TOWLINE_KERNEL_ROLE in main) {MAIN};; *) {WORKER};; esac"


def _networks(docker_client: docker.DockerClient) -> set[str]:
    return {network["Name"] for network in docker_client.api.networks()}


def test_they_talk_and_the_first_ones_end_is_the_sessions(
    stack: RunningStack, small: PushedImage, docker_client: docker.DockerClient
) -> None:
    before = _networks(docker_client)
    arguments = ("--kernels=3", "--cpus=0.05", "--memory=16m", small.reference, "--", "sh", "-c", SCRIPT)
    done = stack.cli("run", *arguments)
    assert (done.returncode, done.stdout) == (
        0,
        "1 of 3 in main,worker-1,worker-2\n2 of 3 in main,worker-1,worker-2\n",
    ), done.stderr
    [view] = stack.api.get("/v1/sessions?limit=1").json()["sessions"]
    assert [kernel["reason"] for kernel in view["kernels"]] == ["exited", "peer-ended", "peer-ended"]
    assert _networks(docker_client) == before


def test_a_cancel_of_one_that_runs_leaves_no_network(
    stack: RunningStack, small: PushedImage, docker_client: docker.DockerClient
) -> None:
    before = _networks(docker_client)
    session = stack.create(small.reference, "sleep", "600", kernels=2, network="bridge")
    stack.reaches(session, "RUNNING")
    assert _networks(docker_client) - before == {network_name(session["id"])}
    stack.cancel(session)
    stack.ended(session)
    assert _networks(docker_client) == before
