//! One line of the protocol, and what answers it.

use std::collections::BTreeMap;
use std::fmt::Display;

use parquet::errors::ParquetError;

pub type Answer = Result<String, Failure>;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// arrow-rs does not have what was asked for.
    Skip(String),
    /// A request that cannot be understood, or an unexpected error.
    Error(String),
}

impl From<ParquetError> for Failure {
    fn from(error: ParquetError) -> Self {
        Failure::Error(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Error(error.to_string())
    }
}

pub fn skip<T>(reason: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Skip(reason.into()))
}

fn bad<T>(what: impl Display) -> Result<T, Failure> {
    Err(Failure::Error(what.to_string()))
}

pub struct Request {
    operation: String,
    fields: BTreeMap<String, String>,
}

impl Request {
    pub fn parse(line: &str) -> Result<Request, Failure> {
        let mut parts = line.split('\t');
        let (Some(layer), Some(operation)) = (parts.next(), parts.next()) else {
            return bad("no operation");
        };
        let mut fields = BTreeMap::new();
        for part in parts {
            let Some((name, value)) = part.split_once('=') else {
                return bad(format!("no field: {part}"));
            };
            fields.insert(name.to_owned(), value.to_owned());
        }
        Ok(Request { operation: format!("{layer} {operation}"), fields })
    }

    pub fn operation(&self) -> &str {
        &self.operation
    }

    pub fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Result<&str, Failure> {
        match self.fields.get(name) {
            Some(value) => Ok(value),
            None => bad(format!("the request has no {name}")),
        }
    }

    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, Failure> {
        unhex(self.text(name)?)
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, Failure> {
        let text = self.text(name)?;
        text.parse().or_else(|_| bad(format!("no number: {name}={text}")))
    }

    pub fn hash(&self) -> Result<u64, Failure> {
        let text = self.text("hash")?;
        u64::from_str_radix(text, 16).or_else(|_| bad(format!("no hash: {text}")))
    }

    /// Every item is followed by a comma. An absent list is empty.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let text = self.fields.get(name).map(String::as_str).unwrap_or("");
        let mut items: Vec<&str> = text.split(',').collect();
        items.pop();
        items
    }

    /// Keys and their bytes, in the order of the request.
    pub fn map(&self, name: &str) -> Result<Vec<(&str, Vec<u8>)>, Failure> {
        let mut pairs = Vec::new();
        for item in self.list(name) {
            let Some((key, value)) = item.rsplit_once(':') else {
                return bad(format!("no pair: {item}"));
            };
            pairs.push((key, unhex(value)?));
        }
        Ok(pairs)
    }
}

/// A reply under construction: an outcome, then fields.
pub struct Reply(String);

pub fn reply(outcome: &str) -> Reply {
    Reply(outcome.to_owned())
}

impl Reply {
    pub fn with(mut self, name: &str, value: impl Display) -> Reply {
        self.0 += &format!("\t{name}={value}");
        self
    }

    pub fn ok(self) -> Answer {
        Ok(self.0)
    }
}

impl From<Reply> for String {
    fn from(reply: Reply) -> String {
        reply.0
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(digits: &str) -> Result<Vec<u8>, Failure> {
    let bytes = (0..digits.len()).step_by(2).map(|i| {
        let pair = digits.get(i..i + 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    match bytes.collect() {
        Some(bytes) => Ok(bytes),
        None => bad("no hex digits"),
    }
}
