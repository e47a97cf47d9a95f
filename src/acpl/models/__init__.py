"""Networks: backbones and heads, and the averaged copy that evaluates."""

from acpl.models.averaging import WeightAverage
from acpl.models.backbones import BACKBONES, build_classifier, check_backbone, expected_statistics
from acpl.models.classifier import Classifier, Joined, Network, Outputs, classification_loss, probabilities
from acpl.models.looks import Looks, look_at

__all__ = [
    "BACKBONES",
    "Classifier",
    "Joined",
    "Looks",
    "Network",
    "Outputs",
    "WeightAverage",
    "build_classifier",
    "check_backbone",
    "classification_loss",
    "expected_statistics",
    "look_at",
    "probabilities",
]
