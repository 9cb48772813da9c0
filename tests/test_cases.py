"""Cases in one test are all tried, and a failure names the case."""

import pytest

from tests.cases import for_each


@pytest.fixture
def tried():
    return []


@for_each("word", ["a", "b"])
@for_each(("number", "square"), [(1, 1), (2, 4)])
def test_all_are_tried(tried, word, number, square):
    tried.append((word, number, square))
    assert tried == [("a", 1, 1), ("a", 2, 4), ("b", 1, 1), ("b", 2, 4)][:len(tried)]


def test_a_failure_names_its_case_and_ends_the_test():
    tried = []

    @for_each("number", range(5))
    @for_each("word", ["x", "y"])
    def fails(number, word):
        tried.append((number, word))
        if number == 1:
            pytest.fail("wrong")

    with pytest.raises(pytest.fail.Exception) as caught:
        fails()
    assert tried == [(0, "x"), (0, "y"), (1, "x")]
    assert caught.value.__notes__ == ["with {'word': 'x'}", "with {'number': 1}"]


def test_no_case_is_a_mistake():
    with pytest.raises(AssertionError, match="without a case"):
        for_each("number", [])
