"""The first screen: what was trained on what, the figure, is it better, can I trust it."""

from math import isfinite
from typing import NamedTuple

from markupsafe import Markup

from acpl.report.plots import BLUE, GREY, Interval, forest
from acpl.report.run_data import Json, RunData
from acpl.report.tables import FIGURES, verdict

FEW_GROUPS = 100
WIDE = 0.1
FEW_LABELLED = 10
CALIBRATED = 0.05


class Note(NamedTuple):
    """A reason to trust the figure, or to be careful; ``state`` is good, care or plain."""

    state: str
    text: str


class Verdict(NamedTuple):
    """Whether it is better than the supervised warm-up; ``state`` is good, bad or plain."""

    state: str
    text: str
    detail: str


def first_screen(run: RunData) -> Json:
    """All that the top of the page says."""
    return {
        "what": _what(run),
        "figure": _figure(run),
        "verdict": _verdict(run),
        "forest": _forest(run),
        "notes": notes(run),
    }


def notes(run: RunData) -> list[Note]:
    """Can I trust it? What speaks for the figure, and what to be careful about, the latter first."""
    found = [*_judged_on(run), *_classes(run), *_calibration(run), *_subgroups(run), *_pseudo_labels(run)]
    found += _labels_of_joined(run)
    if known := (run.evaluation or {}).get("beside"):
        found.append(Note("plain", f"The answers know more than the image: {known}."))
    found += [Note("care", f"While training: {sentence}.") for sentence in dict.fromkeys(run.troubles)]
    found.sort(key=lambda note: ("care", "good", "plain").index(note.state))
    return found


def _labels_of_joined(run: RunData) -> list[Note]:
    if not run.joined or run.joined["labelled"] == run.joined["labelled_for_one"]:
        return []
    every, one = (f"{run.joined[key]:,}" for key in ("labelled", "labelled_for_one"))
    text = f"Its networks had {every} labels between them, none more than {one}: compare it with a model of {every}."
    return [Note("care", text)]


def validation_scores(run: RunData) -> list[tuple[str, float]]:
    """Each stage's name and its last validation AUROC, where there is one."""
    found = []
    for stage in run.stages:
        scores = [e["validation_auroc"] for e in run.epochs if e["stage"] == stage["stage"] and _defined(e)]
        if scores:
            found.append((str(stage["name"]), float(scores[-1])))
    return found


def _what(run: RunData) -> str:
    labelled, unlabelled = run.roles.get("labelled", 0), run.roles.get("unlabelled", 0)
    kind = "findings" if run.task == "multi-label" else "classes"
    told = f"{len(run.classes)} {kind}" if run.classes else "a classifier"
    size, network = run.config["size"], run.config["backbone"]
    begin = f"{labelled:,} of {labelled + unlabelled:,} training images labelled; {told} at {size} pixels"
    if run.joined:
        return f"{begin}; {len(run.joined['runs'])} networks ({network}) answer together."
    return f"{begin} with the network {network}; {run.steps:,} gradient steps; seed {run.config['seed']}."


def _figure(run: RunData) -> Json | None:
    if run.evaluation is not None:
        area = run.evaluation["auroc"]
        if area["mean"] is None:
            return None
        return {"name": f"mean AUROC, {run.part} part", "value": area["mean"], "low": area["low"], "high": area["high"]}
    scores = validation_scores(run)
    if not scores:
        return None
    return {"name": "mean AUROC, validation part", "value": scores[-1][1], "low": None, "high": None}


def _verdict(run: RunData) -> Verdict:
    against = "its supervised warm-up"
    if run.evaluation is None:
        scores = validation_scores(run)
        if len(scores) < 2:
            return Verdict("plain", "Not judged yet", "")
        gain = scores[-1][1] - scores[0][1]
        word = "above" if gain > 0 else "below"
        return Verdict("plain", f"Not judged yet; {word} {against} on validation", f"{gain:+.4f}, without an interval")
    warm_up = run.evaluation.get("snapshots", {}).get("warm-up")
    if warm_up is None:
        return Verdict("plain", "No supervised warm-up to compare with", "Compare with another run: acpl report A B")
    gain = warm_up["gain"]
    if gain["low"] is None or gain["mean"] is None:
        return Verdict("plain", "No class can be ranked", "")
    detail = f"{gain['mean']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}], paired over groups, 95 %"
    if verdict(gain) == "above":
        return Verdict("good", f"Better than {against}", detail)
    if verdict(gain) == "below":
        return Verdict("bad", f"Worse than {against}", detail)
    return Verdict("plain", f"No clear difference to {against}", detail)


def _forest(run: RunData) -> Markup:
    """Warm-up and final model on one axis."""
    method = str(run.config["method"])
    if run.evaluation is None:
        scores = validation_scores(run)
        shown = {scores[0][0]: scores[0], method: scores[-1]} if len(scores) > 1 else {}
        areas = {name: {"mean": score, "low": None, "high": None} for name, (_, score) in shown.items()}
        part = "validation"
    else:
        figures = {"supervised warm-up": run.evaluation.get("snapshots", {}).get("warm-up"), method: run.evaluation}
        areas = {name: found["auroc"] for name, found in figures.items() if found}
        part = str(run.part)
    kept = [_row(n, area, BLUE if n == method else GREY) for n, area in areas.items() if area["mean"] is not None]
    if not kept:
        return Markup("")
    alt = "; ".join(f"{row.name}: {row.note}" for row in kept)
    return forest(kept, alt=alt, x_label=f"mean AUROC on the {part} part, 95 % interval")


