"""Pages in Chromium, without a display. The fixtures are those of ``conftest``."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, of the system or of playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as tools:
        try:
            running = tools.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page from its HTML; what it asks for and complains about is recorded."""
    pages = []

    def opened(html: str, width: int = 1200, colors: str = "light") -> Any:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colors)
        page.complaints, page.requests = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()


def is_in_order(page: Any) -> bool:
    """Nothing is asked for elsewhere, nothing fails, nothing sticks out to the side."""
    return len(page.requests) == 1 and not page.complaints \
        and page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
