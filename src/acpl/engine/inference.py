"""A network's word on many images, without augmentation."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from acpl.algorithms.contract import StoredViews, Views
from acpl.data.augment import normalise
from acpl.data.store import ImageStore
from acpl.data.workers import Progress, nothing
from acpl.engine.device import Device
from acpl.engine.feature_shards import is_too_large, stored
from acpl.engine.feed import feed_for
from acpl.engine.memory import give_back_memory
from acpl.engine.recording import Recording, Repeated
from acpl.engine.trouble import is_out_of_memory
from acpl.models import Looks, Network, Outputs, look_at
from acpl.task import Task

BATCH = 256


def share_of(count: int, number: int, parts: int) -> slice:
    """Rows of ``count`` that are for process ``number`` of ``parts`` to look at: whole batches, in order."""
    batches = -(-count // BATCH)
    first, last = batches * number // parts, batches * (number + 1) // parts
    return slice(min(count, first * BATCH), min(count, last * BATCH))


class Inference:
    """Features and probabilities of samples by id, float32, on the device; the network is put back as it was.

    Both are means over the ways to look at an image, where ``looks`` has several. ``beside`` gets probabilities and
    ids, and gives back the probabilities with what is known beside the images.

    With a ``recording`` every batch is filled up to one size, so that it is recorded once and replayed for as long as
    the network's tensors stay where they are. Where a batch does not fit beside what training holds, smaller ones are
    taken from then on, and not recorded.
    """

    def __init__(
        self,
        network: Network,
        store: ImageStore,
        *,
        task: Task,
        mean: Tensor,
        std: Tensor,
        device: Device,
        looks: Looks = "one",
        recording: Recording | None = None,
        beside: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.network = network
        self._store, self._task, self._device = store, task, device
        self._mean, self._std, self._looks = mean, std, looks
        self._beside = beside
        self._feed = feed_for(store, device)
        self._fills_up = recording is not None
        self._work = Repeated(self._look, recording)
        self._seen: Views | None = None
        self._batch = BATCH

    @torch.no_grad()
    def __call__(self, ids: Tensor, progress: Progress = nothing) -> Views:
        """In the order of ``ids``."""
        found = list(self._views(ids, progress))
        if not found:
            none = next(self.network.parameters())
            return Views(none.new_empty(0, self.network.features), none.new_empty(0, self.network.outputs))
        return Views(*(torch.cat(parts)[: len(ids)] for parts in zip(*found, strict=True)))

    @torch.no_grad()
    def share(self, ids: Tensor, beside: Path, progress: Progress = nothing) -> Views | StoredViews:
        """The same, in files beside a run's where it would take too much of the memory."""
        if is_too_large(len(ids), self.network.features, self._device.torch):
            return stored(self._views(ids, progress), len(ids), beside)
        return self(ids, progress)

    def _views(self, ids: Tensor, progress: Progress) -> Iterator[Views]:
        """Batch by batch; the last one may be filled up."""
        self._store.require(ids)
        if many := self._device.torch.type == "cpu" and len(ids) >= BATCH:
            give_back_memory()  # training's blocks and these would not fit into each other's gaps
        training = self.network.training
        self.network.eval()
        seen = 0
        while seen < len(ids):
            fits = True
            try:
                for views in self._batches(ids[seen:]):
                    yield views
                    seen = min(seen + self._batch, len(ids))
                    progress("looking at images", seen, len(ids))
            except Exception as error:
                if not is_out_of_memory(error) or self._batch == 1:
                    raise
                fits = False
            if not fits:  # not above, where the error still holds what did not fit
                self._take_smaller_batches()
        self.network.train(training)
        if many:
            give_back_memory()

    def _batches(self, ids: Tensor) -> Iterator[Views]:
        missing = -len(ids) % self._batch if self._fills_up else 0
        padded = torch.cat([ids, ids[-1:].expand(missing)])
        whole = len(padded) // self._batch * self._batch
        for orders in (padded[:whole].view(-1, self._batch), padded[whole:].view(1, -1)):
            if orders.numel() == 0:
                continue
            self._feed.begin({"all": orders})
            for number in range(len(orders)):
                self._feed.load(number)
                self._work()
                assert self._seen is not None
                features, said = (values.clone() for values in self._seen)
                yield Views(features, said if self._beside is None else self._beside(said, orders[number]))

    def _take_smaller_batches(self) -> None:
        self._batch //= 2
        self._work, self._fills_up, self._seen = Repeated(self._look, None), False, None
        if self._device.torch.type == "cuda":
            torch.cuda.empty_cache()

    def _look(self) -> None:
        images = normalise(self._feed.images("all"), self._mean, self._std)
        self._seen = Views(*look_at(images, self._say, looks=self._looks, task=self._task))

    def _say(self, images: Tensor) -> Outputs:
        with self._device.autocast():
            return self.network(images.contiguous(memory_format=torch.channels_last))
