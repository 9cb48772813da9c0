"""A clock that tests of keys put in the place of the module ``time``."""


class Clock:
    """Seconds that have passed."""

    now = 1000.0

    def monotonic(self):
        return self.now
