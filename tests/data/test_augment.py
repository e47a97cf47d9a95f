"""Augmentation against the plainest way to do the same."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from acpl.data.augment import Augmentation, Part, View, augment, augment_as, distort, neighbours, normalise, patched


def picture(count: int = 4) -> torch.Tensor:
    return torch.rand(count, 2, 16, 16, generator=torch.Generator().manual_seed(0))


def test_a_crop_of_everything_is_the_image_itself() -> None:
    whole = Augmentation(crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=False)
    images = picture()
    assert torch.allclose(augment(images, whole, torch.Generator().manual_seed(1)), images, atol=1e-5)


def test_every_image_is_itself_or_its_mirror_and_both_occur() -> None:
    flips = Augmentation(crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=True)
    images = picture(64)
    out = augment(images, flips, torch.Generator().manual_seed(1))
    same = torch.isclose(out, images, atol=1e-5).flatten(1).all(dim=1)
    mirrored = torch.isclose(out, images.flip(3), atol=1e-5).flatten(1).all(dim=1)
    assert (same ^ mirrored).all()
    assert 16 < int(same.sum()) < 48


def test_turned_and_flipped_every_image_is_one_of_its_eight_faces_and_all_occur() -> None:
    how = Augmentation(crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=True, turns=True)
    images = picture(128)
    out = augment(images, how, torch.Generator().manual_seed(1))
    faces = [torch.rot90(face, quarter, (2, 3)) for face in (images, images.flip(3)) for quarter in range(4)]
    same = torch.stack([torch.isclose(out, face, atol=1e-5).flatten(1).all(dim=1) for face in faces])
    assert (same.sum(dim=0) == 1).all()
    assert (same.sum(dim=1) > 4).all()


def test_colours_change_by_at_most_their_share_and_each_image_differently() -> None:
    images = picture(64) - 0.5
    plain = Augmentation(crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=False)
    out = augment(images, replace(plain, colours=0.3), torch.Generator().manual_seed(1))
    moved = (out - images).mean(dim=(1, 2, 3))
    assert moved.abs().max() <= 0.3 + 1e-5
    assert moved.std() > 0.1
    spread = out.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))
    assert 0.45 < spread.min() < 0.9
    assert 1.1 < spread.max() < 1.7


def test_what_is_not_asked_for_draws_nothing() -> None:
    """Runs of old configurations keep their bits."""
    images = picture()
    plain, more = Augmentation(), Augmentation(turns=True, colours=0.2)
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    augment(images, plain, first)
    augment(images, more, second)
    assert not torch.equal(first.get_state(), second.get_state())
    assert torch.equal(first.get_state(), _after_five(len(images)))


def _after_five(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    torch.rand(5, count, generator=generator)
    return generator.get_state()


def test_crops_stay_inside_the_image() -> None:
    """A horizontal and a vertical ramp show where each output pixel was taken from."""
    ramp = torch.linspace(-1, 1, 64)
    images = torch.stack([ramp.expand(64, 64), ramp[:, None].expand(64, 64)]).expand(200, 2, 64, 64)
    how = Augmentation(crop=(0.25, 0.5), ratio=(0.75, 1.33), flip=False)
    out = augment(images, how, torch.Generator().manual_seed(2))
    width = (out[:, 0, 0, -1] - out[:, 0, 0, 0]) / 2
    height = (out[:, 1, -1, 0] - out[:, 1, 0, 0]) / 2
    area = width * height
    assert area.min() > 0.2
    assert area.max() < 0.52
    assert (out.abs() <= 1).all()
    assert out[:, 0, 0, 0].std() > 0.1


def test_smaller_crops_show_what_larger_ones_do() -> None:
    """The same draws, so the same crops, at half the pixels: a ramp's values differ by half a pixel at most."""
    ramp = torch.linspace(-1, 1, 64)
    images = torch.stack([ramp.expand(64, 64), ramp[:, None].expand(64, 64)]).expand(20, 2, 64, 64)
    large, small = (
        augment(images, Augmentation(turns=True, size=size), torch.Generator().manual_seed(2)) for size in (None, 32)
    )
    assert small.shape == (20, 2, 32, 32)
    assert torch.allclose(small, F.avg_pool2d(large, 2), atol=0.02)


