"""NoTeacher: Unnikrishnan et al., MICCAI 2020 and Medical Image Analysis 2021.

Two networks, neither the other's average, each with a view of its own, agree with each other and with the label
where there is one. A latent consensus with Gaussian noise σ₁, σ₂ (the networks') and σ_y (the label's) is
integrated out: for an unlabelled sample (f₁ - f₂)² / 2(σ₁² + σ₂²); for a labelled one the three squared
differences, each over the product of its two variances, over twice the sum of the precisions. The squares against
the label become the task's own loss, as the authors do. Not published: the σ, the schedule and which network
predicts; here all σ are 1, both terms are scaled so that the labels' weigh 1 together, and the first network's
averaged copy predicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Averaged, Batch, Context
from acpl.algorithms.single_stage import SingleStage
from acpl.data.augment import View
from acpl.models import Classifier, classification_loss
from acpl.settings import Section


class NoTeacherSettings(BudgetSettings):
    """Settings of ``noteacher``."""

    sigma_first: float = Field(default=1.0, gt=0)
    """Noise of the first network (σ₁)."""
    sigma_second: float = Field(default=1.0, gt=0)
    """Noise of the second network (σ₂)."""
    sigma_label: float = Field(default=1.0, gt=0)
    """Noise of the label (σ_y)."""


@dataclass(frozen=True)
class Twins:
    """Two networks that are trained together; the first one's average predicts."""

    trained: nn.ModuleList
    predictor: Classifier


class NoTeacher(SingleStage):
    """Two networks that agree."""

    name: ClassVar[str] = "noteacher"
    summary: ClassVar[str] = "two networks that agree through a latent consensus (Unnikrishnan et al., MICCAI 2020)"
    Settings: ClassVar[type[Section]] = NoTeacherSettings
    recordable: ClassVar[bool] = True
    labelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")
    unlabelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")

    def __init__(self, settings: NoTeacherSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._second = context.build()
        self._both = nn.ModuleList([self._networks.trained, self._second.trained])

    def networks(self) -> Twins:  # type: ignore[override]
        """Both."""
        return Twins(self._both, self._networks.predictor)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Both networks against the label, and against each other with and without one."""
        first, second, label = (
            1 / sigma**2 for sigma in (self.settings.sigma_first, self.settings.sigma_second, self.settings.sigma_label)
        )
        # Energies over what the label weighs for the network that predicts, so that learning rates mean what they mean
        # elsewhere: the two networks share no weight.
        scale = first * label
        labelled, task = batch["labelled"], self.context.task
        count = len(labelled.ids)
        one = self._networks.trained(torch.cat([part.images for part in batch.values()])).logits
        two = self._second.trained(torch.cat([part.more[0] for part in batch.values()])).logits
        apart = (self.sure(one) - self.sure(two)).square().mean(dim=1)
        terms = {
            "first": first * label / scale * classification_loss(one[:count], labelled.targets, task),
            "second": second * label / scale * classification_loss(two[:count], labelled.targets, task),
            "agreement": first * second / scale * apart[:count].mean(),
        }
        if len(apart) > count:
            precision = 2 * (first + second + label)
            terms["unlabelled"] = precision / scale / (2 * (1 / first + 1 / second)) * apart[count:].mean()
        return terms

    def after_step(self, batch: Batch) -> None:
        """Both averaged copies follow their own network."""
        super().after_step(batch)
        self._second.average.update(self._second.trained, torch.cat([part.more[0] for part in batch.values()]))

    def state_dict(self) -> dict[str, Any]:
        """The second network besides."""
        second: Averaged = self._second
        return {
            **super().state_dict(),
            "second": second.trained.state_dict(),
            "second_average": second.average.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._second.trained.load_state_dict(state["second"])
        self._second.average.load_state_dict(state["second_average"])
