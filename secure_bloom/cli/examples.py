"""Examples in the help of commands. The page "Command line" has them, too, with their output."""

from __future__ import annotations

import click

#: commands, as they are called, and the arguments of their examples
_EXAMPLES = {
    "attach": ["lake --bloom visit"],
    "audit": ["lake"],
    "decrypt": ["old --plaintext --column ssn", "old --plaintext"],
    "demo": ["--html tour.html"],
    "doctor": ["--key pii"],
    "encrypt": ["old --policy policy.toml --dry-run", "old --policy policy.toml"],
    "erase": ["lake --column ssn --values request.txt --dry-run",
              "lake --column ssn --values request.txt --html report.html"],
    "find": ["people.parquet --column ssn --value 078-05-1120 --format csv",
             "people.parquet --column city --value Oslo --value Rome --count"],
    "index build": ["lake --column ssn"],
    "index compact": ["lake"],
    "index find": ["lake --column ssn --value 2025-0078"],
    "index inspect": ["lake"],
    "index update": ["lake"],
    "index vacuum": ["lake --grace 0"],
    "index verify": ["lake --all"],
    "inspect": ["people.parquet --keys reader.json"],
    "keyring add": ["keys.json old"],
    "keyring create": ["keys.json --key footer --key pii"],
    "keyring export": ["keys.json spare --format hex --to spare.hex"],
    "keyring import": ["keys.json pii-2 --format hex --from spare.hex"],
    "keyring list": ["keys.json"],
    "keyring passphrase": ["keys.json"],
    "keyring remove": ["keys.json spare --yes"],
    "keyring rename": ["keys.json old spare"],
    "keyring subset": ["keys.json reader.json footer"],
    "keys list": ["lake"],
    "keys rotate": ["lake --from pii --to pii-2"],
    "lance build": ["numbers.lance numbers.index --column number"],
    "lance inspect": ["numbers.index"],
    "lance probe": ["numbers.index --type int64 --value 7"],
    "policy check": ["policy.toml lake"],
    "policy explain": ["policy.toml people.parquet"],
    "probe": ["people.parquet --column ssn --value 078-05-1120"],
    "reencrypt": ["old", "old --master-key pii=pii-2"],
    "report verify": ["audit.json --key sign.pub"],
    "seal": ["lake --dry-run"],
    "strip": ["lake --column visit"],
    "validate": ["--layer xxh64"],
    "verify": ["people.parquet"],
    "warmup": [""],
    "write": ["people.csv people.parquet --footer-key footer --column-key pii:ssn \\\n"
              "      --bloom ssn,city"],
}


def add_examples(group: click.Group, path: str = "") -> None:
    """Add examples to the help of the commands of a group, and of the groups in it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            add_examples(command, f"{path}{name} ")
            continue
        lines = [f"  secure-bloom {path}{name} {arguments}".rstrip()
                 for arguments in _EXAMPLES[path + name]]
        command.epilog = "\n".join(["\b", "Examples:", *lines])
