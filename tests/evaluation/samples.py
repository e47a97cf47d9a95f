"""Truth and scores that the tests of every figure share."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SHARES = (0.02, 0.3, 0.9)


def multi_label(seed: int, images: int = 200, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Truth and probabilities (images, 3), both kinds of image in each class; few `levels` make many ties."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, len(SHARES))) < SHARES
    truth[0], truth[1] = True, False
    score = 1 / (1 + np.exp(-rng.normal(size=truth.shape) - truth))
    return truth, score if levels is None else np.round(score * levels) / levels


def multi_class(seed: int, images: int = 200, classes: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=images - classes)])
    logits = rng.normal(size=(images, classes)) + np.eye(classes)[labels]
    return labels, np.eye(classes)[labels], np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


tables = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.int64, (n, 2), elements=st.integers(0, 1)),
        hnp.arrays(np.float64, (n, 2), elements=st.integers(-3, 3).map(float)),
        hnp.arrays(np.int64, (n,), elements=st.integers(0, 4)),
    )
)
