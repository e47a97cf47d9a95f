"""Procedural medical-looking images: the built-in data sets for demonstrations, tests and CI.

Every picture is drawn from a seed and a patient number, so nothing is downloaded, nothing is stored and
patient 7 looks the same whether ten patients are asked for or ten thousand. They imitate what makes medical
data hard (rare findings, several images of one patient, nuisance stronger than the signal); they are not
medical images and carry no medical fact.
"""

from acpl.data.phantoms.chest import draw_chest
from acpl.data.phantoms.chest_patients import CHEST_FINDINGS, chest_labels
from acpl.data.phantoms.drawing import Phantoms
from acpl.data.phantoms.lesions import LESION_CLASSES, draw_lesions, lesion_labels
from acpl.data.phantoms.reports import reported_findings, reported_lesions

__all__ = [
    "CHEST_FINDINGS",
    "LESION_CLASSES",
    "Phantoms",
    "chest_labels",
    "draw_chest",
    "draw_lesions",
    "lesion_labels",
    "reported_findings",
    "reported_lesions",
]
