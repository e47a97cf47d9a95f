"""Networks: backbones and heads, and the averaged copy that evaluates."""

from acpl.models.averaging import WeightAverage
from acpl.models.backbones import BACKBONES, build_classifier, check_backbone, expected_statistics
from acpl.models.classifier import Classifier, Outputs, classification_loss, probabilities

__all__ = [
    "BACKBONES",
    "Classifier",
    "Outputs",
    "WeightAverage",
    "build_classifier",
    "check_backbone",
    "classification_loss",
    "expected_statistics",
    "probabilities",
]
