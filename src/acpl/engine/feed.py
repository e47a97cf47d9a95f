"""How a step's images reach the device: from a store that lies there, or from the host, ahead of time."""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

from acpl.data.store import ImageStore
from acpl.engine.device import Device

AHEAD = 4  # steps that are read ahead


class Feed(Protocol):
    """The ids and images of the step that is about to run, each draw's in the same memory every time."""

    def begin(self, orders: Mapping[str, Tensor], first: int = 0) -> None:
        """An epoch's ids for each draw, (steps, batch size); start with step ``first``."""
        ...

    def load(self, step: int) -> None:
        """Make this step's ids and images the current ones; steps come in order."""
        ...

    def ids(self, name: str) -> Tensor:
        """(batch size,) on the device."""
        ...

    def images(self, name: str) -> Tensor:
        """uint8 (batch size, channels, height, width) on the device."""
        ...


def near(store: ImageStore, device: Device, share: float) -> ImageStore:
    """The store on the device where it fits into this share of the free memory; else where it is."""
    if device.torch.type != "cuda":
        return store
    free, _ = torch.cuda.mem_get_info(device.torch)
    return store.on(device.torch) if store.nbytes <= share * free else store


def feed_for(store: ImageStore, device: Device) -> Feed:
    """The feed for a store that lies on ``device`` or elsewhere."""
    return NearFeed(store) if store.images.device.type == device.torch.type else FarFeed(store, device.torch)


class NearFeed:
    """The store lies on the device: a step's images are gathered there."""

    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self._orders: dict[str, Tensor] = {}
        self._ids: dict[str, Tensor] = {}

    def begin(self, orders: Mapping[str, Tensor], first: int = 0) -> None:
        """All ids go over at once."""
        self._orders = {name: order.to(self._store.images.device) for name, order in orders.items()}

    def load(self, step: int) -> None:
        """The ids move; the images are gathered when they are asked for."""
        for name, order in self._orders.items():
            _put(self._ids, name, order[step])

    def ids(self, name: str) -> Tensor:
        """(batch size,)"""
        return self._ids[name]

    def images(self, name: str) -> Tensor:
        """Gathered now: part of the step."""
        return self._store.gather(self._ids[name])


class _Slot:
    """The images of one step on their way: gathered on the host, copied over on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self.host: dict[str, Tensor] = {}
        self.there: dict[str, Tensor] = {}
        self._stream = torch.cuda.Stream(device) if self._on_gpu else None  # type: ignore[no-untyped-call]
        self._arrived = torch.cuda.Event() if self._on_gpu else None  # type: ignore[no-untyped-call]
        self._taken = torch.cuda.Event() if self._on_gpu else None  # type: ignore[no-untyped-call]

    def fill(self, store: ImageStore, orders: Mapping[str, Tensor], step: int) -> None:
        """Read a step's images and send them."""
        for name, order in orders.items():
            if name not in self.host or len(self.host[name]) != order.shape[1]:
                shape = (order.shape[1], store.channels, *store.images.shape[2:])
                self._make(name, shape)
        if self._arrived is not None:
            self._arrived.synchronize()  # the last copy out of this host memory is over
        for name, order in orders.items():
            store.gather_into(self.host[name], order[step])
        if self._stream is None or self._arrived is None or self._taken is None:
            self._send(orders)
            return
        self._taken.synchronize()  # the last step has taken what was there
        with torch.cuda.stream(self._stream):
            self._send(orders)
            self._arrived.record(self._stream)

    def take(self, images: dict[str, Tensor], names: Mapping[str, Tensor]) -> None:
        """Put this step's images where the step reads them."""
        if self._arrived is not None:
            torch.cuda.current_stream().wait_event(self._arrived)
        for name in names:
            _put(images, name, self.there[name])
        if self._taken is not None:
            self._taken.record()

    def _make(self, name: str, shape: tuple[int, ...]) -> None:
        if self._taken is not None:
            self._taken.synchronize()
        self.host[name] = torch.empty(shape, dtype=torch.uint8, pin_memory=self._on_gpu)
        # Of the stream that writes it: memory of another one may still be in use by what was queued there.
        with torch.cuda.stream(self._stream):
            self.there[name] = torch.empty(shape, dtype=torch.uint8, device=self._device)

    def _send(self, orders: Mapping[str, Tensor]) -> None:
        for name in orders:
            self.there[name].copy_(self.host[name], non_blocking=True)


class FarFeed:
    """The store lies on the host (in memory or on disk): threads read ahead and copies overlap with the steps."""

    def __init__(self, store: ImageStore, device: torch.device) -> None:
        self._store = store
        self._device = device
        self._orders: Mapping[str, Tensor] = {}
        self._device_orders: dict[str, Tensor] = {}
        self._ids: dict[str, Tensor] = {}
        self._images: dict[str, Tensor] = {}
        self._slots = [_Slot(device) for _ in range(AHEAD)]
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="acpl-feed")
        self._coming: deque[tuple[int, Future[None]]] = deque()

    def begin(self, orders: Mapping[str, Tensor], first: int = 0) -> None:
        """Start reading."""
        while self._coming:
            self._coming.popleft()[1].result()
        self._orders = orders
        self._device_orders = {name: order.to(self._device) for name, order in orders.items()}
        steps = len(next(iter(orders.values())))
        for step in range(first, min(first + AHEAD, steps)):
            self._send(step)

    def load(self, step: int) -> None:
        """Wait for this step's images, and have another's read."""
        number, coming = self._coming.popleft()
        if number != step:
            raise ValueError(f"step {step} was asked for, but {number} is next")
        coming.result()
        self._slots[step % AHEAD].take(self._images, self._orders)
        for name, order in self._device_orders.items():
            _put(self._ids, name, order[step])
        if step + AHEAD < len(next(iter(self._orders.values()))):
            self._send(step + AHEAD)

    def ids(self, name: str) -> Tensor:
        """(batch size,)"""
        return self._ids[name]

    def images(self, name: str) -> Tensor:
        """Already there."""
        return self._images[name]

    def _send(self, step: int) -> None:
        slot = self._slots[step % AHEAD]
        self._coming.append((step, self._pool.submit(slot.fill, self._store, self._orders, step)))


def _put(places: dict[str, Tensor], name: str, values: Tensor) -> None:
    """Copy into the same memory as the last time, so that recorded work finds it."""
    if name in places and places[name].shape == values.shape:
        places[name].copy_(values)
    else:
        places[name] = values.clone()
