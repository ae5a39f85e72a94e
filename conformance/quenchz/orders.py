"""The bad days of the suite's issuer: what one tenant can be ordered to publish, and how it then misbehaves.

An order is a JSON object. `generations` lists the keys that the tenant's key set holds, and `fault` says how the key
set is answered, a name of `FAULTS` or "" for none; what an order leaves out stays as it was. A tenant that was never
ordered shares the issuer's own key set; its first order gives it one of its own. An empty order changes nothing.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quenchz_spec.shapes import items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GENERATIONS = 32
"""How many keys the issuer can turn to, the first one included."""
HOLD_SECONDS = 60.0
"""How long a fault that keeps a connection open keeps it."""
_MOST_BYTES = 64 * 1024 * 1024
_MOST_TENANTS = 10_000  # an order of anybody on this machine makes one; the oldest is forgotten


class OrderError(ValueError):
    """What was given is no order; the text names the member, its value and the fix."""


@dataclass(frozen=True)
class Fault:
    """One way to answer: `at_once`, then `drip` after every `pause` seconds while the fault lasts; None ends it."""

    at_once: bytes
    drip: bytes | None = None
    pause: float = 0.1


def _answer(status: str, media_type: str, body: bytes = b"", *, whole: bool = True) -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if whole else ""
    return f"HTTP/1.0 {status}\r\nContent-Type: {media_type}\r\n{length}Connection: close\r\n\r\n".encode() + body


_UNUSABLE = b'{"kty":"oct"},' * 5000
FAULTS = {
    "status 500": Fault(_answer("500 Internal Server Error", "application/json", b'{"error":"server_error"}')),
    "html": Fault(_answer("200 OK", "text/html", b"<!doctype html><title>We will be back soon</title>")),
    "empty": Fault(_answer("200 OK", "application/json")),
    "no keys": Fault(_answer("200 OK", "application/json", b'{"keys":[]}')),
    "closed": Fault(b""),
    "silent": Fault(b"", b""),
    "slow": Fault(_answer("200 OK", "application/json", whole=False), b" "),
    "oversized": Fault(_answer("200 OK", "application/json", b'{"keys":[', whole=False), _UNUSABLE, 0.005),
}
"""How a key set can be answered instead of with its keys.

None of them holds a key of the tenant. "slow" sends blanks one by one, "oversized" about 14 MB in every second, up to
64 MB; both and "silent" go on until the fault is lifted, and for 60 s at most.
"""


@dataclass
class Tenant:
    """A tenant with a key set of its own: what it publishes, and how often it was asked for it."""

    generations: tuple[int, ...] = (0,)
    fault: str = ""
    fetches: int = 0
    lifted: threading.Event = field(default_factory=threading.Event)

    def misbehave(self, write: Callable[[bytes], object]) -> None:
        """Answer as the fault has it; returns when the connection is to be closed."""
        fault, lifted = FAULTS[self.fault], self.lifted
        write(fault.at_once)
        drip, written, held = fault.drip, 0, 0.0
        while drip is not None and held < HOLD_SECONDS and not lifted.wait(fault.pause):
            held += fault.pause
            if drip and written < _MOST_BYTES:
                write(drip)
                written += len(drip)


class Orders:
    """The tenants that were ordered something. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenants: dict[str, Tenant] = {}

    def give(self, name: str, order: Mapping[str, Any]) -> int:
        """Carry out an order about a tenant, and return how often the key set of its own was fetched.

        Raises:
            OrderError: it is no order.
        """
        if unknown := sorted(set(order) - {"generations", "fault"}):
            raise OrderError(f"{unknown[0]!r} is no member of an order; it has generations and fault")
        generations, fault = order.get("generations", []), order.get("fault", "")
        if not isinstance(generations, list) or not all(_is_generation(number) for number in items(generations)):
            raise OrderError(f"generations is {generations!r}; expected a list of integers from 0 to {GENERATIONS - 1}")
        if not isinstance(fault, str) or fault not in ("", *FAULTS):
            raise OrderError(f'fault is {fault!r}; expected "" or one of {", ".join(FAULTS)}')
        if name == "" and order:
            raise OrderError("the issuer's own key set is shared and takes no orders; expected the name of a tenant")
        with self._lock:
            tenant = self._tenants.get(name)
            if tenant is None and order:
                if len(self._tenants) >= _MOST_TENANTS:
                    self._tenants.pop(next(iter(self._tenants))).lifted.set()
                tenant = self._tenants[name] = Tenant()
            if tenant is not None and "generations" in order:
                tenant.generations = tuple(items(generations))
            if tenant is not None and "fault" in order:
                tenant.lifted.set()
                tenant.fault, tenant.lifted = fault, threading.Event()
            return 0 if tenant is None else tenant.fetches

    def tenant(self, name: str) -> Tenant | None:
        """Return a tenant that has a key set of its own, or None."""
        return self._tenants.get(name)

    def fetched(self, name: str) -> Tenant | None:
        """Count a fetch of a tenant's key set and return the tenant as it is now, or None."""
        with self._lock:
            tenant = self._tenants.get(name)
            if tenant is None:
                return None
            tenant.fetches += 1
            return dataclasses.replace(tenant)

    def end(self) -> None:
        """Lift every fault, so that no connection is kept open."""
        with self._lock:
            for tenant in self._tenants.values():
                tenant.lifted.set()


def _is_generation(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < GENERATIONS
