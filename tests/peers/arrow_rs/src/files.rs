//! The Bloom filters of whole files.

use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use parquet::encryption::decrypt::FileDecryptionProperties;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaDataReader};
use ring::digest::{SHA256, digest};

use crate::filters::{Value, bitset_of, is_unsupported};
use crate::protocol::{Answer, Failure, Request, hex, reply, skip, unhex};

/// The parts of messages that tell a refusal; all other errors of arrow-rs are "malformed".
const MESSAGES: [(&str, &str); 9] = [
    ("authentication_failed", "unable to decrypt parquet footer"),
    ("authentication_failed", "Unable to decrypt column"),
    ("authentication_failed", "Footer signature verification failed"),
    ("authentication_failed", "ring::error::Unspecified"),
    ("key_unavailable", "decryption properties were not provided"),
    ("key_unavailable", "Invalid footer key"),
    ("key_unavailable", "AAD prefix that is not stored in the file"),
    ("key_unavailable", "No column decryption key set"),
    ("unsupported", "Unexpected EncryptionAlgorithm"),
];

struct Found {
    filter: Sbbf,
    physical: Type,
    length: usize,
}

#[derive(Default)]
struct Reading {
    found: BTreeMap<String, Found>,
    lines: String,
    refusal: Option<(&'static str, String)>,
}

/// With data keys: arrow-rs has no key tools.
pub fn read(request: &Request) -> Answer {
    let has_data_keys = request.has("footer_key") || request.has("column_keys");
    if request.has("master_keys") && !has_data_keys {
        return skip("arrow-rs has no key tools");
    }
    let mut reading = Reading::default();
    reading.read_all(request)?;
    let answers = reading.answers(request)?;
    let outcome = reading.refusal.as_ref().map_or("read", |(outcome, _)| outcome);
    let answer = reply(outcome).with("filters", &reading.lines).with("answers", answers);
    match &reading.refusal {
        Some((_, at)) => answer.with("at", at).ok(),
        None => answer.ok(),
    }
}

/// The keys of a request; without a footer key the crate wants one all the same.
pub fn keys(request: &Request) -> Result<Option<Arc<FileDecryptionProperties>>, Failure> {
    let columns = request.map("column_keys")?;
    if !request.has("footer_key") && columns.is_empty() {
        return Ok(None);
    }
    let footer_key = request.has("footer_key").then(|| request.bytes("footer_key")).transpose()?;
    let mut builder = FileDecryptionProperties::builder(footer_key.unwrap_or_default());
    if request.has("aad_prefix") {
        builder = builder.with_aad_prefix(request.bytes("aad_prefix")?);
    }
    for (path, key) in columns {
        builder = builder.with_column_key(path, key);
    }
    Ok(Some(builder.build()?))
}

impl Reading {
    fn read_all(&mut self, request: &Request) -> Result<(), Failure> {
        let file = File::open(request.text("path")?)?;
        let keys = keys(request)?;
        let opened = caught(|| {
            let reader = ParquetMetaDataReader::new().with_decryption_properties(keys.clone());
            reader.parse_and_finish(&file)
        });
        let metadata = match opened {
            Ok(metadata) => metadata,
            Err(error) => return self.refuse(&error, "footer".to_owned()),
        };
        for (number, group) in metadata.row_groups().iter().enumerate() {
            for chunk in group.columns() {
                let place = format!("{number}:{}", chunk.column_path().string());
                match caught(|| Sbbf::read_from_column_chunk(chunk, &file)) {
                    Ok(Some(filter)) => self.add(place, chunk, filter),
                    Ok(None) => {}
                    // its modules were read as if they were a plaintext filter
                    Err(error) if chunk.crypto_metadata().is_some() => {
                        return skip(format!("arrow-rs does not decrypt Bloom filters: {error}"));
                    }
                    Err(error) => self.refuse(&error, place)?,
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, place: String, chunk: &ColumnChunkMetaData, filter: Sbbf) {
        let kind = if chunk.crypto_metadata().is_some() { "encrypted" } else { "plain" };
        let bitset = bitset_of(&filter);
        let sha256 = hex(digest(&SHA256, &bitset).as_ref());
        self.lines += &format!("{place}:{kind}:{}:{sha256},", bitset.len());
        let length = chunk.column_descr().type_length().try_into().unwrap_or(0);
        let found = Found { filter, physical: chunk.column_type(), length };
        self.found.insert(place, found);
    }

    /// The first refusal is the answer; the other filters are still read.
    fn refuse(&mut self, error: &ParquetError, place: String) -> Result<(), Failure> {
        eprintln!("{place}: {error}");
        let message = error.to_string();
        let is_key_of_192_bits = message.contains("unsupported key length: 24");
        if matches!(error, ParquetError::NYI(_)) || is_key_of_192_bits {
            return skip(format!("arrow-rs: {message}"));
        }
        self.refusal.get_or_insert((outcome_of(&message), place));
        Ok(())
    }

    fn answers(&self, request: &Request) -> Answer {
        let mut answers = String::new();
        for probe in request.list("probes") {
            let (place, plain) = probe.rsplit_once(':').expect("a place and a value");
            answers += match self.found.get(place) {
                None => "unknown,",
                Some(Found { filter, physical, length }) => {
                    let value = Value::from_plain(*physical, unhex(plain)?, *length)?;
                    if value.is_in(filter) { "true," } else { "false," }
                }
            };
        }
        Ok(answers)
    }
}

/// Of a refusal; a panic is an error instead.
fn outcome_of(message: &str) -> &'static str {
    if message.contains(PANIC) {
        return "error";
    }
    if is_unsupported(message) {
        return "unsupported";
    }
    let known = MESSAGES.iter().find(|(_, part)| message.contains(part));
    known.map_or("malformed", |(outcome, _)| outcome)
}

const PANIC: &str = "arrow-rs panicked";

/// A panic as an error, so that the other filters of a file are still read.
fn caught<T>(read: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    let panicked = |_| Err(ParquetError::General(PANIC.to_owned()));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}
