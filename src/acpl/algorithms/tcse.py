"""TCSE: transformation-consistent self-ensembling; Li et al., BMVC 2018 (TCSM, IEEE TNNLS 2020).

What the averaged copy says of an image is what the network must say of it turned by quarters, mirrored and with
noise. The source is about segmentation, where outputs turn with the image; a class does not, so the term is
invariance. How the published classification figures were made is not documented. Published: weight 1, noise 0.5,
ramp over 600 of 800 epochs. Here the weight is 10 as for ``mean-teacher``. In the released trainer both branches
are computed without gradients, so that its term does nothing; here it does.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from acpl.algorithms.contract import Batch
from acpl.algorithms.mean_teacher import MeanTeacherSettings
from acpl.algorithms.single_stage import SingleStage
from acpl.models import classification_loss
from acpl.settings import Section


class TCSESettings(MeanTeacherSettings):
    """Settings of ``tcse``."""

    noise: float = Field(default=0.5, ge=0)
    """Standard deviation of what is added to the turned image, in units of the images' own."""


class TCSE(SingleStage):
    """Consistency under turns, mirrors and noise."""

    name: ClassVar[str] = "tcse"
    summary: ClassVar[str] = "consistency under quarter turns, mirrors and noise (Li et al., BMVC 2018)"
    Settings: ClassVar[type[Section]] = TCSESettings
    recordable: ClassVar[bool] = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the labelled as they are, consistency of all when turned."""
        images = torch.cat([part.images for part in batch.values()])
        labelled = batch["labelled"]
        turned = quarter_turns(images, torch.randint(8, (len(images),), device=images.device))
        turned = turned + self.settings.noise * torch.randn_like(turned)
        logits = self.student(torch.cat([labelled.images, turned])).logits
        own, moved = logits[: len(labelled.ids)], logits[len(labelled.ids) :]
        weight = self.settings.weight * self.ramp_up(self.settings.ramp)
        apart = self.sure(moved) - self.taught(images, batch)
        return {
            "labelled": classification_loss(own, labelled.targets, self.context.task),
            "consistency": weight * apart.square().mean(),
        }


def quarter_turns(images: Tensor, how: Tensor) -> Tensor:
    """Each square image (n, c, s, s) turned by ``how % 4`` quarters, and mirrored where ``how`` (n,) is 4 or more."""
    side = images.shape[-1]
    places = torch.arange(side * side, device=images.device).view(side, side)
    turns = [torch.rot90(places, quarters) for quarters in range(4)]
    ways = torch.stack([*turns, *(turn.flip(1) for turn in turns)]).flatten(1)
    moved = images.flatten(2).gather(2, ways[how][:, None].expand(-1, images.shape[1], -1))
    return moved.view_as(images).contiguous(memory_format=torch.channels_last)
