//! Hashes, blocks, bitsets, and their headers and sizes.

use std::cmp::Ordering;

use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use parquet::data_type::{AsBytes, ByteArray, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;
use parquet::file::properties::BloomFilterProperties;
use twox_hash::XxHash64;

use crate::inverse::value_with_hash;
use crate::protocol::{Answer, Failure, Request, hex, reply, skip, unhex};

const BLOCK: usize = 32;

/// A value as arrow-rs inserts it.
pub enum Value {
    Boolean(bool),
    Int32(i32),
    Int64(i64),
    Float(f32),
    Double(f64),
    Int96(Int96),
    Bytes(ByteArray),
    Fixed(FixedLenByteArray),
}

impl Value {
    pub fn from_plain(physical: Type, plain: Vec<u8>, length: usize) -> Result<Value, Failure> {
        match physical {
            Type::BOOLEAN => Ok(Value::Boolean(exactly(plain)? == [1])),
            Type::INT32 => Ok(Value::Int32(i32::from_le_bytes(exactly(plain)?))),
            Type::INT64 => Ok(Value::Int64(i64::from_le_bytes(exactly(plain)?))),
            Type::FLOAT => Ok(Value::Float(f32::from_le_bytes(exactly(plain)?))),
            Type::DOUBLE => Ok(Value::Double(f64::from_le_bytes(exactly(plain)?))),
            Type::INT96 => Ok(Value::Int96(int96(exactly(plain)?))),
            Type::BYTE_ARRAY => Ok(Value::Bytes(plain.into())),
            Type::FIXED_LEN_BYTE_ARRAY if plain.len() != length => typed(),
            Type::FIXED_LEN_BYTE_ARRAY => Ok(Value::Fixed(plain.into())),
        }
    }

    fn of(request: &Request, plain: Vec<u8>) -> Result<Value, Failure> {
        let physical = request.text("physical_type")?.parse()?;
        let has_length = request.has("type_length");
        let length = if has_length { request.number("type_length")? } else { 0 };
        Value::from_plain(physical, plain, length)
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Value::Boolean(value) => value.as_bytes(),
            Value::Int32(value) => value.as_bytes(),
            Value::Int64(value) => value.as_bytes(),
            Value::Float(value) => value.as_bytes(),
            Value::Double(value) => value.as_bytes(),
            Value::Int96(value) => value.as_bytes(),
            Value::Bytes(value) => value.as_bytes(),
            Value::Fixed(value) => value.as_bytes(),
        }
    }

    pub fn is_in(&self, filter: &Sbbf) -> bool {
        filter.check(self.as_bytes())
    }

    fn insert_into(&self, filter: &mut Sbbf) {
        filter.insert(self.as_bytes());
    }
}

fn exactly<const N: usize>(plain: Vec<u8>) -> Result<[u8; N], Failure> {
    plain.try_into().or_else(|_| typed())
}

fn typed<T>() -> Result<T, Failure> {
    skip("arrow-rs hashes typed values, which have no wrong length")
}

fn int96(plain: [u8; 12]) -> Int96 {
    let word = |i: usize| u32::from_le_bytes(plain[i..i + 4].try_into().expect("4 bytes"));
    let mut value = Int96::new();
    value.set_data(word(0), word(4), word(8));
    value
}

pub fn bitset_of(filter: &Sbbf) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_bitset(&mut bytes).expect("a Vec takes all bytes");
    bytes
}

fn empty(num_bytes: usize) -> Sbbf {
    Sbbf::new(&vec![0; num_bytes])
}

fn bitset(filter: &Sbbf) -> String {
    hex(&bitset_of(filter))
}

// --- one value -----------------------------------------------------------------------------------

/// The hash function is private: here its crate hashes the bytes that arrow-rs hashes, and the
/// filters of both show that arrow-rs does the same.
pub fn hash(request: &Request) -> Answer {
    let value = Value::of(request, request.bytes("plain")?)?;
    let hash = XxHash64::oneshot(0, value.as_bytes());
    let (mut by_value, mut by_hash) = (empty(1 << 20), empty(1 << 20));
    value.insert_into(&mut by_value);
    by_hash.insert(&value_with_hash(hash)[..]);
    if bitset_of(&by_value) != bitset_of(&by_hash) {
        return Err(Failure::Error("arrow-rs has another hash".into()));
    }
    reply("hashed").with("hash", format!("{hash:016x}")).ok()
}

pub fn mask(request: &Request) -> Answer {
    inserted(empty(BLOCK), request)
}

pub fn insert(request: &Request) -> Answer {
    inserted(Sbbf::new(&request.bytes("block")?), request)
}

fn inserted(mut filter: Sbbf, request: &Request) -> Answer {
    filter.insert(&value_with_hash(request.hash()?)[..]);
    reply("computed").with("block", bitset(&filter)).ok()
}

