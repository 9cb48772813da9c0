"""Data sets: one file, a folder of files or a list of them, as one table.

``read_table`` (``table``) reads at once, with as few requests as possible. ``dataset``
(``dataset``, ``scanner``, ``fragment``) opens files for many scans, and ``find`` (``lookup``)
searches them. Both share ``sources``, ``dataset_file`` and ``scan``, a single pass.
``write_dataset`` (``writing``, ``task_files``) writes folders.
"""
