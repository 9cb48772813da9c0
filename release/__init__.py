"""Checks and builds a release, and publishes nothing: ``make release``.

``docs/releasing.md`` says what each step does, and what to do afterwards.
"""
