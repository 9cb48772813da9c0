"""A long random trial of everything that must never happen: ``make soak SECONDS=600``.

A check tries one seeded case at a time: it makes data from the seed (``generators``), does
something with it, and raises if the outcome is wrong (``checks``). The runner tries cases of all
checks in several processes until the time is up, and adds what was tried to ``tried.json``; the
next run continues there. ``docs/reliability.md`` is written from that file. A failure prints one
line that repeats it:

    python -m tests.soak --repeat tampering:1234
"""
