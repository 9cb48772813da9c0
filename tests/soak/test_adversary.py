"""Each known attack on a table, and the bounds on time and memory."""

import os
import random

import pytest

from tests.soak.checks.adversary import Game, Judge, guard, judge, planting
from tests.soak.checks.adversary.guard import TooSlow, bounded
from tests.soak.checks.adversary.judge import Question, Wrong
from tests.soak.checks.adversary.named import ATTACKS, attack, usual_table
from tests.soak.checks.adversary.player import Player
from tests.tiers import sweep_where

pytestmark = pytest.mark.slow

#: one of each kind; the sweep has all
USUAL = ("an index without encryption", "two files exchanged", "old pages", "many huge manifests")

@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return usual_table(tmp_path_factory.mktemp("adversary") / "lake")


@sweep_where(lambda name: name not in USUAL)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_reader_is_wrong_after(name, table, tmp_path):
    attack(table, name, tmp_path / "outside")


def test_a_wrong_answer_is_noticed_and_told_with_as_few_moves_as_suffice(table, tmp_path,
                                                                         monkeypatch):
    """Readers without a requirement take a planted file for one of the table."""
    monkeypatch.setattr(judge, "requirements", lambda key: {"none": None})
    question = Question("none", ["078-05-00"], [], False)
    planted = next(seed for seed in range(100) if _plants_beside(table, tmp_path, seed))
    moves = [("retime", 1), ("plant_plaintext", planted), ("pad", 2)]
    game = Game(table, Judge(table), moves, question, tmp_path / "outside")
    assert game.shortened().moves == [("plant_plaintext", planted)]
    error = game.shortened().failure()
    assert isinstance(error, Wrong) and "its owner has never written" in str(error)
    assert any("plant_plaintext: " in note for note in error.__notes__)


def _plants_beside(table, folder, seed) -> bool:
    table.restore()
    planting.plant_plaintext(Player(table, Judge(table), folder / "outside",
                                    random.Random(seed)))
    return (table.folder / "x.parquet").exists()


def test_what_takes_too_long_or_too_much_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TooSlow), bounded(tmp_path):
        open(tmp_path / "pipe").close()
    monkeypatch.setattr(guard, "SECONDS", 10)
    monkeypatch.setattr(guard, "MEMORY", 10 << 20)
    with pytest.raises(AssertionError, match="MiB of memory"), bounded(tmp_path):
        bytes(range(256)) * (100 << 12)
