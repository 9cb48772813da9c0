"""Test vectors for Bloom filters in Parquet files: load them, run them, compare answers.

``vectors/README.md`` describes the vectors and the protocol for other implementations.
"""

from secure_bloom.validator.cases import LAYERS, Case, load_cases
from secure_bloom.validator.external import TIMEOUT, ExternalProgram
from secure_bloom.validator.ours import SecureBloom
from secure_bloom.validator.run import FAILED, CaseResult, run_cases

__all__ = ["FAILED", "LAYERS", "TIMEOUT", "Case", "CaseResult", "ExternalProgram", "SecureBloom",
           "load_cases", "run_cases"]
