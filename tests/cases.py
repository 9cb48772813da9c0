"""Many cases in one test: to set up and report a thousand tests takes longer than to run them."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tests.tiers import few_cases


def for_each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable], Callable]:
    """Run a test with each case, as ``pytest.mark.parametrize`` does, but as one test.

    A failure names its case, and the cases behind it are not tried. ``make check`` tries some of
    many cases. Fixtures are the same for all of them: a case must not see in ``tmp_path`` what
    another one has left there.
    """
    cases = list(cases)
    assert cases, "a test without a case shows nothing"
    several = isinstance(names, tuple)

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for case in few_cases(cases, test.__qualname__):
                given = dict(zip(names, case, strict=True)) if several else {names: case}
                try:
                    test(**fixtures, **given)
                except BaseException as error:
                    error.add_note(f"with {given!r:.1000}")
                    raise

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(parameters=[  # type: ignore[attr-defined]
            parameter for name, parameter in signature.parameters.items()
            if name not in (names if several else (names,))])
        return run

    return decorate
