"""JSON that is nested deeply is refused before the parser sees it."""

import gc
import json

import pytest

from secure_bloom.json_text import MAX_DEPTH, decode_json

DEEP = [one * (MAX_DEPTH + 1) for one in ("[", '{"a":', '[{"a":', '[1,')]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
@pytest.mark.parametrize("front", ["", '["\\"", "\\\\", "]}", ', '"[', '{"a": {}, "b": '])
def test_deep_json_is_refused(text, front):
    with pytest.raises(ValueError):
        decode_json(front + text)
    with pytest.raises(ValueError):
        decode_json((front + text).encode())


@pytest.mark.parametrize("value", [
    [[]] * 10_000, {"a": "[{" * 10_000}, ["\\" * 999 + '"' + "[" * 999] * 3, "\ud800" + "[" * 999])
def test_long_json_and_brackets_in_strings_are_not_deep(value):
    assert decode_json(json.dumps(value)) == decode_json(json.dumps(value).encode()) == value
    assert decode_json(json.dumps(value, ensure_ascii=False)) == value


def test_a_string_without_an_end_takes_linear_time():
    with pytest.raises(ValueError):
        decode_json("[" * 300 + '"' + '\\"' * 500_000)


def test_no_finalizer_meets_the_limit_of_recursion():
    """Python prints an error for each finalizer that cannot run."""
    failed = []

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):
            try:
                (lambda: [len(one) for one in "a"])()
            except RecursionError as error:
                failed.append(error)

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for depth in range(MAX_DEPTH - 50, 1200):
            Garbage()
            with pytest.raises(ValueError):
                decode_json("[" * depth + " ")
    finally:
        gc.set_threshold(*before)
    assert not failed
