"""Look the pinned packages up among known vulnerabilities: ``python tools/audit.py constraints.txt``.

Runs pip-audit, which asks PyPI and, where that cannot be reached or knows none of the packages, OSV. Where neither
answers it says that nothing was looked up, and passes: a machine without a network must be able to test. A known
vulnerability fails, unless it is accepted below; so do pins that pip-audit cannot read.
"""

import json
import re
import subprocess  # nosec B404
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ACCEPTED: dict[str, str] = {}
"""Ids of vulnerabilities that do not touch this program, and why."""
SECONDS = 180
SERVICES = (("-s", "pypi"), ("-s", "osv"))
UNREACHED = re.compile(
    r"requests\.exceptions|urllib3|ServiceError|Could not connect|network may be blocking|redirecting"
)


def main(pins: Path, services: Sequence[Sequence[str]] = SERVICES) -> int:
    """0 where nothing is known, or nobody could be asked; 1 where a pinned package has a known vulnerability."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip"]
    command += ["--progress-spinner", "off", "--format", "json"]
    reason = ""
    packages: list[dict[str, Any]] = []
    for service in services:
        try:
            # The arguments are this file's own.
            done = subprocess.run(  # nosec B603
                [*command, *service], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            reason = f"no answer within {SECONDS} seconds"
            continue
        try:
            packages = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            reason = (done.stderr.strip().splitlines() or ["no answer"])[-1].strip()[:160]
            if not UNREACHED.search(done.stderr):
                print(f"audit: pip-audit failed: {reason}")
                return 1
            continue
        if any("skip_reason" not in package for package in packages):
            break
    if not packages:
        return _say(f"audit: no service of vulnerabilities could be reached; nothing was looked up ({reason})")
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
