"""A stage as the published code goes about it, written from its description; nothing of that code is here.

Features are normalised and put into a flat index of Faiss, once for each direction; scikit-learn fits the mixture;
and purification is a loop in Python over the selected samples, their anchors and those anchors' lists.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture
from torch import Tensor

try:
    import faiss
except ImportError:  # not a dependency: the stand-in below does the same work
    faiss = None


def index_name(device: str) -> str:
    """What stands for the flat index here."""
    if faiss is not None and device == "cpu":
        return f"Faiss {faiss.__version__}, flat"
    return "a float32 product and top-k, each way, in place of Faiss"


def search(queries: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k rows of largest scalar product with each query, by a flat index."""
    if faiss is not None and not queries.is_cuda:
        faiss.omp_set_num_threads(torch.get_num_threads())
        index = faiss.IndexFlatIP(rows.shape[1])
        index.add(rows.numpy())
        similarity, found = index.search(queries.numpy(), k)
        return torch.from_numpy(similarity), torch.from_numpy(found)
    step = max(1, 2**26 // len(rows))
    parts = [(part @ rows.T).topk(k, dim=1) for part in torch.split(queries, step)]
    return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])


def neighbours(queries: Tensor, anchors: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Similarities and nearest anchors of the queries, nearest queries of the anchors."""
    queries, anchors = (torch.nn.functional.normalize(rows) for rows in (queries, anchors))
    similarity, forward = search(queries, anchors, k)
    return similarity, forward, search(anchors, queries, k)[1]


def mixture(similarity: Tensor) -> NDArray[np.int64]:
    """The component of each sample's density, scaled to [0, 1]."""
    density = similarity.mean(dim=1).cpu().numpy()
    density = (density - density.min()) / (density.max() - density.min())
    fitted = GaussianMixture(3, max_iter=20, tol=1e-2, reg_covar=5e-7, random_state=1).fit(density[:, None])
    component: NDArray[np.int64] = fitted.predict_proba(density[:, None]).argmax(axis=1)
    return component


def purification(forward: Tensor, backward: Tensor, selected: Tensor) -> list[int]:
    """How many of each selected sample's anchors have it in their lists."""
    near, lists, counts = forward.cpu().numpy(), backward.cpu().numpy(), []
    for sample in selected.tolist():
        count = 0
        for anchor in near[sample]:
            if sample in lists[anchor]:
                count += 1
        counts.append(count)
    return counts
