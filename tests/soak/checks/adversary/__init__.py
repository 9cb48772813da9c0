"""A user who can write to a table, but has no key of its columns, makes no reader wrong."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from secure_bloom.errors import SecureBloomError
from tests.reading.ways import by_pages, with_ranges
from tests.soak.check import Case, Check, in_memory
from tests.soak.checks.adversary import moves, planting, splicing
from tests.soak.checks.adversary.guard import TooSlow, bounded
from tests.soak.checks.adversary.judge import Judge, Question
from tests.soak.checks.adversary.player import Player
from tests.soak.checks.adversary.table import PERSONS, STRANGER, Table

_GAMES = 30  # with one table
_MOST_MOVES = 8

MOVES: dict[str, Callable[[Player], str]] = {
    function.__name__: function for function in (
        moves.delete, moves.rename, moves.exchange, moves.replace, moves.roll_back,
        moves.roll_index_back, moves.roll_all_back, moves.renumber_manifest, moves.truncate,
        moves.pad, moves.flip, moves.retime, moves.hard_link, moves.symbolic_link,
        splicing.splice, splicing.move_modules, splicing.splice_footer,
        planting.plant_plaintext, planting.plant_under_other_key, planting.plant_own_footer,
        planting.plant_index, planting.plant_bomb, planting.plant_garbage, planting.plant_sparse,
        planting.plant_fifo, planting.plant_kind, planting.plant_folder, planting.plant_marker)}

_OFTEN = {"exchange": 3, "replace": 3, "roll_back": 4, "splice": 5, "plant_index": 5,
          "plant_bomb": 0.2, "plant_sparse": 0.5}
_WEIGHTS = [_OFTEN.get(name, 1) for name in MOVES]

#: a kind of move, and the seed of its choices
Move = tuple[str, int]


@dataclass
class Game:
    """Some moves, and a question after them."""

    table: Table
    judge: Judge
    moves: list[Move]
    question: Question
    outside: Path

    def failure(self) -> BaseException | None:
        """Play it on the table as its owner left it; return what a reader does wrong, if any."""
        self.table.restore()
        if self.question.is_warm:
            self.judge.warm_up()
        done = list(map(self._move, self.moves))
        try:
            with bounded(self.table.folder):
                self.judge.judge(self.question)
        except (Exception, TooSlow) as error:
            error.add_note("\n".join(["after", *self.table.history, "and the moves", *done,
                                      str(self.question)]))
            return error
        return None

    def _move(self, move: Move) -> str:
        """Make a move; return what was done."""
        name, seed = move
        try:
            return f"{name}: " + MOVES[name](
                Player(self.table, self.judge, self.outside, random.Random(seed)))
        except (OSError, SecureBloomError, IndexError, ValueError) as error:
            return f"{name} is not possible: {error}"  # after the moves before it

    def shortened(self) -> Game:
        """Return a game that fails, too, with as few of the moves as suffice."""
        shorter = self
        for move in self.moves:
            without = replace(shorter, moves=[one for one in shorter.moves if one != move])
            if without.failure() is not None:
                shorter = without
        return shorter


def _try(case: Case) -> None:
    """Play some games with one table."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(in_memory(case))
        if case.random.random() < 0.5:  # indexes say where rows are, and only those are read
            stack.enter_context(with_ranges())
            stack.enter_context(by_pages())
        table = Table.write(folder / "lake", case.random)
        judge = Judge(table, counts=case.counts)
        for number in range(_GAMES):
            game = _random_game(case, table, judge, folder / "outside")
            error = game.failure()
            if error is not None:
                error = game.shortened().failure() or error
                error.add_note(f"in game {number}")
                raise error
            case.tried += 1


def _random_game(case: Case, table: Table, judge: Judge, outside: Path) -> Game:
    names = case.random.choices(list(MOVES), _WEIGHTS,
                                k=case.random.choice([1, 1, 2, 2, 3, 4, 6, _MOST_MOVES]))
    return Game(table, judge, [(name, case.random.getrandbits(32)) for name in names],
                Question.random(table, case.random, [*PERSONS, STRANGER]), outside)


CHECK = Check("adversary", "a user who can write to a table, but has no key of its columns, cannot "
              "make readers return wrong rows", "games", 10**5, _try)
