// What reading whole files shares with the small operations on filters.
#pragma once

#include <parquet/bloom_filter.h>

#include "vector_protocol.h"

uint64_t HashPlain(const parquet::BloomFilter& filter, const string& physical_type,
                   const string& plain, int64_t type_length);
string BitsetOf(const parquet::BloomFilter& filter);
