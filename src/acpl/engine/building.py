"""From a model card to the network that it describes."""

from acpl.engine.run_folder import ModelCard
from acpl.models import Classifier, Joined, Network, build_classifier
from acpl.task import Task


def network_of(card: ModelCard) -> Network:
    """What answers: one network, or several joined."""
    if card.networks == 1:
        return build_network(card)
    return Joined([build_network(card) for _ in range(card.networks)], Task(card.task))


def build_network(card: ModelCard, *, dropout: float = 0.0, weights: str = "none") -> Classifier:
    """One network, to be trained or joined."""
    return build_classifier(
        card.backbone,
        channels=card.channels,
        classes=len(card.classes) + card.normal_output,
        activation=card.activation,  # type: ignore[arg-type]
        dropout=dropout,
        weights=weights,
    )
