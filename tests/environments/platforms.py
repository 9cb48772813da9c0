"""For which platforms pip finds a wheel of a package."""

from __future__ import annotations

import subprocess
import sys

#: name -> the tags that pip is given; glibc 2.28 is that of RHEL 8 and newer than all before it
PLATFORMS = {
    "Linux, x86-64": ["manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64"],
    "Linux, aarch64": ["manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64"],
    "macOS 14, arm64": ["macosx_14_0_arm64"],
    "macOS 14, x86-64": ["macosx_14_0_x86_64"],
}


def without_wheel(requirements: list[str], platform: str, python: str) -> list[str]:
    """Return the requirements, such as ``numpy==2.0.0``, that would be built from source."""
    if not requirements or _has_wheels(requirements, platform, python):
        return []
    if len(requirements) == 1:
        return requirements
    half = len(requirements) // 2
    return [*without_wheel(requirements[:half], platform, python),
            *without_wheel(requirements[half:], platform, python)]


def _has_wheels(requirements: list[str], platform: str, python: str) -> bool:
    tags = [word for tag in PLATFORMS[platform] for word in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "--quiet", "install", "--dry-run", "--no-deps",
               "--ignore-installed", "--target", "unused", "--only-binary", ":all:",
               "--python-version", python, *tags, *requirements]
    return subprocess.run(command, capture_output=True).returncode == 0
