//! Rows from one file to another: arrow-rs as a reader and as a writer, with keys on either side.

use std::fs::File;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::encryption::encrypt::FileEncryptionProperties;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::files;
use crate::protocol::{Answer, Failure, Request, reply};

/// Reads `path` as "files read" does; fields that begin with "to" are about the new file.
pub fn copy(request: &Request) -> Answer {
    let mut options = ArrowReaderOptions::new();
    if let Some(keys) = files::keys(request)? {
        options = options.with_file_decryption_properties(keys);
    }
    let source = File::open(request.text("path")?)?;
    let source = ParquetRecordBatchReaderBuilder::try_new_with_options(source, options)?;
    let schema = source.schema().clone();
    let target = File::create(request.text("to")?)?;
    let mut writer = ArrowWriter::try_new(target, schema, Some(properties(request)?))?;
    let mut num_rows = 0;
    for batch in source.build()? {
        let batch = batch.map_err(|error| Failure::Error(error.to_string()))?;
        num_rows += batch.num_rows();
        writer.write(&batch)?;
    }
    writer.close()?;
    reply("copied").with("rows", num_rows).ok()
}

fn properties(request: &Request) -> Result<WriterProperties, Failure> {
    let mut builder = encrypted(WriterProperties::builder(), request)?
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(request.number("to_row_group_rows")?));
    for column in request.list("to_bloom") {
        let path = ColumnPath::new(column.split('.').map(str::to_owned).collect());
        builder = builder.set_column_bloom_filter_enabled(path, true);
    }
    Ok(builder.build())
}

fn encrypted(
    builder: WriterPropertiesBuilder,
    request: &Request,
) -> Result<WriterPropertiesBuilder, Failure> {
    if !request.has("to_footer_key") {
        return Ok(builder);
    }
    let mut keys = FileEncryptionProperties::builder(request.bytes("to_footer_key")?)
        .with_plaintext_footer(request.text("to_plaintext_footer")? == "true")
        .with_aad_prefix_storage(request.text("to_store_aad_prefix")? == "true");
    if request.has("to_aad_prefix") {
        keys = keys.with_aad_prefix(request.bytes("to_aad_prefix")?);
    }
    for (path, key) in request.map("to_column_keys")? {
        keys = keys.with_column_key(path, key);
    }
    Ok(builder.with_file_encryption_properties(keys.build()?))
}
