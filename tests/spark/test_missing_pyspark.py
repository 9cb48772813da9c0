from tests.support import run_python


def test_without_pyspark_the_extra_is_named():
    # in its own interpreter: modules that are imported twice have two classes of one name
    printed = run_python("import sys; sys.modules['pyspark'] = None\n"
                         "import secure_bloom.spark\n"
                         "from secure_bloom.errors import MissingExtraError\n"
                         "try: secure_bloom.spark.register(None)\n"
                         "except MissingExtraError as error: print(error)")
    assert "pip install 'pyspark>=" in printed
