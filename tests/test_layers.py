"""Imports go one way: from higher layers to lower ones, and never round in a circle."""

import re
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.layers import DOCUMENT, ROOT, drawn, imports, layers, modules, picture, room_of

MODULES = modules()
ROOMS = layers()
#: modules that only show names of others, imported when they are used
PUBLIC = ("secure_bloom", "secure_bloom.__main__", "secure_bloom.keys")


@pytest.fixture(scope="module")
def imported():
    """What each module imports, with line numbers."""
    return {module: list(imports(module, MODULES)) for module in MODULES if module not in PUBLIC}


def test_every_module_is_in_a_room_and_every_room_has_modules():
    rooms = {module: room_of(module, ROOMS) for module in MODULES if module not in PUBLIC}
    assert [module for module, room in rooms.items() if room is None] == []
    assert ROOMS.keys() - set(rooms.values()) == set()


def test_rooms_import_from_lower_layers_only(imported):
    upwards = [f"{module}, line {line}: {target}"
               for module, targets in imported.items() if (room := room_of(module, ROOMS))
               for target, line in targets
               if (other := room_of(target, ROOMS)) not in (room, None)
               and ROOMS[other] >= ROOMS[room]]
    assert upwards == []


def test_no_modules_know_each_other_in_a_circle(imported):
    """Not even for type checkers."""
    graph = {module: {target for target, _ in targets}.difference(PUBLIC)  # see there
             for module, targets in imported.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_the_picture_is_drawn_from_the_table():
    """``python -m tests.layers`` draws it again."""
    assert drawn() == picture()


def test_what_the_document_says_to_change_exists():
    table = DOCUMENT.read_text().split("## Where to change what")[1].split("\n## ")[0]
    paths = re.findall(r"`([\w./-]+(?:\.\w+|/))`", table)
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()
            and not (ROOT / "secure_bloom" / path).exists()] == []
