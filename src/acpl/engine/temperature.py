"""How sure a finished model is: softened, or sharpened, by one temperature that is fitted on validation."""

from collections.abc import Callable

from acpl.errors import UserError
from acpl.evaluation import fit_temperature
from acpl.evaluation.checks import Floats
from acpl.evaluation.temperature import LEAST, MOST
from acpl.models import Classifier
from acpl.task import Task

_FITTINGS = 4
_FITTED = 0.002


def refuse_no_validation(calibrate: bool, validation_images: int) -> None:
    """There is nothing to fit a temperature to."""
    if calibrate and validation_images == 0:
        raise UserError("calibrate needs a validation part with labels, and this data set has none")


def soften_by_validation(network: Classifier, answers: Callable[[], tuple[Floats, Floats]], task: Task) -> float:
    """Divide the network's logits by the temperature that explains the validation part best, and return it.

    ``answers`` gives truth and what the network says now. The mean of several looks, and what is known beside the
    image, do not follow a temperature to the letter: it is fitted again to the answers that come of it.
    """
    temperature = 1.0
    for _ in range(_FITTINGS):
        truth, score = answers()
        more = fit_temperature(truth, score, exclusive=task is Task.MULTI_CLASS)
        whole = min(max(temperature * more, LEAST), MOST)
        network.soften(whole / temperature)
        done, temperature = abs(whole / temperature - 1) < _FITTED, whole
        if done:
            break
    return temperature
