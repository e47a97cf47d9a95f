"""What a patient's data say of each class without the image: a logistic regression close to the usual shares.

The classes' usual shares are its starting point, and every weight is drawn towards 0, so that a class with few cases
or none is moved little or not at all.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from acpl.functional.evidence import usual_shares

PENALTY = 1.0
"""Of the squared weights, against the sum over the labelled images of what they leave unexplained."""
_ITERATIONS = 100
_PRECISION = 1e-10
_SHORTEST = 1e-6
_ROUNDING = 1e-12  # a sum that differs by less of itself is the same: near the minimum nothing else decides


def fit_clinical(numbers: Tensor, labels: Tensor, *, exclusive: bool, penalty: float = PENALTY) -> Tensor:
    """Return the weight that each of a patient's numbers has for each class.

    They minimise the cross-entropy of ``usual shares + numbers × weights`` plus ``penalty / 2`` times the sum of their
    squares, by Newton's method; there is one minimum.

    Args:
        numbers: ``(labelled, numbers)``, finite, of about unit size.
        labels: ``(labelled, classes)`` of 0 and 1, at least one row.
        exclusive: whether the classes exclude each other.
        penalty: above 0.

    Returns:
        float64 ``(numbers + 1, classes)`` on the CPU, the last row that of a constant.
    """
    _refuse_unlike(numbers, labels, penalty)
    inputs, labels = _with_constant(numbers.cpu()), labels.double().cpu()
    usual = usual_shares(labels, exclusive=exclusive)
    start = usual.log() if exclusive else torch.logit(usual)
    weights = torch.zeros(inputs.shape[1], labels.shape[1], dtype=torch.float64)
    problem = _Problem(inputs, labels, start, penalty, exclusive)
    for _ in range(_ITERATIONS):
        step = problem.newton(weights)
        weights = weights - problem.damped(step, weights) * step
        if float(step.abs().max()) < _PRECISION:
            break
    return weights


def clinical_evidence(numbers: Tensor, weights: Tensor, usual: Tensor, *, exclusive: bool) -> Tensor:
    """Return how much likelier than usual a patient's numbers make each class, in log-odds.

    Args:
        numbers: ``(samples, numbers)``, finite.
        weights: those of :func:`fit_clinical`.
        usual: ``(classes,)``, the :func:`usual_shares` that they were fitted with.
        exclusive: whether the classes exclude each other.

    Returns:
        float64 ``(samples, classes)`` on the numbers' device.
    """
    if numbers.ndim != 2 or numbers.shape[1] + 1 != len(weights):
        raise ValueError(f"numbers must be (samples, {len(weights) - 1}), got shape {tuple(numbers.shape)}")
    weights, usual = weights.to(numbers.device), usual.to(numbers.device)
    moved = _with_constant(numbers) @ weights
    return torch.log_softmax(usual.log() + moved, dim=1) - usual.log() if exclusive else moved


def _with_constant(numbers: Tensor) -> Tensor:
    return torch.cat([numbers.double(), numbers.new_ones(len(numbers), 1, dtype=torch.float64)], dim=1)


def _refuse_unlike(numbers: Tensor, labels: Tensor, penalty: float) -> None:
    if labels.ndim != 2 or len(labels) == 0:
        raise ValueError(f"labels must be (labelled, classes) with at least one row, got shape {tuple(labels.shape)}")
    if numbers.ndim != 2 or len(numbers) != len(labels):
        raise ValueError(f"numbers must have {len(labels)} rows, got shape {tuple(numbers.shape)}")
    for name, values in (("numbers", numbers), ("labels", labels)):
        if not bool(values.isfinite().all()):
            raise ValueError(f"{name} must be finite")
    if not penalty > 0:
        raise ValueError(f"penalty must be above 0, got {penalty}")


class _Problem(NamedTuple):
    """What is to be minimised."""

    inputs: Tensor
    labels: Tensor
    start: Tensor
    penalty: float
    exclusive: bool

    def value(self, weights: Tensor) -> float:
        scores = self.start + self.inputs @ weights
        if self.exclusive:
            left = -(self.labels * torch.log_softmax(scores, dim=1)).sum()
        else:
            left = torch.nn.functional.binary_cross_entropy_with_logits(scores, self.labels, reduction="sum")
        return float(left + self.penalty / 2 * weights.square().sum())

    def newton(self, weights: Tensor) -> Tensor:
        """The full step; classes that exclude each other are coupled, others are problems of their own."""
        scores = self.start + self.inputs @ weights
        said = torch.softmax(scores, dim=1) if self.exclusive else torch.sigmoid(scores)
        gradient = self.inputs.T @ (said - self.labels) + self.penalty * weights
        return self._solved_together(said, gradient) if self.exclusive else self._solved_one_by_one(said, gradient)

    def _solved_together(self, said: Tensor, gradient: Tensor) -> Tensor:
        width, classes = gradient.shape
        curvature = torch.zeros(classes, width, classes, width, dtype=torch.float64)
        for one in range(classes):
            for other in range(one, classes):
                block = self._weighted(said[:, one] * (float(one == other) - said[:, other]))
                curvature[one, :, other, :] = block
                curvature[other, :, one, :] = block.T
        size = classes * width
        whole = curvature.reshape(size, size) + self.penalty * torch.eye(size, dtype=torch.float64)
        solved: Tensor = torch.linalg.solve(whole, gradient.T.reshape(size))
        return solved.reshape(classes, width).T

    def _solved_one_by_one(self, said: Tensor, gradient: Tensor) -> Tensor:
        curvature = torch.stack([self._weighted(column * (1 - column)) for column in said.T])
        whole = curvature + self.penalty * torch.eye(len(gradient), dtype=torch.float64)
        solved: Tensor = torch.linalg.solve(whole, gradient.T)
        return solved.T

    def _weighted(self, factor: Tensor) -> Tensor:
        return self.inputs.T @ (self.inputs * factor[:, None])

    def damped(self, step: Tensor, weights: Tensor) -> float:
        """The largest of 1, 1/2, 1/4, … of the step that makes things no worse."""
        most, length = self.value(weights) * (1 + _ROUNDING), 1.0
        while length > _SHORTEST and self.value(weights - length * step) > most:
            length /= 2
        return length