def _row(name: str, area: Json, colour: int) -> Interval:
    low, high = area["low"], area["high"]
    words = f"{area['mean']:.4f}" if low is None else f"{area['mean']:.4f}  [{low:.4f}, {high:.4f}]"
    return Interval(name, area["mean"], low, high, colour, words)


def _judged_on(run: RunData) -> list[Note]:
    found = run.evaluation
    if found is None:
        return [Note("care", "The test part has not been opened yet: acpl evaluate does that, once training is over.")]
    known = found.get("groups_known", True)
    who = f"{found['images']:,} images" + (f" of {found['groups']:,} patients (or lesions)" if known else "")
    care = [Note("care", sentence) for sentence in found.get("care", [])]
    if run.part == "validation":
        said = f"Judged on the validation part ({who}), which thresholds are set on; not on the test part."
        return [Note("care", said), *care]
    torn = any(seen["groups"] for seen in found.get("seen_in_training", {}).values())
    notes = [
        *care,
        Note("plain", f"Judged on {who}.") if torn else Note("good", f"Judged on {who} that training never opened."),
    ]
    if found["groups"] < FEW_GROUPS:
        few = f"{found['groups']} patients (or lesions)" if known else f"{found['images']} images"
        notes.append(Note("care", f"Only {few} judged: the interval itself is rough."))
    area = found["auroc"]
    if area["low"] is not None and area["high"] - area["low"] > WIDE:
        notes.append(
            Note("care", f"The interval is {area['high'] - area['low']:.2f} wide; more test images would narrow it.")
        )
    return notes


def _classes(run: RunData) -> list[Note]:
    found: list[Note] = []
    labelled, images = (run.selection or {}).get("labelled"), run.roles.get("labelled", 0)
    if labelled:
        counts = [(name, round(share * images)) for name, share in zip(run.classes, labelled, strict=False)]
        scarce = [f"{name} ({count})" for name, count in counts if count < FEW_LABELLED]
        if scarce:
            found.append(Note("care", f"Learnt from fewer than {FEW_LABELLED} labelled images: {', '.join(scarce)}."))
    if run.evaluation is None:
        return found
    area = run.evaluation["auroc"]
    if area["left_out"]:
        found.append(Note("care", f"Left out, for want of both kinds of image: {', '.join(area['left_out'])}."))
    there = {name: value for name, value in area["per_class"].items() if value is not None}
    if len(there) > 1:
        name = min(there, key=lambda key: there[key])
        low, high = area["per_class_low"][name], area["per_class_high"][name]
        words = f"Weakest class: {name}, {FIGURES['auroc']} {there[name]:.3f}"
        if low is None or high is None:
            found.append(Note("care", f"{words}."))
        elif low <= 0.5:
            found.append(Note("care", f"{words} [{low:.2f}, {high:.2f}], not to be told from chance."))
        else:
            found.append(Note("good" if there[name] >= 0.8 else "care", f"{words} [{low:.2f}, {high:.2f}]."))
    return found


def _calibration(run: RunData) -> list[Note]:
    if run.evaluation is None:
        return []
    figure = run.evaluation.get("top_label_calibration_error") or run.evaluation.get("calibration_error")
    if not figure or figure["mean"] is None:
        return []
    words = f"Probabilities are off by {100 * figure['mean']:.1f} percentage points on average"
    if (temperature := (run.card or {}).get("temperature", 1.0)) != 1:
        words += f", with a temperature of {temperature:.2f} that was fitted to the validation part"
    if figure["mean"] <= CALIBRATED:
        return [Note("good", f"{words}.")]
    cure = "" if run.config.get("calibrate") else "; --calibrate when training fits them to the validation part"
    return [Note("care", f"{words}: do not read them as risks{cure}.")]


def _subgroups(run: RunData) -> list[Note]:
    found = []
    for kind in (run.judged or {}).get("subgroups", []):
        rows = [row for row in kind["rows"] if row["low"] is not None]
        if len(rows) < 2:
            continue
        # Any two that do not meet, not only those with the extreme points: a small subgroup's interval is wide.
        best, worst = max(rows, key=lambda row: row["low"]), min(rows, key=lambda row: row["high"])
        if worst["high"] < best["low"]:
            ends = ", ".join(f"{row['name']} {row['auroc']:.3f}" for row in (worst, best))
            found.append(Note("care", f"By {kind['by']}: {ends}; their intervals do not meet."))
        else:
            found.append(Note("good", f"By {kind['by']}: the intervals of all {len(rows)} subgroups meet."))
    return found


def _pseudo_labels(run: RunData) -> list[Note]:
    stages = (run.selection or {}).get("stages", [])
    judged, right = (sum(stage[key] for stage in stages) for key in ("judged", "right"))
    if not judged:
        return []
    rule = "name the true class" if run.task == "multi-class" else "name exactly the true findings"
    return [
        Note(
            "plain",
            f"{right:,} of {judged:,} pseudo-labels ({100 * right / judged:.0f} %) {rule}, read after training.",
        )
    ]


def _defined(event: Json) -> bool:
    value = event.get("validation_auroc")
    return value is not None and isfinite(value)
