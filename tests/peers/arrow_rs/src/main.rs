//! arrow-rs (the crate `parquet`) behind the protocol of vectors/README.md: its own code answers,
//! and what it does not have is skipped. A panic or an unexpected error becomes the outcome
//! "error", which no test vector expects.

mod copy;
mod files;
mod filters;
mod inverse;
mod protocol;

use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use protocol::{Answer, Failure, Request, reply};

fn main() {
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&line.expect("requests are UTF-8"));
        writeln!(std::io::stdout(), "{answer}").expect("replies are read");
    }
}

fn answer(line: &str) -> String {
    let outcome = catch_unwind(AssertUnwindSafe(|| Request::parse(line).and_then(|r| dispatch(&r))));
    match outcome {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failure::Skip(reason))) => reply("skip").with("reason", one_line(&reason)).into(),
        Ok(Err(Failure::Error(message))) => error("ParquetError", &message),
        Err(panic) => error("panic", &text_of(panic)),
    }
}

fn dispatch(request: &Request) -> Answer {
    let lacking = |reason: &str| Err(Failure::Skip(format!("arrow-rs {reason}")));
    match request.operation() {
        "xxh64 hash" => filters::hash(request),
        "blocks mask" => filters::mask(request),
        "blocks index" => filters::index(request),
        "blocks insert" => filters::insert(request),
        "blocks check" => filters::check_block(request),
        "bitsets build" => filters::build(request),
        "bitsets check" => filters::check(request),
        "fold-merge fold" => filters::fold(request),
        "fold-merge merge" => lacking("does not merge"),
        "sizing fpp" => lacking("estimates the probability of a filter, not of a size"),
        "sizing blocks" => filters::blocks(request),
        "headers encode" => filters::encode_header(request),
        "headers decode" => filters::decode_header(request),
        "footers revealed" => lacking("does not audit footers"),
        "aad build" | "modules encrypt" | "modules decrypt" | "modules sign" | "modules verify" => {
            lacking("has no public function for AADs and modules")
        }
        "key-material unwrap" => lacking("has no key tools"),
        "files read" => files::read(request),
        "files copy" => copy::copy(request), // not of the vectors: see tests/peers/arrow_rs.py
        "index lookup" => lacking("has no index of data sets"),
        // no skip: a slip in a name must not pass for something that arrow-rs lacks
        other => Err(Failure::Error(format!("no operation {other}"))),
    }
}

fn error(class: &str, message: &str) -> String {
    reply("error").with("class", class).with("message", one_line(message)).into()
}

fn text_of(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
