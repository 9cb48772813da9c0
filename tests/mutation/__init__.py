"""Mutation testing: small faults are put into the core, and the tests have to notice them.

``make mutation SECONDS=600`` tries mutants in an order that its seed determines, and continues
where the last run ended. Each mutant runs in a copy of the source tree, with only those tests that
execute its line, as ``make coverage`` has recorded.
"""
