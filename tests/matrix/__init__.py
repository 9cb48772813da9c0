"""The versions that are supported: of Python, and of the packages that pyproject.toml allows.

``make matrix`` makes an environment for each cell in ``build/matrix``, with exact versions, and
runs the quick tests there, and some with Spark. ``docs/compatibility.md`` is written from the
results.
"""
