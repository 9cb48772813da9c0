"""The command ``write``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from secure_bloom.cli.encryption_options import (
    NO_KEYS,
    check_other_columns,
    configuration,
    encryption_options,
)
from secure_bloom.cli.shared import (
    echo,
    json_option,
    kms_options,
    names,
    policy_option,
    progress,
    refuse_given,
    refuse_without_bloom,
    requirement_option,
    show,
    warnings_shown,
)
from secure_bloom.display import listed

if TYPE_CHECKING:
    import pyarrow as pa

    from secure_bloom.encryption import EncryptionConfiguration
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.policy.requirement import Requirement

_COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4", "lz4_raw")


def _delimiter(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
    from secure_bloom.cli.csv_file import check_delimiter
    delimiter = "\t" if text == r"\t" else text
    try:
        check_delimiter(delimiter)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return delimiter


def _types(_ctx: click.Context, _option: click.Parameter,
           text: str | None) -> dict[str, pa.DataType]:
    if text is None:
        return {}
    from secure_bloom.cli.csv_types import parse_types
    try:
        return parse_types(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(short_help="Write a Parquet file from Parquet or CSV.")
@click.argument("source", metavar="IN", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False))
@kms_options
@requirement_option
@policy_option("It decides the encryption and filters of OUT; other options may add to it.")
@click.option("--sensitive", metavar="col,col",
              help="Columns to encrypt with the master key pii, with Bloom filters, under a footer "
                   "with the master key footer. Instead of the next three options.")
@encryption_options
@click.option("--bloom", metavar="col,col",
              help="Dotted paths of the leaf columns that get Bloom filters.")
@click.option("--fpp", type=float, default=0.01, show_default=True,
              help="False-positive probability of the filters.")
@click.option("--row-group-size", type=click.IntRange(min=1), metavar="ROWS",
              help="Rows per row group. Default: 1,048,576, or as in a Parquet input.")
@click.option("--compression", default="snappy", show_default=True,
              type=click.Choice(_COMPRESSIONS, case_sensitive=False),
              help="Compression of the pages.")
@click.option("--page-index/--no-page-index", default=True, show_default=True,
              help="Whether to write page indexes, by which readers find single pages.")
@click.option("--delimiter", default=",", show_default=True, metavar="CHARACTER",
              callback=_delimiter, help=r"Delimiter between the values of a CSV file; \t is a tab.")
@click.option("--text", metavar="col,col", help="CSV columns to keep as text, such as codes that "
                                                "only happen to have no leading zeros.")
@click.option("--types", callback=_types, metavar="col:type,col:type",
              help="Types of CSV columns: price:decimal(10,2),born:date. Types are text, binary, "
                   "bool, int, bigint, float, double, date, time, timestamp, decimal(p,s).")
@click.option("--plaintext", is_flag=True, help="Write OUT without encryption.")
@click.option("--overwrite", is_flag=True, help="Replace an existing OUT once everything is "
                                                "written.")
@json_option
@click.pass_context
def write(ctx: click.Context, source: str, target: str, kms: KmsClient | None,
          require_encryption: Requirement | None, policy: str | None, sensitive: str | None,
          footer_key: str | None, other_columns: str | None,
          column_keys: tuple[str, ...], plaintext_footer: bool, bloom: str | None, fpp: float,
          row_group_size: int | None, compression: str, page_index: bool, delimiter: str,
          text: str | None, types: dict[str, pa.DataType], plaintext: bool, overwrite: bool,
          as_json: bool) -> None:
    """Write a Parquet file with Bloom filters from a Parquet or CSV file.

    Columns without a key stay open. Filters of columns with a key are encrypted, all others are
    not. With --footer-key alone, the whole file is encrypted with that key. With --policy alone,
    the policy decides. OUT is not written if it would not meet the policy. --require-encryption
    applies to IN.

    A CSV file must have a header line, and may be compressed (gzip, bzip2, zstd, lz4). A column
    becomes numbers, dates or times only if all its values can be written back as the same
    characters; otherwise it is text.
    """
    for name in set(names(text)) & set(types):
        raise click.UsageError(f"column {name} is in --text and in --types: omit one of them")
    if not names(bloom):
        refuse_without_bloom(ctx, "fpp")
    from secure_bloom import BloomFilterOptions
    from secure_bloom.cli import convert, report
    from secure_bloom.reading.open_file import OpenFile
    if convert.is_parquet(source):
        refuse_given(ctx, ["delimiter", "text", "types"],
                     "says how a CSV file is read, but IN is a Parquet file;")
    if sensitive is not None:
        given = {"--footer-key": footer_key, "--column-key": column_keys,
                 "--other-columns": other_columns, "--plaintext-footer": plaintext_footer,
                 "--plaintext": plaintext}
        for option in (option for option, value in given.items() if value):
            raise click.UsageError(f"{option} contradicts --sensitive: remove one of them")
    check_other_columns(other_columns, column_keys)
    named = footer_key is not None or column_keys or plaintext_footer or plaintext
    encryption = None if sensitive is not None or (policy is not None and not named) \
        else _encryption(footer_key, column_keys, other_columns, plaintext_footer, plaintext)
    if kms is None and (encryption is not None or sensitive is not None):
        raise click.UsageError(NO_KEYS)
    filters = {column: BloomFilterOptions(fpp=fpp) for column in names(bloom)}
    try:
        with warnings_shown(), progress("writing", target) as advance:
            written = convert.convert_file(
                source, target, overwrite=overwrite, bloom_filters=filters, encryption=encryption,
                sensitive=None if sensitive is None else names(sensitive), keys=kms, policy=policy,
                row_group_size=row_group_size, text_columns=names(text), types=types,
                delimiter=delimiter, plaintext=plaintext, compression=compression,
                write_page_index=page_index, advance=advance,
                require_encryption=require_encryption)
    except FileExistsError as error:
        raise click.UsageError(f"{error}; specify another OUT, or --overwrite to replace it") \
            from None
    with OpenFile(target, kms if encryption or sensitive or policy else None) as parquet_file:
        result = report.inspect_file(parquet_file)
    show(as_json, {**written.to_dict(), **result}, lambda: report.render_inspection(result))
    if written.open_columns and not plaintext and not as_json:
        echo(f"open to everyone: {listed(written.open_columns)}")


def _encryption(footer_key: str | None, column_keys: tuple[str, ...],
                other_columns: str | None, plaintext_footer: bool,
                plaintext: bool) -> EncryptionConfiguration | None:
    if plaintext:
        if footer_key is not None or column_keys or plaintext_footer:
            raise click.UsageError("--plaintext contradicts --footer-key, --column-key and "
                                   "--plaintext-footer")
        return None
    if footer_key is None:
        raise click.UsageError(
            "OUT would not be encrypted. To encrypt it, specify --keys FILE --sensitive col,col, "
            "or name the master keys: --footer-key NAME, and --column-key NAME:col,col; to write "
            "it without encryption, specify --plaintext")
    return configuration(footer_key, column_keys, other_columns, plaintext_footer)
