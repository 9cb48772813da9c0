"""The package in bare environments, as users install it, with each extra and each Python.

``make packages`` installs the wheel with the versions of ``constraints.txt``, runs a small program
for each extra, and asks pip for which platforms every dependency has a wheel.
``docs/compatibility.md`` is written from the results.
"""
