"""ACPL with settings that go beyond the paper.

Nine of them, each with a value that switches it off; with all off it is ``acpl`` to the bit, so that each one's gain
can be measured alone. Several networks that make the pseudo-labels together; K as a share of the anchors; cosines
about the anchors' mean; sharper pseudo-labels; pseudo-labels of earlier stages made anew; rare classes drawn oftener;
a consistency term on the unlabelled pool after FixMatch, whose teacher is the averaged copy; and a labelled term for
classes that are not equally common. The ninth, weights drawn anew at every stage, is ``acpl``'s own ``reinitialise``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from acpl.algorithms.acpl import ACPL, ACPLSettings
from acpl.algorithms.contract import Batch, Context, Draw, Look, Record, Samples, Stage, mean_over
from acpl.algorithms.drawing import repeat_factors, repeated
from acpl.algorithms.fixmatch import align, masked_loss
from acpl.algorithms.mixmatch import sharpen
from acpl.algorithms.surroundings import Centred, mean_row, surroundings
from acpl.algorithms.teachers import Teachers
from acpl.functional.survey import Source
from acpl.models import classification_loss, probabilities
from acpl.models.balanced import class_balanced_loss, logit_adjusted_loss
from acpl.settings import Section
from acpl.task import Task

CONSISTENCY = "consistency"
_MEMORY = 0.99  # of the running mean of the teacher's word
_LEAST = 1e-6


class ACPLPlusSettings(ACPLSettings):
    """Settings of ``acpl-plus``: those of ``acpl``, and what goes beyond the paper."""

    teachers: int = Field(default=0, ge=0)
    """Networks that warm up one after the other before the one that goes on, each from fresh weights and for as many
    steps: what they say of the unlabelled images is averaged with what the network says of them in pseudo-labels.
    Their steps are part of the budget."""
    k_share: float | None = Field(default=None, gt=0, le=1)
    """K as a share of the anchors, which grow from stage to stage, instead of ``k``."""
    centre: bool = False
    """Take the anchors' mean for the origin of the features before their cosines (eqs. 4, 5). Pooled activations are
    never negative, so that all lie on one side and cosines are near 1 whatever the images show."""
    sharpen: PositiveFloat = 1.0
    """Temperature of the pseudo-labels: below 1 they are sharpened; 1 leaves them as eq. 6 gives them."""
    relabel: bool = False
    """Before every stage, new pseudo-labels for the images of earlier ones, from the network as it is by then; eq. 6
    among the nearest images whose labels were given. The paper leaves them as they were."""
    balance: float = Field(default=0.0, ge=0, le=1)
    """Draw rare classes oftener, among labelled and selected: (commonest / class frequency) to this power; 0: alike."""
    consistency: float = Field(default=0.0, ge=0)
    """Weight of a third term: what the averaged copy is sure of on a weak view of an unlabelled image is what the
    network must say of a strong one; 0 leaves it out."""
    consistency_confidence: float = Field(default=0.95, gt=0, lt=1)
    """How sure the averaged copy must be there. Multi-label: of each finding, after its mean is aligned with the
    labelled frequency."""
    consistency_in: Literal["stages", "all"] = "stages"
    """Whether that term waits for the first stage, or is there from the warm-up on."""
    labelled_loss: Literal["plain", "logit-adjusted", "class-balanced"] = "plain"
    """The labelled term: as in eq. 1; logits shifted by class frequency; or classes weighted by effective number."""
    adjustment: PositiveFloat = 1.0
    """How far ``logit-adjusted`` shifts the logits."""


class ACPLPlus(ACPL):
    """ACPL, and what its ideas allow besides."""

    name: ClassVar[str] = "acpl-plus"
    summary: ClassVar[str] = "ACPL with settings beyond the paper: drawing, sharpening, consistency, balance"
    Settings: ClassVar[type[Section]] = ACPLPlusSettings
    recordable: ClassVar[bool] = True

    def __init__(self, settings: ACPLPlusSettings, context: Context) -> None:
        super().__init__(settings, context)
        given = context.pools.targets(context.pools.given).to(self._networks.device)
        self._counts = given.sum(dim=0)
        self._frequency = given.mean(dim=0)
        self._predicted = self._frequency.clone()
        goes_on = context.schedule.stages > 0 and len(context.pools.unlabelled) > 0
        self._to_hear = settings.teachers if goes_on else 0
        self._teachers = Teachers(context.pools.unlabelled)

    def warm_ups(self) -> int:
        """The teachers', and the one that every run has."""
        return self._to_hear + 1

    def said(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """The mean of what the network and its teachers say."""
        return self._teachers.agreed(probabilities, ids)

    def neighbours(self) -> int:
        """K: the share of the anchors as they stand, at least 1, where one is set."""
        share = self.settings.k_share
        return super().neighbours() if share is None else max(1, round(share * len(self.pools.anchors)))

    def compared(self, samples: Source, anchors: Tensor) -> tuple[Source, Tensor]:
        """Less the anchors' mean where that is set."""
        if not self.settings.centre:
            return samples, anchors
        origin = mean_row(anchors, self.context.group)
        return Centred(samples, origin), anchors - origin

    def refined(self, pseudo_labels: Tensor) -> Tensor:
        """Sharpened at the temperature that is set."""
        if self.settings.sharpen == 1:
            return pseudo_labels
        return sharpen(pseudo_labels, self.settings.sharpen, self.context.task).clamp(0, 1)

    def before_stage(self, index: int, look: Look) -> Record | None:
        """ACPL's, after the samples of earlier stages have got new pseudo-labels where that is set; a teacher that has
        just warmed up is heard, and makes room for the next."""
        if 0 < index <= self._to_hear:
            said = look.share(self._networks.predictor, self.pools.unlabelled).views.probabilities[:]
            self._teachers.hear(said.to(self._networks.device), self.context.group)
            self._networks.become(self.context.build())
            self._predicted.copy_(self._frequency)
        own = self._own(index)
        if own > 0 and self.settings.relabel and self._goes_on(own):
            self._relabel(own, look)
        return super().before_stage(own, look)

    def stage(self, index: int) -> Stage | None:
        """ACPL's, with rare classes oftener in its draws and one more draw for the consistency term."""
        own = self._own(index)
        stage = super().stage(own)
        if stage is None:
            return None
        if index < self._to_hear:
            stage = replace(stage, name=f"teacher {index + 1}", snapshot=False)
        elif own > 0:  # by the number that its table has in the run folder
            stage = replace(stage, name=f"stage {index}")
        draws = dict(stage.draws)
        if self.settings.balance > 0:
            draws = {name: self._balanced(draw, index) for name, draw in draws.items()}
        wanted = self.settings.consistency > 0 and (own > 0 or self.settings.consistency_in == "all")
        if wanted and len(self.pools.unlabelled):
            size = self.context.schedule.batch_size
            draws[CONSISTENCY] = Draw(self.pools.unlabelled, size, ("weak", "strong"), known=False)
        return replace(stage, draws=draws)

    def most_images(self) -> int:
        """Two views of a batch more, where there is a consistency term."""
        return super().most_images() + (2 * self.context.schedule.batch_size if self.settings.consistency else 0)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """ACPL's terms; in the third the strong view's targets are the averaged copy's word on the weak one."""
        parts = dict(batch)
        if CONSISTENCY in parts:
            pool = parts[CONSISTENCY]
            parts[CONSISTENCY] = Samples(pool.ids, pool.more[0], self._taught(pool))
        return super().losses(parts)

    def term(self, name: str, logits: Tensor, targets: Tensor) -> Tensor:
        """A mean of eq. 1, or the consistency of what the averaged copy is sure of."""
        task, settings = self.context.task, self.settings
        if name == CONSISTENCY:
            weight: float = settings.consistency
            return weight * masked_loss(logits, targets, settings.consistency_confidence, task)
        if name == "labelled" and settings.labelled_loss == "logit-adjusted":
            return logit_adjusted_loss(logits, targets, task, self._frequency, settings.adjustment)
        if name == "labelled" and settings.labelled_loss == "class-balanced":
            mean = partial(mean_over, self.context.group)
            return class_balanced_loss(logits, targets, task, self._counts, len(self.pools.given), mean)
        return classification_loss(logits, targets, task)

    def state_dict(self) -> dict[str, Any]:
        """The running mean of the teacher's word besides."""
        return {**super().state_dict(), "predicted": self._predicted, "teachers": self._teachers.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._predicted.copy_(state["predicted"])
        self._teachers.load_state_dict(state["teachers"])

    @torch.no_grad()
    def _taught(self, pool: Samples) -> Tensor:
        said = probabilities(self._networks.predictor(pool.images).logits, self.context.task)
        said = self.context.heard(said, pool.ids)
        if self.context.task is Task.MULTI_CLASS:
            return said
        # Without it rare findings, which are seldom sure to be there, would only ever be taught to be absent.
        self._predicted.lerp_(mean_over(self.context.group, said.mean(dim=0)), 1 - _MEMORY)
        frequency, predicted = (f.clamp(_LEAST, 1 - _LEAST) for f in (self._frequency, self._predicted))
        return align(said, frequency, predicted, self.context.task)

    def _own(self, index: int) -> int:
        """ACPL's number of stage ``index``: 0 are the warm-ups."""
        return max(0, index - self._to_hear)

    def _relabel(self, index: int, look: Look) -> None:
        """New pseudo-labels for the samples of earlier stages: by eq. 6 from the network as it is now, among the
        nearest samples whose labels were given, since their own old pseudo-labels would vouch for themselves."""
        pools, group = self.pools, self.context.group
        if len(pools.pseudo_labelled) == 0:
            return
        network = self._network_for_features(look)
        samples, anchors = look.share(network, pools.pseudo_labelled), look.share(network, pools.given)
        rows, features = self.compared(samples.views.features, anchors.views.features[:])
        given = pools.targets(pools.given).to(features.device)
        found = surroundings(rows, features, given, self.neighbours(), group)
        density = self._scaled(found.density)
        model = self.said(samples.views.probabilities[:].to(features.device), samples.ids)
        labels = self.refined(self._pseudo_labels(index, model, found.labels, density))
        pools.relabel(group.gather(samples.ids.to(features.device)).cpu(), group.gather(labels).cpu())

    def _balanced(self, draw: Draw, index: int) -> Draw:
        factors = repeat_factors(
            self.pools.targets(draw.ids), self._frequency.cpu(), self.settings.balance, self.context.task
        )
        # Described anew from a checkpoint, a stage must be the same: its own seed, not what ran before.
        generator = torch.Generator().manual_seed(self.context.seed * 1000 + index)
        return replace(draw, ids=repeated(draw.ids, factors, generator))
