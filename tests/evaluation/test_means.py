import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from acpl.evaluation import class_mean, defined_mean


def test_class_mean_names_what_it_leaves_out():
    assert class_mean([0.25, np.nan, 0.75], ["a", "b", "c"]) == (0.5, ("b",))
    mean, left_out = class_mean([np.nan, np.nan], ["a", "b"])
    assert np.isnan(mean)
    assert left_out == ("a", "b")


@given(hnp.arrays(np.float64, (3, 4), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, np.nan])))
def test_defined_mean_is_numpys_nanmean(values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.nanmean(values, axis=1)
    np.testing.assert_allclose(defined_mean(values), expected)
