"""The tests that run with every object store."""

TESTS = ("tests/storage/test_commit.py", "tests/storage/test_commit_races.py",
         "tests/storage/test_replacing.py", "tests/erasing/test_stores.py")
