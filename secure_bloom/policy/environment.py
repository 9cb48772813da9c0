"""The policy of the environment, for all that is written and read where no other one is passed.

    SECURE_BLOOM_POLICY    path or URI of a policy

It is read anew each time. A file that cannot be read is an error, because nothing would be enforced
without it.
"""

from __future__ import annotations

import os
from dataclasses import replace

from secure_bloom.errors import PolicyError, SecureBloomError
from secure_bloom.policy.policy import NO_POLICY, Policy, as_policy
from secure_bloom.policy.requirement import RequireEncryption, Requirement, encryption_requirement
from secure_bloom.storage.files import FilePath

POLICY = "SECURE_BLOOM_POLICY"


def environment_policy() -> Policy | None:
    """Return the policy that the environment currently names; None if it names none.

    Raises
    ------
    PolicyError
        If it cannot be read, or is not valid.
    """
    path = os.environ.get(POLICY)
    if not path:
        return None
    path = os.path.expanduser(path)
    try:
        return Policy.read(path)
    except PolicyError as error:
        error.message += f" ({POLICY})"
        raise
    except (SecureBloomError, OSError, ValueError) as error:
        reason = getattr(error, "message", None) or getattr(error, "strerror", None) or error
        raise PolicyError(f"the policy cannot be read: {reason} ({POLICY}); correct the variable, "
                          "or unset it", file=path) from error


def given_or_of_environment(policy: Policy | FilePath | None) -> Policy | None:
    """Return the policy that a caller passed, or else that of the environment.

    Raises
    ------
    PolicyError, OSError, TypeError
        As :func:`.as_policy` and :func:`environment_policy`.
    """
    if policy is NO_POLICY:
        return None
    return environment_policy() if policy is None else as_policy(policy)


def reading_requirement(required: RequireEncryption, policy: Policy | FilePath | None = None, *,
                        in_transition: bool = False) -> Requirement | None:
    """Return what a caller's arguments and the environment require of files that are read.

    ``in_transition`` is that of :class:`.Requirement`.

    Parameters and errors are those of :func:`.encryption_requirement`. A policy that is passed
    replaces that of the environment, and so does a :class:`.Requirement`, in which a caller of this
    package has considered it.
    """
    if not (policy is None and isinstance(required, Policy | Requirement)):
        policy = given_or_of_environment(policy)
    found = encryption_requirement(required, policy)
    return found if found is None else replace(found, in_transition=in_transition)
