"""The project in environments that are made for that: see :mod:`tests.environments.__main__`."""
