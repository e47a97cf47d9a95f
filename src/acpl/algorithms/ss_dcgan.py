"""SS-DCGAN: a GAN whose discriminator classifies; Diaz-Pinto et al., IEEE TMI 2019.

A generator draws images, and the classifier must tell them from real ones besides classifying those that are
labelled. Neither the exact losses nor the schedule of the paper or of its re-run on ISIC2018 are published; here is
the standard form (Salimans et al., NeurIPS 2016): for multi-class an image is real with the odds Σ exp(logit), the
generated being the class of logit 0; for multi-label, where findings do not exclude each other, a head of its own
says so. The generator is a DCGAN. Here it shares the classifier's optimiser (a DCGAN's own has a rate of 0.0002 and
beta 0.5), and telling real from generated weighs 0.1 (in the standard form 1), so that classification leads. Real and
generated images are each normalised by the statistics of their own batch, as a DCGAN's are; those that the classifier
predicts with are the real images' alone. (Telling them apart with running statistics instead teaches the network
something while it is normalised otherwise than when it classifies: its predictions go astray.)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Batch, Context
from acpl.algorithms.single_stage import SingleStage
from acpl.models import Classifier, Outputs, classification_loss
from acpl.settings import Section
from acpl.task import Task

_NOISE = 64
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class SSDCGANSettings(BudgetSettings):
    """Settings of ``ss-dcgan``."""

    weight: float = Field(default=0.1, gt=0)
    """Of telling real from generated beside classifying."""
    width: int = Field(default=128, ge=16)
    """Channels of the generator's first layer."""


@dataclass(frozen=True)
class Players:
    """Classifier, generator and the head that says what is real; the classifier's average predicts."""

    trained: nn.ModuleDict
    predictor: Classifier


class SSDCGAN(SingleStage):
    """A classifier that also tells real from drawn."""

    name: ClassVar[str] = "ss-dcgan"
    summary: ClassVar[str] = "a GAN whose discriminator classifies (Diaz-Pinto et al., TMI 2019)"
    Settings: ClassVar[type[Section]] = SSDCGANSettings
    recordable: ClassVar[bool] = True
    edition: ClassVar[int] = 2  # the first told real from generated with running statistics

    def __init__(self, settings: SSDCGANSettings, context: Context) -> None:
        super().__init__(settings, context)
        network = self._networks.trained
        first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
        generator = Generator(settings.width, first.in_channels)
        real = nn.Linear(network.head.in_features, 1)
        self._all = nn.ModuleDict({"network": network, "generator": generator, "real": real})
        self._all.to(first.weight.device)

    def networks(self) -> Players:  # type: ignore[override]
        """All three."""
        return Players(self._all, self._networks.predictor)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The classifier's three terms, and the generator's."""
        labelled, network = batch["labelled"], self._networks.trained
        everything = torch.cat([part.images for part in batch.values()])
        out = self.student(everything)
        own = out.logits[: len(labelled.ids)]
        terms = {
            "labelled": classification_loss(own, labelled.targets, self.context.task),
            "real": self.settings.weight * F.softplus(-self._realness(out)).mean(),
        }
        drawn = self._all["generator"](torch.randn(len(labelled.ids), _NOISE, device=everything.device), everything)
        judges = [*network.parameters(), *self._all["real"].parameters()]
        wanted = [judge.requires_grad for judge in judges]
        with _remembering_nothing(network):
            terms["drawn"] = self.settings.weight * F.softplus(self._realness(network(drawn.detach()))).mean()
            for judge in judges:  # the generator's own term is not the judges' to lower
                judge.requires_grad_(False)
            terms["generator"] = F.softplus(-self._realness(network(drawn))).mean()
        for judge, want in zip(judges, wanted, strict=True):
            judge.requires_grad_(want)
        return terms

    def state_dict(self) -> dict[str, Any]:
        """Generator and head besides."""
        return {**super().state_dict(), "all": self._all.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._all.load_state_dict(state["all"])

    def _realness(self, out: Outputs) -> Tensor:
        """(n,): the log odds that an image is real."""
        if self.context.task is Task.MULTI_CLASS:
            return torch.logsumexp(out.logits.float(), dim=1)
        odds: Tensor = self._all["real"](out.features).float()
        return odds[:, 0]


@contextmanager
def _remembering_nothing(network: nn.Module) -> Iterator[None]:
    """Batch norms normalise by the batch, and their running statistics stay as they are: copies follow instead."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    kept = [{name: norm.get_buffer(name) for name in _STATISTICS} for norm in norms]
    for norm, buffers in zip(norms, kept, strict=True):
        norm._buffers.update({name: buffer.clone() for name, buffer in buffers.items()})
    try:
        yield
    finally:
        for norm, buffers in zip(norms, kept, strict=True):
            norm._buffers.update(buffers)


class Generator(nn.Module):
    """Noise to images of about unit variance: four doublings from 4 × 4 pixels, then to the size asked for."""

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        widths = [width, width // 2, width // 4, width // 8, width // 8]
        self.first = nn.Linear(_NOISE, width * 16)
        blocks: list[nn.Module] = []
        for before, after in pairwise(widths):
            blocks += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1)]
        self.blocks = nn.Sequential(*blocks, nn.ReLU(), nn.Conv2d(widths[-1], channels, 3, padding=1))

    def forward(self, noise: Tensor, like: Tensor) -> Tensor:
        """(n, channels, height, width) of the size of ``like``."""
        drawn = self.blocks(self.first(noise).unflatten(1, (-1, 4, 4)))
        sized = F.interpolate(drawn, size=like.shape[2:], mode="bilinear", align_corners=False)
        return 3 * torch.tanh(sized / 3)
