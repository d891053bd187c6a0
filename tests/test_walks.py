"""The walks of docs/architecture.md name exactly the modules that run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final

from app.daemon.agent import Agent, Features
from tests.features.admitting import pod, sidecarset
from tests.features.cloneset.world import SmallCluster, rolling, template
from tests.features.cloneset.world import in_cluster as with_clonesets
from tests.features.imagepull.world import World as ImageWorld
from tests.features.imagepull.world import in_world as with_image_jobs
from tests.features.sidecarset.rolling_world import World as SidecarWorld
from tests.features.sidecarset.rolling_world import in_world as with_sidecarsets
from tests.features.sidecarset.rolling_world import sidecar
from tests.fuzz.service import Service, standalone_service
from tests.kit.runtime import SimulatedRuntime
from tests.kube.fakes import running, virtual

APP: Final = Path(__file__).parents[1] / "app"
PAGE: Final = (APP.parent / "docs" / "architecture.md").read_text()
#: The toolkit, and what connects features to it.
ELSEWHERE: Final = ("kube/", "framework/", "manager/")
#: The simulated cluster and the test; and where calls of the program start: in the event loop, or in a request.
OTHERS: Final = (f"{APP}/sandbox/", f"{APP.parent}/tests/")
BEGINNINGS: Final = ("asyncio/events.py", "tests/kit/virtualtime.py", "tests/kit/asgi.py")


def is_by_others(frame: FrameType | None) -> bool:
    """Return whether the simulated cluster or the test makes this call."""
    while frame is not None and not frame.f_code.co_filename.endswith(BEGINNINGS):
        if frame.f_code.co_filename.startswith(OTHERS):
            return True
        frame = frame.f_back
    return False


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Record the modules below app/ whose functions the program calls, without ELSEWHERE."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file not in files and file.startswith(f"{APP}/") and not is_by_others(frame):
            files.add(file)

    found: set[str] = set()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        modules = (file[len(f"{APP}/") : -len(".py")] for file in files)
        found.update(module for module in modules if not module.startswith(ELSEWHERE))


def agree(title: str, modules: set[str]) -> None:
    """Check that the section names exactly these modules, by path suffix; the introduction names api/model."""
    section = PAGE.split(f"### {title}\n")[1].split("\n#")[0]
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", section))
    found = {
        module: {name for name in named if f"/{module}".endswith(f"/{name}")} for module in modules - {"api/model"}
    }
    assert [module for module, names in found.items() if not names] == []
    assert named - set().union(*found.values()) == set()


@virtual
async def test_the_creation_of_a_pod_passes_the_modules_that_the_page_names() -> None:
    sets = [sidecarset("logs", {"name": "log"}), sidecarset("proxy", {"name": "proxy"})]
    service = Service(await standalone_service(*({**one, "status": None} for one in sets)))
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "object": pod(),
        },
    }
    with recorded() as modules:
        response = await service.respond("/mutate-pod", review)
    assert "patch" in response, response
    agree("A Pod is created", modules)


@with_clonesets
async def test_a_new_image_of_a_cloneset_passes_the_modules_that_the_page_names(there: SmallCluster) -> None:
    await there.apply(updateStrategy=rolling())
    await there.settled(replicas=3, readyReplicas=3)
    await there.clock.sleep(10)
    with recorded() as modules:
        await there.patch({"spec": {"template": template(image="nginx:2")}})
        await there.settled(updatedReplicas=1)
    agree("A CloneSet gets a new image", modules)


@with_image_jobs(agents=False)
async def test_an_image_pull_job_passes_the_modules_that_the_page_names(there: ImageWorld) -> None:
    agent = Agent(
        "a", there.client, [SimulatedRuntime(there.clock)], Random(1), features=Features(probes=False, pods=False)
    )
    async with running(agent.run()):
        await there.nodes("a")
        await there.settled(5)
        with recorded() as modules:
            await there.job()
            await there.counts(succeeded=1)
    agree("An ImagePullJob runs", modules)


@with_sidecarsets
async def test_a_sidecarset_rollout_passes_the_modules_that_the_page_names(there: SidecarWorld) -> None:
    await there.apply()
    await there.pods_of("a", "b")
    await there.settles(2, 2, 2, 2)
    await there.clock.sleep(10)
    with recorded() as modules:
        await there.apply(containers=[sidecar(image="shipper:2")])
        await there.settles(2, 2, 2, 2)
    agree("A SidecarSet rolls out", modules)
