"""The command ``write``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import (
    check_not_given,
    echo,
    json_option,
    kms_options,
    names,
    policy_option,
    print_json,
    progress,
    refuse_given,
    requirement_option,
    warnings_shown,
)

if TYPE_CHECKING:
    from secure_bloom.encryption import EncryptionConfiguration
    from secure_bloom.encryption_requirement import RequireEncryption
    from secure_bloom.keys.kms import KmsClient

_COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4", "lz4_raw")


def _delimiter(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
    from secure_bloom.cli.csv_file import check_delimiter
    delimiter = "\t" if text == r"\t" else text
    try:
        check_delimiter(delimiter)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return delimiter


def _column_keys(options: tuple[str, ...]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for option in options:
        name, colon, columns = option.rpartition(":")
        if not (name and colon and names(columns)):
            raise click.BadParameter("expected NAME:column,column", param_hint="--column-key")
        keys.setdefault(name, []).extend(names(columns))
    return keys


@click.command(short_help="Write a Parquet file from Parquet or CSV.")
@click.argument("source", metavar="IN", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False))
@kms_options
@requirement_option
@policy_option("It makes the encryption and filters of OUT; other options may add to it.")
@click.option("--footer-key", metavar="NAME", help="Master key of the footer.")
@click.option("--column-key", "column_keys", metavar="NAME:col,col", multiple=True,
              help="Master key of sensitive columns; may be repeated.")
@click.option("--plaintext-footer", is_flag=True, help="Keep the footer readable, but signed.")
@click.option("--bloom", metavar="col,col",
              help="Dotted paths of the leaf columns that get Bloom filters.")
@click.option("--fpp", type=float, default=0.01, show_default=True,
              help="False-positive probability of the filters.")
@click.option("--row-group-size", type=click.IntRange(min=1), metavar="ROWS",
              help="Rows per row group. Default: 1,048,576, or as in a Parquet input.")
@click.option("--compression", default="snappy", show_default=True,
              type=click.Choice(_COMPRESSIONS, case_sensitive=False),
              help="Compression of the pages.")
@click.option("--delimiter", default=",", show_default=True, metavar="CHARACTER",
              callback=_delimiter, help=r"Delimiter between the values of a CSV file; \t is a tab.")
@click.option("--text", metavar="col,col", help="CSV columns to keep as text, such as codes that "
                                                "only happen to have no leading zeros.")
@click.option("--plaintext", is_flag=True, help="Write OUT without encryption.")
@click.option("--overwrite", is_flag=True, help="Replace an existing OUT once everything is "
                                                "written.")
@json_option
@click.pass_context
def write(ctx: click.Context, source: str, target: str, kms: KmsClient | None,
          require_encryption: RequireEncryption, policy: str | None, footer_key: str | None,
          column_keys: tuple[str, ...], plaintext_footer: bool, bloom: str | None, fpp: float,
          row_group_size: int | None, compression: str, delimiter: str, text: str | None,
          plaintext: bool, overwrite: bool, as_json: bool) -> None:
    """Write a Parquet file with Bloom filters from a Parquet or CSV file.

    Filters of columns with a key are encrypted, all others are not. With --footer-key alone, the
    whole file is encrypted with that key. With --policy alone, the policy decides. OUT is not
    written if it would not meet the policy. --require-encryption applies to IN.

    A CSV file must have a header line, and may be compressed (gzip, bzip2, zstd, lz4). A column
    becomes numbers, dates or times only if all its values can be written back as the same
    characters; otherwise it is text.
    """
    if not names(bloom):
        check_not_given(ctx, ["fpp"], "--bloom")
    from secure_bloom import BloomFilterOptions, ParquetFile
    from secure_bloom.cli import convert, report
    if convert.is_parquet(source):
        refuse_given(ctx, ["delimiter", "text"],
                     "says how a CSV file is read, but IN is a Parquet file;")
    is_from_policy = policy is not None and footer_key is None and not column_keys \
        and not plaintext_footer and not plaintext
    encryption = None if is_from_policy else _encryption(
        footer_key, _column_keys(column_keys), plaintext_footer, kms, plaintext)
    filters = {column: BloomFilterOptions(fpp=fpp) for column in names(bloom)}
    try:
        with warnings_shown(), progress(f"writing {Path(target).name}") as advance:
            convert.convert_file(
                source, target, overwrite=overwrite, bloom_filters=filters, encryption=encryption,
                kms=kms, policy=policy, row_group_size=row_group_size, text_columns=names(text),
                delimiter=delimiter, plaintext=plaintext, compression=compression,
                advance=advance, require_encryption=require_encryption)
    except FileExistsError as error:
        raise click.UsageError(f"{error}; specify another OUT, or --overwrite to replace it") \
            from None
    with ParquetFile(target, kms if encryption or policy else None) as parquet_file:
        result = report.inspect_file(parquet_file)
    if as_json:
        print_json(result)
    else:
        echo(report.render_inspection(result))


def _encryption(footer_key: str | None, column_keys: dict[str, list[str]], plaintext_footer: bool,
                kms: KmsClient | None, plaintext: bool) -> EncryptionConfiguration | None:
    if plaintext:
        if footer_key is not None or column_keys or plaintext_footer:
            raise click.UsageError("--plaintext contradicts --footer-key, --column-key and "
                                   "--plaintext-footer")
        return None
    if footer_key is None:
        raise click.UsageError(
            "OUT would not be encrypted. To encrypt it, specify --keyring FILE --footer-key NAME, "
            "and --column-key NAME:col,col for sensitive columns; to write it without encryption, "
            "specify --plaintext")
    if kms is None:
        raise click.UsageError("encryption needs master keys: specify --keyring FILE or --kms "
                               "URI, or set SECURE_BLOOM_KEYRING or SECURE_BLOOM_KMS")
    from secure_bloom import EncryptionConfiguration
    if column_keys:
        return EncryptionConfiguration(footer_key, column_keys, plaintext_footer=plaintext_footer)
    return EncryptionConfiguration(footer_key, uniform_encryption=True,
                                   plaintext_footer=plaintext_footer)
