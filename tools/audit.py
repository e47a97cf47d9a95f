"""Look the pinned packages up among known vulnerabilities: ``python tools/audit.py constraints.txt``.

Runs pip-audit. Where no service of vulnerabilities can be reached it says how many packages were not looked up, and
passes: a machine without a network must be able to test. A known vulnerability fails, unless it is accepted below.
"""

import json
import subprocess  # nosec B404
import sys
from pathlib import Path
from typing import Any

ACCEPTED: dict[str, str] = {}
"""Ids of vulnerabilities that do not touch this program, and why."""
SECONDS = 180


def main(pins: Path) -> int:
    """0 where nothing is known, or nothing could be asked; 1 where a pinned package has a known vulnerability."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip"]
    command += ["--progress-spinner", "off", "--format", "json"]
    try:
        # The arguments are this file's own.
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)  # nosec B603
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return _say(f"audit: no answer within {SECONDS} seconds; nothing was looked up")
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return _say(f"audit: no service of vulnerabilities could be reached; nothing was looked up ({reason[:160]})")
    return report(packages)


def report(packages: list[dict[str, Any]]) -> int:
    """Print what was found; 1 where it is not accepted."""
    skipped = [package for package in packages if "skip_reason" in package]
    found = [
        (package["name"], package["version"], flaw)
        for package in packages
        for flaw in package.get("vulns", [])
        if not {flaw["id"], *flaw.get("aliases", [])} & set(ACCEPTED)
    ]
    for name, version, flaw in found:
        mended = ", ".join(flaw.get("fix_versions", [])) or "no version yet"
        print(f"audit: {name} {version} has {flaw['id']}, mended in {mended}")
    if len(skipped) == len(packages):
        return _say(
            f"audit: the package index reached from here knows no vulnerabilities: {len(packages)} not looked up"
        )
    rest = f", {len(skipped)} could not be" if skipped else ""
    print(f"audit: {len(packages) - len(skipped)} packages looked up{rest}; {len(found)} vulnerabilities to act on")
    return bool(found)


def _say(line: str) -> int:
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
