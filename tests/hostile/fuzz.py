"""Fuzz what strangers' files are read by, for as long as you like: ``python -m tests.hostile.fuzz --minutes 60``.

Each case mutates a file of the corpus. Images go through the processes that read a user's images, tables, archives,
configurations and weights through the functions that open a user's. A case is a fault when anything but a result or
the one exception meant for people comes of it, when a reason is not one line, or when a limit is overrun. A codec that
crashes or hangs takes a worker process with it and the file is named: that is counted, kept beside, and no fault.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from acpl.data.limits import GIGABYTE, Limits
from tests.hostile.breaking import checksum, mutated
from tests.hostile.corpus import sound
from tests.hostile.documents import DOCUMENTS, Document
from tests.hostile.probe import Probe, probing

MARGIN = 1.5  # the clock of a loaded machine, and the memory a process holds before its first file


@dataclass
class Tally:
    """What became of the cases of one kind."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    crashed: int = 0
    too_slow: int = 0
    too_large: int = 0
    slowest: float = 0.0
    most_memory: int = 0
    faults: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)


class Fuzzer:
    """Cases, one after the other, counted by kind; files that did something are kept in ``kept``."""

    def __init__(self, probe: Probe, folder: Path, kept: Path, seed: int) -> None:
        self.probe = probe
        self.folder = folder
        self.kept = kept
        self.chance = random.Random(seed)
        self.limits = Limits.chosen()
        self.images = sound()
        self.others = list(self.images.values())
        self.tallies: dict[str, Tally] = {}

    def case(self) -> None:
        """One image, or now and then one of the other documents."""
        if self.chance.random() < 0.2:
            document = self.chance.choice(DOCUMENTS)
            self._document(document, mutated(document.content(), [document.content()], self.chance))
        else:
            name = self.chance.choice(list(self.images))
            self._image(name.split()[0], mutated(self.images[name], self.others, self.chance))

    def _image(self, kind: str, content: bytes) -> None:
        tally = self.tallies.setdefault(kind, Tally())
        tally.cases += 1
        answers = self.probe(content)
        reason = answers[0].reason
        if reason:
            tally.refused += 1
            short = reason.split(":")[0][:60]
            tally.reasons[short] = tally.reasons.get(short, 0) + 1
        else:
            tally.read += 1
        for answer in answers:
            tally.slowest = max(tally.slowest, answer.seconds)
            tally.most_memory = max(tally.most_memory, answer.memory)
            tally.too_large += "memory" in answer.reason
            if not answer.reason.isprintable():
                tally.faults.append(self._keep(kind, content, f"not one line: {answer.reason!r}"))
            if answer.seconds > MARGIN * self.limits.seconds:
                tally.faults.append(self._keep(kind, content, f"{answer.seconds:.0f} seconds"))
            if answer.memory > MARGIN * self.limits.gigabytes * GIGABYTE:
                tally.faults.append(self._keep(kind, content, f"{answer.memory:,} bytes"))
            if answer.died:
                slow = answer.reason == self.limits.too_slow
                tally.too_slow += slow
                tally.crashed += not slow
                self._keep(kind, content, answer.reason)

    def _document(self, document: Document, content: bytes) -> None:
        tally = self.tallies.setdefault(document.kind, Tally())
        tally.cases += 1
        start = time.perf_counter()
        try:
            refusal = document.attempt(content, self.folder)
        except Exception as error:
            tally.faults.append(self._keep(document.kind, content, f"{type(error).__name__}: {error}"))
            return
        tally.slowest = max(tally.slowest, time.perf_counter() - start)
        if refusal is None:
            tally.read += 1
        else:
            tally.refused += 1

    def _keep(self, kind: str, content: bytes, why: str) -> str:
        self.kept.mkdir(parents=True, exist_ok=True)
        name = f"{kind}-{checksum(content)}"
        (self.kept / name).write_bytes(content)
        with (self.kept / "why.txt").open("a", encoding="utf-8") as file:
            file.write(f"{name}: {why}\n")
        return f"{name}: {why}"


def table(tallies: dict[str, Tally]) -> str:
    """A line a kind."""
    lines = [
        f"{'kind':<12}{'cases':>9}{'read':>9}{'refused':>9}{'crashed':>9}{'slow':>6}{'s':>8}{'MB':>7}{'faults':>8}"
    ]
    for kind, tally in sorted(tallies.items()):
        lines.append(
            f"{kind:<12}{tally.cases:>9}{tally.read:>9}{tally.refused:>9}{tally.crashed:>9}{tally.too_slow:>6}"
            f"{tally.slowest:>8.2f}{tally.most_memory // 10**6:>7}{len(tally.faults):>8}"
        )
    lines.append(f"{'all':<12}{sum(tally.cases for tally in tallies.values()):>9}")
    return "\n".join(lines)


def main() -> int:
    """Fuzz, print the table, write it as JSON; 1 where there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "acpl-fuzz")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory() as images, tempfile.TemporaryDirectory() as rest, probing(Path(images)) as probe:
        fuzzer = Fuzzer(probe, Path(rest), asked.out / f"kept-{asked.seed}", asked.seed)
        while time.monotonic() < end:
            fuzzer.case()
    print(f"{asked.minutes:g} minutes, seed {asked.seed}; files that did something: {fuzzer.kept}")
    print(table(fuzzer.tallies))
    faults = [fault for tally in fuzzer.tallies.values() for fault in tally.faults]
    print("\n".join(["no fault"] if not faults else [f"{len(faults)} faults:", *faults[:50]]))
    asked.out.mkdir(parents=True, exist_ok=True)
    result = {"minutes": asked.minutes, "seed": asked.seed, "kinds": {k: asdict(t) for k, t in fuzzer.tallies.items()}}
    (asked.out / f"fuzz-{asked.seed}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
