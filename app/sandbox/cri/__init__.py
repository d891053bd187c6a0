"""A simulated container runtime: what the node agent asks of a real one, answered from memory.

``runtime`` is the runtime itself, for agents in the same process; ``server`` puts it behind a socket, by gRPC, for
those that are not.
"""

from app.sandbox.cri.runtime import Registry, SimulatedContainer, SimulatedRuntime

__all__ = ["Registry", "SimulatedContainer", "SimulatedRuntime"]