def test_the_generator_alone_decides() -> None:
    images = picture()
    one, two = (augment(images, Augmentation(), torch.Generator().manual_seed(s)) for s in (1, 1))
    other = augment(images, Augmentation(), torch.Generator().manual_seed(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("channels", [1, 3])
def test_normalising_is_the_textbook_formula(channels: int) -> None:
    pixels = torch.randint(0, 256, (2, channels, 4, 4), dtype=torch.uint8)
    mean, std = torch.rand(channels), torch.rand(channels) + 0.1
    expected = (pixels / 255 - mean[:, None, None]) / std[:, None, None]
    assert torch.allclose(normalise(pixels, mean, std), expected, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_strong_views_are_distorted_each_differently_and_keep_their_shape(channels: int) -> None:
    images = torch.randn(1, channels, 32, 32).expand(16, -1, -1, -1).contiguous()
    generator = torch.Generator().manual_seed(0)
    strong = augment_as("strong", images, Augmentation(), generator)
    assert strong.shape == images.shape
    assert torch.isfinite(strong).all()
    apart = torch.cdist(strong.flatten(1), strong.flatten(1)) + 1e9 * torch.eye(16)
    assert apart.min() > 1
    again = augment_as("strong", images, Augmentation(), torch.Generator().manual_seed(0))
    assert torch.equal(strong, again)


def test_without_distortions_only_a_hole_is_cut() -> None:
    images = torch.randn(64, 2, 32, 32)
    out = distort(images, torch.Generator().manual_seed(0), operations=0)
    changed = ((out - images).abs() > 1e-4).any(dim=1)
    share = changed.float().mean(dim=(1, 2))
    assert share.max() <= 0.27
    assert share.mean() > 0.02
    mean = images.mean(dim=(2, 3))
    for image, hole in zip(range(64), changed, strict=True):
        for channel in range(2):
            filled = out[image, channel][hole]
            assert torch.allclose(filled, mean[image, channel].expand_as(filled), atol=1e-4)


def test_as_many_distortions_as_asked_for_touch_an_image() -> None:
    flat = torch.zeros(400, 1, 16, 16)
    out = distort(flat, torch.Generator().manual_seed(0), operations=1)
    # Of the eight only brightness changes an image without any structure.
    brighter = (out.abs().amax(dim=(1, 2, 3)) > 1e-6).float().mean()
    assert 0.06 < brighter < 0.2


@pytest.mark.parametrize("view", ["weak", "strong"])
@pytest.mark.parametrize("parts", [2, 3])
def test_an_image_is_augmented_in_the_same_way_in_whatever_part_of_the_batch(view: View, parts: int) -> None:
    images, how = picture(6), Augmentation(turns=True, colours=0.2)
    whole = augment_as(view, images, how, torch.Generator().manual_seed(3))
    generators = [torch.Generator().manual_seed(3) for _ in range(parts)]
    pieces = [
        augment_as(view, piece, how, generator, Part(number, parts))
        for number, (piece, generator) in enumerate(zip(images.chunk(parts), generators, strict=True))
    ]
    assert torch.allclose(torch.cat(pieces), whole, atol=1e-6)
    states = [generator.get_state() for generator in generators]
    assert all(torch.equal(state, states[0]) for state in states), "what is drawn next is the same on all, too"


def test_patches_are_a_neighbour_s_pixels_in_one_rectangle_and_as_much_as_is_said() -> None:
    images = picture(400)
    (out,), own = patched([images], 1.0, torch.Generator().manual_seed(4))
    pasted = (out != images).any(dim=1)
    for image in range(400):
        partner = image + 1 if image % 2 == 0 else image - 1
        rows, columns = pasted[image].any(dim=1), pasted[image].any(dim=0)
        assert torch.equal(pasted[image], rows[:, None] & columns[None])
        assert int(rows.int().diff().abs().sum()) <= 2, "one stretch of rows"
        assert torch.equal(out[image][:, pasted[image]], images[partner][:, pasted[image]])
        assert own[image] == pytest.approx(1 - pasted[image].float().mean())
    # Half of the image before it is cut off at the edge; about a quarter less after.
    assert 0.55 < own.mean() < 0.75
    assert own.min() < 0.2
    assert own.max() > 0.9


def test_as_many_images_get_a_patch_as_are_asked_for() -> None:
    images = torch.rand(1000, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    for share, least, most in ((0.0, 0, 0), (0.3, 250, 350), (1.0, 980, 1000)):
        (out,), own = patched([images], share, torch.Generator().manual_seed(4))
        changed = (out != images).flatten(1).any(dim=1)
        assert least <= int(changed.sum()) <= most
        assert torch.equal(changed, own < 1)


def test_all_views_of_an_image_get_the_same_patch() -> None:
    one = picture(8)
    views, own = patched([one, one + 10], 1.0, torch.Generator().manual_seed(4))
    assert torch.equal(views[0] + 10, views[1])
    assert (own < 1).any()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_neighbours_are_pairs_and_a_last_one_alone_is_its_own(count: int) -> None:
    images = picture(count)
    partner = neighbours(count, images.device)
    assert torch.equal(partner[partner], torch.arange(count))
    assert int((partner == torch.arange(count)).sum()) == count % 2
    (out,), _ = patched([images], 1.0, torch.Generator().manual_seed(4))
    if count % 2:
        assert torch.equal(out[-1], images[-1])


def test_parts_of_even_size_are_patched_as_the_whole_batch_is() -> None:
    images = picture(12)
    (whole,), own = patched([images], 0.8, torch.Generator().manual_seed(3))
    pieces, shares = [], []
    for number, piece in enumerate(images.chunk(3)):
        (out,), share = patched([piece], 0.8, torch.Generator().manual_seed(3), Part(number, 3))
        pieces.append(out)
        shares.append(share)
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(torch.cat(shares), own)
