"""A container's way to its image: pull, fail, wait, try again. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from app.kube.images import parse_image
from app.sandbox.kubelet.runs import Context, Moved, Run, Stage, back_off
from app.sandbox.kubelet.status import full_name, waiting
from app.sandbox.objects import Container, ContainerStatus

#: How long a failed pull shows its error before the back-off does.
ERROR_SHOWN_SECONDS: Final = 1.0


def pull(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Begin to pull, or find the image on the node."""
    image = container.image
    if parse_image(image) is None:
        message = (
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid reference'
        )
        ctx.record_event(container, "InspectFailed", f"{message} format", warning=True)
        run = Run(Stage.BAD_IMAGE, image=image, crashes=run.crashes)
        return run, waiting(container, status, "InvalidImageName", f"{message} format")
    failures = run.pull_failures if run.image == image else 0
    if container.image_pull_policy != "Always" and ctx.has_image(full_name(image)):
        ctx.record_event(container, "Pulled", f'Container image "{image}" already present on machine')
        run = msgspec.structs.replace(run, stage=Stage.CONFIGURING, image=image, pull_failures=0)
    elif container.image_pull_policy == "Never":
        message = f'Container image "{image}" is not present with pull policy of Never'
        ctx.record_event(container, "ErrImageNeverPull", message, warning=True)
        run = Run(Stage.BAD_IMAGE, image=image, crashes=run.crashes)
        return run, waiting(container, status, "ErrImageNeverPull", message)
    else:
        ctx.record_event(container, "Pulling", f'Pulling image "{image}"')
        run = msgspec.structs.replace(
            run, stage=Stage.PULLING, image=image, pull_failures=failures, until=ctx.now + _pull_seconds(ctx, container)
        )
    return run, waiting(container, status, "ContainerCreating")


def _pull_seconds(ctx: Context, container: Container) -> float:
    seconds = ctx.behave(container).script.pull_seconds
    return ctx.pace.pull if seconds is None else seconds


def pulling(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Have it, or show why not."""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    error = ctx.behave(container).pull_error
    if not error:
        seconds = f"{_pull_seconds(ctx, container):g}s"
        ctx.pulled.append(full_name(run.image))
        text = (
            f'Successfully pulled image "{run.image}" in {seconds} ({seconds} including waiting). Image size: 0 bytes'
        )
        ctx.record_event(container, "Pulled", text)
        return msgspec.structs.replace(run, stage=Stage.CONFIGURING, pull_failures=0), status
    message = f'failed to pull and unpack image "{full_name(run.image)}": {error}'
    ctx.record_event(container, "Failed", f'Failed to pull image "{run.image}": {message}', warning=True)
    ctx.record_event(container, "Failed", "Error: ErrImagePull", warning=True)
    run = msgspec.structs.replace(
        run, stage=Stage.PULL_FAILED, pull_failures=run.pull_failures + 1, until=ctx.now + ERROR_SHOWN_SECONDS
    )
    return run, waiting(container, status, "ErrImagePull", message)


def pull_failed(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Begin to wait, once the error was shown for a while."""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    error = status.state.waiting.message if status.state.waiting is not None else ""
    message = f'Back-off pulling image "{run.image}"'
    ctx.record_event(container, "BackOff", message)
    ctx.record_event(container, "Failed", "Error: ImagePullBackOff", warning=True)
    until = run.until - ERROR_SHOWN_SECONDS + back_off(run.pull_failures)
    run = msgspec.structs.replace(run, stage=Stage.PULL_BACK_OFF, until=until)
    return run, waiting(container, status, "ImagePullBackOff", f"{message}: ErrImagePull: {error}")


def pull_back_off(ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Try again when the time has come, or the image is another."""
    if run.image != container.image:
        return Run(crashes=run.crashes), status
    if ctx.now < run.until:
        ctx.wait_until(run.until)
        return None
    return msgspec.structs.replace(run, stage=Stage.NEW), status


def bad_image(_ctx: Context, container: Container, run: Run, status: ContainerStatus) -> Moved:
    """Wait for another image."""
    return (Run(crashes=run.crashes), status) if run.image != container.image else None
