"""How Sphinx builds the site: ``make docs``.

The source folder is that of the repository, so that a link from one page to another is the same on
a code host and on the site.
"""

import re
from pathlib import Path

from secure_bloom import __version__

project = "secure_bloom"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click",
              "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "*.md", "vectors/README.md"]
exclude_patterns = [".*", "**/.*", "build", "dist", "demo-output", "benchmarks", "build_kernels",
                    "keys", "secure_bloom", "tests", "vectors/*/**", "**/node_modules"]
nitpicky = True  # a reference to a name that has no entry is a warning, and so an error
nitpick_ignore_regex = [(r"py:.*", r"(?!secure_bloom\.).*")]

suppress_warnings = ["misc.highlighting_failure"]  # of the policies of a KMS

myst_heading_anchors = 4

html_theme = "furo"
html_title = f"secure_bloom {version}"
html_extra_path = ["_site"]  # index.html, which leads to the start page
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
smartquotes_action = "De"  # quotation marks stay as they are
pygments_style, pygments_dark_style = "default", "github-dark"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say the types, in words that fit the reader
napoleon_use_rtype = False
napoleon_use_ivar = True


def page_titles():
    """Map the titles of pages, up to a colon, to their names."""
    texts = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.md")}
    return {re.match(r"# ([^:\n]*)", text)[1].replace("`", ""): name
            for name, text in texts.items()}


def link_pages(app, what, name, obj, options, lines):
    """Make links of the pages that docstrings name by their title: the page "Row filters"."""
    text = re.sub(r'the page "([^"]+)"',
                  lambda page: f":doc:`{' '.join(page[1].split())} "
                               f"</docs/{TITLES[' '.join(page[1].split())]}>`", "\n".join(lines))
    lines[:] = text.split("\n")


TITLES = page_titles()


def split_attributes(app, what, name, obj, options, lines):
    """Give each of the attributes ``a, b : int`` an entry of its own."""
    text = re.sub(r"^:(ivar|vartype) ([\w, ]+):((?:.*\n(?!:|\n|\Z))*.*)",
                  lambda field: "\n".join(f":{field[1]} {one}:{field[3]}"
                                          for one in field[2].split(", ")),
                  "\n".join(lines), flags=re.MULTILINE)
    lines[:] = text.split("\n")


def shorten_signature(app, what, name, obj, options, signature, returns):
    """Show no signature of a class that callers only get, such as a result."""
    is_a_class = what in ("class", "exception")
    if is_a_class and signature and "Parameters\n" not in (obj.__doc__ or ""):
        return "", None
    return (signature or "").replace("<factory>", "...") or None, returns


def mark_options(app, context, lines):
    """Show ``--option`` in the help of a command as code."""
    for number, line in enumerate(lines):
        if not line.startswith(".. "):
            lines[number] = re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"``\g<0>``", line)


def break_long_names(app, pagename, templatename, context, doctree):
    """Let a browser break names such as ``parquet.encryption.footer.key`` after a part."""
    context["body"] = re.sub(
        r'(?<=<span class="pre">)[^<]{16,}(?=</span>)',
        lambda name: re.sub(r"([._/#])(?=\w)", r"\1<wbr>", name[0]), context.get("body", ""))


def leave_out_of_the_sidebar(app, doctree):
    """Let pages be in no table of contents: the reports to other projects, which pages link to."""
    if app.env.docname.startswith("docs/peers/"):
        app.env.metadata[app.env.docname]["orphan"] = True


def setup(app):
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("autodoc-process-docstring", split_attributes, priority=600)  # after napoleon
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("sphinx-click-process-description", mark_options)
    app.connect("sphinx-click-process-options", mark_options)
    app.connect("html-page-context", break_long_names)
    app.connect("doctree-read", leave_out_of_the_sidebar)