/// The index is where the one block is that a hash changes.
pub fn index(request: &Request) -> Answer {
    let num_blocks: i64 = request.number("num_blocks")?;
    let Ok(num_blocks) = usize::try_from(num_blocks) else {
        return skip("sizes are unsigned in arrow-rs");
    };
    let mut filter = empty(BLOCK * num_blocks);
    filter.insert(&value_with_hash(request.hash()?)[..]);
    let changed = bitset_of(&filter).iter().position(|&byte| byte != 0);
    reply("computed").with("index", changed.expect("the hash set bits") / BLOCK).ok()
}

pub fn check_block(request: &Request) -> Answer {
    let filter = Sbbf::new(&request.bytes("block")?);
    let is_present = filter.check(&value_with_hash(request.hash()?)[..]);
    reply(if is_present { "present" } else { "absent" }).ok()
}

// --- whole filters -------------------------------------------------------------------------------

pub fn build(request: &Request) -> Answer {
    let num_bytes: i64 = request.number("num_bytes")?;
    let Ok(num_bytes) = usize::try_from(num_bytes) else {
        return skip("sizes are unsigned in arrow-rs");
    };
    let mut filter = empty(num_bytes);
    for value in request.list("values").into_iter().filter(|&value| value != "null") {
        Value::of(request, unhex(value)?)?.insert_into(&mut filter);
    }
    reply("built").with("bitset", bitset(&filter)).ok()
}

pub fn check(request: &Request) -> Answer {
    let filter = Sbbf::new(&request.bytes("bitset")?);
    let mut answers = String::new();
    for value in request.list("values") {
        let is_in = Value::of(request, unhex(value)?)?.is_in(&filter);
        answers += if is_in { "true," } else { "false," };
    }
    reply("checked").with("answers", answers).ok()
}

/// arrow-rs folds to a probability: the one that leads to the size is searched for.
pub fn fold(request: &Request) -> Answer {
    let filter = Sbbf::new(&request.bytes("bitset")?);
    let wanted = request.number::<i64>("num_bytes")?;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..1100 {
        let target = (low + high) / 2.0;
        let mut folded = filter.clone();
        folded.fold_to_target_fpp(target);
        match wanted.cmp(&((folded.num_blocks() * BLOCK) as i64)) {
            Ordering::Equal => return reply("folded").with("bitset", bitset(&folded)).ok(),
            Ordering::Less => low = target,
            Ordering::Greater => high = target,
        }
    }
    skip("arrow-rs folds by powers of two only, as far as a probability allows")
}

/// As the writer does before it folds: its properties check, then it makes the filter.
pub fn blocks(request: &Request) -> Answer {
    if request.text("power_of_two")? == "false" {
        return skip("arrow-rs makes no filters but of powers of two");
    }
    let Ok(ndv) = u64::try_from(request.number::<i64>("ndv")?) else {
        return skip("numbers of values are unsigned in arrow-rs");
    };
    let builder = BloomFilterProperties::builder().with_fpp(request.number("fpp")?);
    let Ok(properties) = builder.with_max_ndv(ndv).try_build() else {
        return reply("invalid_fpp").ok();
    };
    let filter = Sbbf::new_with_ndv_fpp(properties.ndv(), properties.fpp())?;
    reply("computed").with("num_blocks", filter.num_blocks()).ok()
}

// --- headers -------------------------------------------------------------------------------------

pub fn encode_header(request: &Request) -> Answer {
    let num_bytes: i64 = request.number("num_bytes")?;
    let filter = empty(usize::try_from(num_bytes).or_else(|_| skip("sizes are unsigned"))?);
    let mut bytes = Vec::new();
    filter.write(&mut bytes)?;
    reply("encoded").with("header", hex(&bytes[..bytes.len() - bitset_of(&filter).len()])).ok()
}

/// The header ends with the shortest prefix that has one.
pub fn decode_header(request: &Request) -> Answer {
    let data = request.bytes("data")?;
    let mut last = None;
    for size in 0..=data.len() {
        match Sbbf::from_bytes(&data[..size]) {
            Ok(filter) => return decoded((size + bitset_of(&filter).len()) as i64, size),
            Err(error) if is_no_header(&error) => last = Some(error),
            Err(error) => match total_bytes(&error) {
                Some(total) => return decoded(total, size),
                None => return reply("malformed").ok(),
            },
        }
    }
    let error = last.expect("there is one prefix, at least the empty one").to_string();
    reply(if is_unsupported(&error) { "unsupported" } else { "malformed" }).ok()
}

fn decoded(total: i64, header_size: usize) -> Answer {
    let num_bytes = total - header_size as i64;
    reply("decoded").with("num_bytes", num_bytes).with("header_size", header_size).ok()
}

fn is_no_header(error: &ParquetError) -> bool {
    error.to_string().contains("Could not read bloom filter header")
}

/// The unions of the header have one member each: another one is what arrow-rs does not know.
pub fn is_unsupported(message: &str) -> bool {
    message.contains("Unexpected BloomFilter")
}

/// "... expected 47 total bytes, got 15": the header and the bitset that it tells of.
fn total_bytes(error: &ParquetError) -> Option<i64> {
    let message = error.to_string();
    let (_, after) = message.split_once("expected ")?;
    after.split(' ').next()?.parse().ok()
}
