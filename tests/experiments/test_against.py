"""How far a table's rows are ahead of themselves in another table."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.experiments.kept_runs import SEEDS, gathered, keep_run, said, stored

from acpl.errors import UserError
from acpl.experiments.reproduce.against import AGAINST_FOR, tables_named, with_others
from acpl.experiments.reproduce.entries import Lead, judge_calibration
from acpl.experiments.reproduce.gathered import Gathered
from acpl.experiments.reproduce.keeping import NOT_RUN
from acpl.experiments.reproduce.scores import ALL_SHARES, CEILING, FLOOR, TOGETHER, calibration_table, methods_table
from acpl.report.paper_tables import against_sheets

ROWS = {FLOOR: ["x"] * SEEDS, "same": ["x"] * SEEDS, "acpl": ["x"] * SEEDS, CEILING: ["z"] * SEEDS}


def leads(here: Gathered, *tables: Path) -> dict[tuple[str, str, str], Lead]:
    made = with_others(methods_table(here, reference=FLOOR), here, tables)
    return {(one.of, one.column, one.measure): one for one in made.against}


def test_each_row_is_compared_with_itself_seed_by_seed(tmp_path: Path) -> None:
    plain, helped = tmp_path / "plain" / "table3", tmp_path / "helped" / "table3"
    before = gathered(plain / "runs", ROWS)
    after = gathered(helped / "runs", ROWS, more=0.3)
    found = leads(after, stored(plain, before))
    assert set(found) == {(row, "20 %", m) for row in (FLOOR, "acpl", CEILING) for m in ("auroc", TOGETHER)}
    for (row, column, measure), one in found.items():
        assert one.over == "plain/table3"
        assert one.difference_low <= one.difference <= one.difference_high
        if measure == TOGETHER:
            assert (one.seeds, one.wider_low) == (1, None)
            continue
        each = [
            np.mean(after.seeds(row, column, measure)[seed].point - before.seeds(row, column, measure)[seed].point)
            for seed in range(SEEDS)
        ]
        assert one.difference == pytest.approx(np.mean(each))
        assert one.difference > 0
        assert one.seeds == SEEDS
        assert one.wider_low is not None


def test_the_other_way_round_it_is_the_same_with_the_other_sign(tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "table3", tmp_path / "two" / "table3"
    a, b = gathered(one / "runs", ROWS), gathered(two / "runs", ROWS, more=0.3)
    there, back = leads(a, stored(two, b)), leads(b, stored(one, a))
    assert there.keys() == back.keys()
    for place, lead in there.items():
        assert lead.difference == pytest.approx(-back[place].difference)
        assert lead.difference_low == pytest.approx(-back[place].difference_high)


def test_of_an_error_ahead_is_how_much_less_there_is(tmp_path: Path) -> None:
    plain, helped = tmp_path / "plain" / "calibration", tmp_path / "helped" / "calibration"
    before = gathered(plain / "runs", ROWS)
    after = replace(gathered(helped / "runs", ROWS, more=0.3), judge=judge_calibration)
    made = with_others(calibration_table(after, reference=FLOOR), after, [stored(plain, before, name="calibration")])
    means = {one.row: one.mean or 0 for one in made.entries}
    was = calibration_table(replace(before, judge=judge_calibration), reference=FLOOR)
    assert {one.of for one in made.against} == {FLOOR, "acpl", CEILING}
    for one in made.against:
        (there,) = (entry.mean or 0 for entry in was.entries if entry.row == one.of)
        assert one.difference == pytest.approx(there - means[one.of])


def test_seeds_that_one_of_the_tables_lacks_are_left_out(tmp_path: Path) -> None:
    before = gathered(tmp_path / "table3" / "runs", ROWS, {"acpl-0.2-1": "RuntimeError: out of luck"})
    after = gathered(tmp_path / "after", ROWS, {"acpl-0.2-0": NOT_RUN}, more=0.3)
    found = leads(after, stored(tmp_path / "table3", before))
    one = found["acpl", "20 %", "auroc"]
    own, other = (side.seeds("acpl", "20 %", "auroc")[2].point for side in (after, before))
    assert (one.seeds, one.wider_low) == (1, None)
    assert one.difference == pytest.approx(np.mean(own - other))
    assert ("acpl", "20 %", TOGETHER) not in found
    assert found[FLOOR, "20 %", "auroc"].seeds == SEEDS


def test_a_run_whose_files_are_gone_counts_as_not_run(tmp_path: Path) -> None:
    before = gathered(tmp_path / "table3" / "runs", ROWS)
    (tmp_path / "table3" / "runs" / "acpl-0.2-2" / "evaluation.json").unlink()
    found = leads(gathered(tmp_path / "after", ROWS, more=0.3), stored(tmp_path / "table3", before))
    assert found["acpl", "20 %", "auroc"].seeds == SEEDS - 1


def test_means_over_other_shares_are_not_compared(tmp_path: Path) -> None:
    shares = (0.05, 0.2)
    table = stored(tmp_path / "table3", gathered(tmp_path / "table3" / "runs", ROWS, fractions=shares))
    alike = leads(gathered(tmp_path / "alike", ROWS, more=0.3, fractions=shares), table)
    assert {column for row, column, measure in alike if measure == "auroc"} == {"5 %", "20 %", ALL_SHARES}
    fewer = leads(gathered(tmp_path / "fewer", ROWS, more=0.3, fractions=(0.2, 0.1)), table)
    assert {column for row, column, measure in fewer if measure == "auroc"} == {"20 %"}


def test_together_they_are_compared_where_they_are_as_many(tmp_path: Path) -> None:
    table = stored(tmp_path / "table3", gathered(tmp_path / "table3" / "runs", ROWS), seeds=SEEDS + 2)
    found = leads(gathered(tmp_path / "after", ROWS, more=0.3), table)
    assert {measure for _, _, measure in found} == {"auroc"}


def test_with_the_same_runs_there_is_nothing_to_compare_and_the_table_says_so(tmp_path: Path) -> None:
    runs = gathered(tmp_path / "plain" / "table3" / "runs", ROWS)
    table = stored(tmp_path / "plain" / "table3", runs)
    made = with_others(methods_table(runs, reference=FLOOR), runs, [table])
    assert made.against == []
    assert made.notes[-1] == "Against plain/table3: no row has other runs there."


def test_runs_that_were_judged_on_other_images_are_refused(tmp_path: Path) -> None:
    table = stored(tmp_path / "table3", gathered(tmp_path / "table3" / "runs", {FLOOR: ["x"]}))
    here = gathered(tmp_path / "here", {FLOOR: ["x"]})
    run = here.folder(here.planned[0])
    shutil.rmtree(run)
    keep_run(run, said(0, 0.2), "x", np.arange(50))
    with pytest.raises(UserError, match="was not judged on the same images"):
        leads(here, table)


def test_a_sheet_for_each_other_table_with_a_line_a_row() -> None:
    one = {"column": "20 %", "measure": "auroc", "difference": 0.01, "difference_low": 0.002, "difference_high": 0.02}
    one |= {"wider_low": None, "wider_high": None, "seeds": 1}
    made = against_sheets([{"of": row, "over": over, **one} for over in ("a/table3", "b/table3") for row in "xy"])
    assert [sheet.title for sheet in made] == [
        "how far each is ahead of itself in a/table3 [95 % interval]",
        "how far each is ahead of itself in b/table3 [95 % interval]",
    ]
    assert made[0].rows == [["x", "+1.00 [+0.20, +2.00] above"], ["y", "+1.00 [+0.20, +2.00] above"]]


def test_a_table_is_found_in_its_folder_or_below_it(tmp_path: Path) -> None:
    table = tmp_path / "out" / "table3"
    table.mkdir(parents=True)
    (table / "made.json").write_text(json.dumps({"name": "table3", "data_digest": "abc"}))
    assert tables_named([tmp_path / "out", str(table)], "table3", "abc") == [table, table]
    assert tables_named([], "table2", "abc") == []


@pytest.mark.parametrize(
    ("name", "made", "words"),
    [
        ("table3", None, "has no table3; against takes folders that `acpl reproduce table3 --out` wrote"),
        ("table1", {"name": "table3"}, "has no table1"),
        ("table3", {"name": "table3", "data_digest": "def", "data": "ham/labels.csv"}, "other data, ham/labels.csv"),
        ("table3", [1], "made.json should say what the table beside it was made of"),
        ("table3", "no JSON", "made.json should say what the table beside it was made of"),
        ("figure-size", {"name": "figure-size"}, "against is for table1, table3"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, name: str, made: object, words: str) -> None:
    if made is not None:
        (tmp_path / "made.json").write_text(made if isinstance(made, str) else json.dumps(made))
    with pytest.raises(UserError, match=words.split(",")[0]) as refused:
        tables_named([tmp_path], name, "abc")
    assert words in str(refused.value)


def test_every_name_that_takes_it_is_a_table() -> None:
    from acpl.experiments.reproduce.studies import STUDIES

    assert set(AGAINST_FOR) <= set(STUDIES)
