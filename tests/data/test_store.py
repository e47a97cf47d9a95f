"""Images by id."""

import pytest
import torch

from acpl.data.store import ImageStore


def test_an_image_is_found_by_its_id_whatever_its_place() -> None:
    ids = torch.tensor([10, 3, 7])
    store = ImageStore(ids, ids.view(3, 1, 1, 1).expand(3, 1, 2, 2).to(torch.uint8))
    assert store.gather(torch.tensor([7, 10, 7]))[:, 0, 0, 0].tolist() == [7, 10, 7]


@pytest.mark.parametrize("missing", [0, 8, 99])
def test_what_was_not_loaded_cannot_be_read(missing: int) -> None:
    store = ImageStore(torch.tensor([10, 3]), torch.zeros(2, 1, 2, 2, dtype=torch.uint8))
    with pytest.raises(KeyError, match="not in this store"):
        store.gather(torch.tensor([3, missing]))


def test_images_must_be_bytes_one_for_each_id() -> None:
    with pytest.raises(ValueError, match="uint8"):
        ImageStore(torch.tensor([1]), torch.zeros(1, 1, 2, 2))
    with pytest.raises(ValueError, match="uint8"):
        ImageStore(torch.tensor([1]), torch.zeros(2, 1, 2, 2, dtype=torch.uint8))


def test_statistics_are_of_pixels_between_0_and_1() -> None:
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    mean, std = ImageStore(torch.arange(50), images).statistics()
    pixels = (images / 255).transpose(0, 1).flatten(1)
    assert torch.allclose(torch.tensor(mean), pixels.mean(dim=1), atol=1e-5)
    assert torch.allclose(torch.tensor(std), pixels.std(dim=1), atol=1e-4)
