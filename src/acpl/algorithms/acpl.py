"""Anti-curriculum pseudo-labelling: Algorithm 1 of Liu et al., CVPR 2022.

Between two stages the unlabelled samples farthest from the anchors are selected, pseudo-labelled by model and
neighbours together, and the least connected of them become anchors. The paper's text is the default; settings
whose docstring says "the published code" switch on one departure of it each.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from math import ceil
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from acpl import functional
from acpl.algorithms.budget import BudgetSettings, within_budget
from acpl.algorithms.contract import (
    Averaged,
    Batch,
    Context,
    Draw,
    Look,
    Record,
    Samples,
    Stage,
    StepByStep,
    single_draw,
)
from acpl.algorithms.mixing import beta_draws, mixed_pairs
from acpl.algorithms.surroundings import Surroundings, surroundings
from acpl.functional.sums import exact_sum
from acpl.functional.survey import Source
from acpl.models import Classifier, classification_loss
from acpl.settings import Section, at_share
from acpl.task import Task

# Of larger pools the stage's table holds so many evenly spread samples.
RECORDED = 1_000_000


class ACPLSettings(BudgetSettings):
    """Settings of ``acpl``."""

    k: PositiveInt | dict[Annotated[float, Field(gt=0, le=1)], PositiveInt] = 10
    """Nearest anchors of a sample (K, eq. 4); or one number for each labelled fraction up to the key."""
    sets: int = Field(default=3, ge=2, le=4)
    """Information sets: components of the density's mixture (eq. 2, supplement)."""
    select: Literal["high", "medium", "low"] = "high"
    """Which information set is pseudo-labelled; the others are the paper's ablation."""
    pseudo_label: Literal["informative-mixup", "model", "neighbours", "random-weight", "mixup"] = "informative-mixup"
    """Eq. 6, or the ablation's: either alone, a Beta weight for the density, or MixUp of images."""
    concentration: PositiveFloat = 1.0
    """Beta(c, c) of ``random-weight`` and ``mixup``; the paper names no value, 1 is uniform."""
    purification: bool = True
    """Only the least connected selected samples become anchors (eq. 7); otherwise all of them."""
    density: Literal["cosine", "min-max"] = "cosine"
    """``min-max`` rescales the density over the unlabelled pool, as the published code does."""
    high_component: Literal["lowest-mean", "minimum"] = "lowest-mean"
    """``minimum``: high information is the set of the single sparsest sample, as in the published code."""
    loss: Literal["two-term", "union"] = "two-term"
    """Eq. 1's two means, or one mean over labelled and selected together, as in the published code."""
    true_labels: Literal["pooled", "apart"] = "pooled"
    """``pooled``: eq. 1's first mean is over D_L as it grows, pseudo-labels included (line 9). ``apart``: it stays
    with the labels that were given, and pseudo-labels of all stages make the second; not in the paper."""
    reinitialise: bool = False
    """Every stage starts from fresh weights, as in the published code."""
    features_from: Literal["model", "averaged", "best"] = "model"
    """Which network looks at the pools; the published code takes the averaged copy that was best so far."""
    mixture_iterations: PositiveInt = 500
    """EM steps at most; the published code stops at 20."""
    mixture_tolerance: PositiveFloat = 1e-6
    """EM ends when the mean log-likelihood gains less; the published code's is 0.01."""
    neighbours_by: Literal["exact", "ivf"] = "exact"
    """``ivf``: an inverted file finds most neighbours among very many anchors at a fraction of the cost (extra
    ``faiss``); a sample's recall, and the share of it that exact neighbours would select otherwise, are reported."""
    snapshots: bool = False
    """Keep the predictor after every stage, not after the warm-up alone: so that what choosing among them is worth can
    be judged when training is over."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.neighbours_by == "ivf" and find_spec("faiss") is None:
            raise ValueError("neighbours_by 'ivf' needs the package faiss-cpu: pip install 'acpl[faiss]'")
        if self.select == "medium" and self.sets != 3:
            raise ValueError(f"select 'medium' needs sets to be 3, but it is {self.sets}")
        if self.pseudo_label == "mixup" and self.loss == "union":
            raise ValueError("pseudo_label 'mixup' mixes selected images alone and needs loss 'two-term'")
        return self

    def neighbours(self, fraction: float) -> int:
        """K for this labelled fraction."""
        return self.k if isinstance(self.k, int) else at_share(self.k, fraction)


class ACPL(StepByStep):
    """Warm-up on the labelled pool, then stages on labelled and selected."""

    name: ClassVar[str] = "acpl"
    summary: ClassVar[str] = "anti-curriculum pseudo-labelling (Liu et al., CVPR 2022)"
    Settings: ClassVar[type[Section]] = ACPLSettings
    recordable: ClassVar[bool] = True

    def __init__(self, settings: Any, context: Context) -> None:
        self.settings = settings
        self.context = context
        self.pools = context.pools
        self._networks = context.build()
        self._unlabelled = len(context.pools.unlabelled)

    def networks(self) -> Averaged:
        """The network p_θ and its averaged copy."""
        return self._networks

    def before_stage(self, index: int, look: Look) -> Record | None:
        """Lines 5 and 6 of Algorithm 1: build D_S with CDSI and IM, update D_A with ASP."""
        if index == 0 or not self._goes_on(index):
            return None
        record = self._select(index, look)
        if self.settings.reinitialise:
            self._networks.become(self.context.build())
        return record

    def stage(self, index: int) -> Stage | None:
        """Line 3 (warm-up) or line 8 (both terms of eq. 1); None when t = T or D_U is empty."""
        stage = self._whole_stage(index)
        if stage is None:
            return None
        budget, schedule, given = self.settings.steps, self.context.schedule, len(self.pools.given)
        return within_budget(stage, index, budget, schedule, given, self._unlabelled, warm_ups=self.warm_ups())

    def _whole_stage(self, index: int) -> Stage | None:
        schedule, pools = self.context.schedule, self.pools
        if index == 0:
            warm_up = single_draw("warm-up", pools.labelled, schedule, schedule.warmup_epochs, snapshot=True)
            return replace(warm_up, most_images=self.most_images() if self._goes_on(1) else 0)
        if not self._goes_on(index):
            return None
        name = f"stage {index}"
        if len(pools.selected) == 0:
            return single_draw(name, pools.labelled, schedule, schedule.stage_epochs, snapshot=self.settings.snapshots)
        if self.settings.loss == "union":
            union = torch.cat([pools.labelled, pools.selected])
            return single_draw(name, union, schedule, schedule.stage_epochs, snapshot=self.settings.snapshots)
        # A full batch from each pool estimates both means of eq. 1 equally well whatever the pools' sizes, and
        # shows as many labelled images a step as supervised training does. An epoch shows |D_L ∪ D_S| images.
        first, second = pools.labelled, pools.selected
        if self.settings.true_labels == "apart":
            first, second = pools.given, torch.cat([pools.pseudo_labelled, pools.selected])
        size = schedule.batch_size
        draws = {"labelled": Draw(first, size), "selected": Draw(second, size)}
        epoch_steps = ceil((len(first) + len(second)) / (2 * size))
        return Stage(name, draws, epoch_steps, epoch_steps * schedule.stage_epochs, self.settings.snapshots)

    def most_images(self) -> int:
        """Images that a stage's step shows: a batch of each term."""
        terms = 1 if self.settings.loss == "union" else 2
        return terms * self.context.schedule.batch_size

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. 1, a name for each mean; one forward pass, so that batch norm sees both pools."""
        parts = dict(batch)
        if self.settings.pseudo_label == "mixup" and "selected" in parts:
            parts["selected"] = self._mixed(parts["selected"])
        logits = self._networks.trained(torch.cat([part.images for part in parts.values()])).logits
        split = torch.split(logits, [len(part.ids) for part in parts.values()])
        return {
            name: self.term(name, outputs, part.targets)
            for (name, part), outputs in zip(parts.items(), split, strict=True)
        }

    def term(self, name: str, logits: Tensor, targets: Tensor) -> Tensor:
        """One mean of eq. 1, by its draw's name."""
        return classification_loss(logits, targets, self.context.task)

    def warm_ups(self) -> int:
        """Trainings on the labelled pool alone before the first selection."""
        return 1

    def said(self, probabilities: Tensor, ids: Tensor) -> Tensor:
        """(samples, classes): the model's part of pseudo-labels (eq. 6); here as the network gives it."""
        return probabilities

    def neighbours(self) -> int:
        """K for the anchors as they stand."""
        found: int = self.settings.neighbours(self.context.fraction)
        return found

    def compared(self, samples: Source, anchors: Tensor) -> tuple[Source, Tensor]:
        """Features of both as their cosines are taken; here as the network gives them."""
        return samples, anchors

    def refined(self, pseudo_labels: Tensor) -> Tensor:
        """(samples, classes): pseudo-labels as they are taught; here as eq. 6 gives them."""
        return pseudo_labels

    def after_step(self, batch: Batch) -> None:
        """The averaged copy follows."""
        images = torch.cat([part.images for part in batch.values()])
        self._networks.average.update(self._networks.trained, images)

    def after_stage(self, index: int) -> None:
        """Line 9: D_L ← D_L ∪ D_S, D_U ← D_U \\ D_S."""
        self.pools.merge()

    def state_dict(self) -> dict[str, Any]:
        """Weights and pools."""
        return {
            "trained": self._networks.trained.state_dict(),
            "average": self._networks.average.state_dict(),
            "pools": self.pools.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Weights and pools back."""
        self._networks.trained.load_state_dict(state["trained"])
        self._networks.average.load_state_dict(state["average"])
        self.pools.load_state_dict(state["pools"])

    def _goes_on(self, index: int) -> bool:
        # The paper's line 4 reads "t < T or D_U not empty"; its experiments do "and".
        return index <= self.context.schedule.stages and len(self.pools.unlabelled) > 0

    def _network_for_features(self, look: Look) -> Classifier:
        if self.settings.features_from == "model":
            return self._networks.trained
        best = look.best() if self.settings.features_from == "best" else None
        return best or self._networks.predictor

    def _select(self, index: int, look: Look) -> Record:
        settings, pools, group, k = self.settings, self.pools, self.context.group, self.neighbours()
        network, all_anchors = self._network_for_features(look), pools.anchors
        unlabelled, anchors = look.share(network, pools.unlabelled), look.share(network, all_anchors)
        samples, features = self.compared(unlabelled.views.features, anchors.views.features[:])
        device, approximate = features.device, settings.neighbours_by == "ivf"
        anchor_labels = pools.targets(all_anchors).to(device)
        found = surroundings(samples, features, anchor_labels, k, group, approximate=approximate)
        density, level, chosen = self._chosen(found.density)

        model = self.said(unlabelled.views.probabilities[:].to(device), unlabelled.ids)
        labels = self.refined(self._pseudo_labels(index, model, found.labels, density))
        candidates = torch.nonzero(chosen).flatten()
        linked = found.connections(candidates)
        joins = torch.ones_like(linked, dtype=torch.bool)
        if settings.purification:
            joins = functional.purify(linked, group=group)

        own = unlabelled.ids
        ids = torch.where(chosen, own.to(device), -1)[candidates]
        pools.select(group.gather(ids).cpu(), group.gather(labels[candidates]).cpu())
        pools.join_anchors(group.gather(ids[joins]).cpu())

        positive = self._positive(labels)[:, None]
        summary = {
            "selected": len(pools.selected),
            "anchors": len(pools.anchors),
            "left": found.count - len(pools.selected),
            "positives_selected": float(exact_sum(positive[candidates], torch.ones_like(positive[candidates]), group))
            / (len(pools.selected) or float("nan")),
            "positives_pool": float(exact_sum(positive, torch.ones_like(positive), group)) / found.count,
        }
        if approximate:
            summary |= self._against_exact(found, features, chosen)
        columns = {
            "id": own,
            "density": density,
            "information": level,
            "model": model,
            "neighbours": found.labels,
            "selected": chosen,
            "pseudo_label": torch.where(chosen[:, None], labels, torch.nan),
            "connections": torch.full_like(level, -1).index_put((candidates,), linked),
            "joined_anchors": torch.zeros_like(chosen).index_put((candidates,), joins),
            **{f"nearest_{place + 1}": all_anchors[rows.cpu().long()] for place, rows in enumerate(found.nearest.T)},
        }
        step = -(-found.count // RECORDED)
        shown = slice(-found.first % step, None, step)
        return Record(summary, {name: group.gather(values[shown].to(device)) for name, values in columns.items()})

    def _scaled(self, density: Tensor) -> Tensor:
        return functional.min_max(density, group=self.context.group) if self.settings.density == "min-max" else density

    def _chosen(self, density: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n,) each, of the own samples: the density as it is used, the information level, and who is selected."""
        settings, group = self.settings, self.context.group
        density = self._scaled(density)
        level = functional.information(
            density,
            settings.sets,
            iterations=settings.mixture_iterations,
            tolerance=settings.mixture_tolerance,
            group=group,
        ).level
        if settings.high_component == "minimum" and settings.select == "high":
            return density, level, level == functional.level_of_minimum(density, level, group=group)
        return density, level, functional.select(level, settings.sets, settings.select)

    def _against_exact(self, found: Surroundings, anchors: Tensor, chosen: Tensor) -> dict[str, float]:
        """How many of a sample's exact neighbours were found, and how much of it they would select otherwise."""
        rows, group = found.sample(), self.context.group
        exact, recall = found.against_exact(rows, anchors, self.neighbours())
        other = self._chosen(found.density.index_put((rows,), exact))[2]
        changed = group.sum(torch.stack([(other != chosen)[rows].sum(), torch.tensor(len(rows), device=rows.device)]))
        return {"recall": recall, "changed": float(changed[0] / changed[1])}

    def _pseudo_labels(self, index: int, model: Tensor, neighbours: Tensor, density: Tensor) -> Tensor:
        match self.settings.pseudo_label:
            case "informative-mixup":
                return functional.informative_mixup(model, neighbours, density)
            case "neighbours":
                return neighbours
            case "random-weight":
                generator = torch.Generator().manual_seed(self.context.seed * 1000 + index)
                return functional.random_mixup(
                    model,
                    neighbours,
                    concentration=self.settings.concentration,
                    generator=generator,
                    group=self.context.group,
                )
            case _:
                return model

    def _mixed(self, samples: Samples) -> Samples:
        weight = beta_draws(len(samples.ids), self.settings.concentration, samples.images.device)
        images, targets = mixed_pairs(samples.images, samples.targets, weight)
        return Samples(samples.ids, images, targets)

    def _positive(self, labels: Tensor) -> Tensor:
        """(n,): how likely a sample has any finding (multi-label) or is not of the commonest class."""
        labels = labels[:, : self.context.classes]
        if self.context.task is Task.MULTI_LABEL:
            return 1 - (1 - labels).prod(dim=1)
        labelled = self.pools.targets(self.pools.labelled)
        return 1 - labels[:, int(labelled.sum(dim=0).argmax())]
