"""The recipes of docs/scale.md are ones that can be typed."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from acpl.config import Config
from acpl.data.addresses import is_address, names_shards

PAGE = (Path(__file__).parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|yaml)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OWN = {"out", "resume"}


def commands() -> list[list[str]]:
    """The words behind ``acpl train`` and ``acpl data check`` of every recipe."""
    found = []
    for _, text in BLOCKS:
        joined = re.sub(r"\\\n\s*|\n {14}(?=-)", " ", text)
        for line in joined.splitlines():
            called = re.search(r"\bacpl (?:train|data check) (.*)", line)
            if called and not line.lstrip().startswith("#"):
                found.append(shlex.split(called[1], comments=True))
    return found


def test_there_is_a_recipe_for_each_way() -> None:
    assert len(commands()) >= 8
    for heading in ("One GPU", "One node", "SLURM", "Kubernetes"):
        assert f"\n## {heading}\n" in PAGE
    for anchor in re.findall(r"\]\(#([\w-]+)\)", PAGE):
        headings = {
            re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", PAGE, re.M)
        }
        assert anchor in headings


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_recipe_has_no_option_that_there_is_not(words: list[str]) -> None:
    named = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    assert named
    assert named <= {*Config.model_fields, *OWN}
    if "--data" in words:
        data = words[words.index("--data") + 1]
        assert data.endswith(".csv") or names_shards(data)
    if "--images" in words:
        images = words[words.index("--images") + 1]
        assert images.endswith("/") or names_shards(images) or is_address(images)


def test_the_kubernetes_job_is_of_one_piece() -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "yaml")
    service, job = yaml.safe_load_all(text)
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    pod: dict[str, Any] = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = shlex.split(container["args"][0])
    after = {word: words[place + 1] for place, word in enumerate(words[:-1])}
    assert int(after["--nnodes"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert int(after["--nproc-per-node"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    assert after["--rdzv-endpoint"].startswith(f"{job['metadata']['name']}-0.{pod['subdomain']}:")
    assert service["metadata"]["name"] == pod["subdomain"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert int(after["--batch-size"]) % (int(after["--nnodes"]) * int(after["--nproc-per-node"])) == 0
