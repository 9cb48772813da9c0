"""The BLOOMFILTER index of Lance data sets: building, reading and querying it.

It consists of the same split-block Bloom filters as in Parquet, one for each zone of rows, in a
separate Lance file: ``_indices/<uuid>/bloomfilter.lance``. Requires the extra ``lance`` (pylance).

>>> from secure_bloom.lance import BloomFilterIndex, build_index
>>> build_index("flights.lance", "tail", "bloomfilter.lance")                     # doctest: +SKIP
>>> index = BloomFilterIndex("bloomfilter.lance", pa.string())                    # doctest: +SKIP
>>> index.equals("N14228")                                                        # doctest: +SKIP
[Zone(fragment_id=0, zone_start=0, zone_length=8192, has_null=False)]
"""

from secure_bloom.lance.build import build_index
from secure_bloom.lance.index import BloomFilterIndex, row_ranges
from secure_bloom.lance.layout import Zone

__all__ = ["BloomFilterIndex", "Zone", "build_index", "row_ranges"]
