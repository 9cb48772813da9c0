//! arrow-rs reads the rows of a plaintext file that have a text in a column, by the page index.
//!
//! A request is a line: path, column and text, or `#` and the number of the row, between tabs. The
//! reply is the number of rows.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, Write};

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowFilter, RowSelection,
    RowSelector,
};
use parquet::file::metadata::PageIndexPolicy;

fn main() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let [path, column, wanted] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err("three fields are needed".into());
        };
        writeln!(std::io::stdout(), "{}", rows(path, column, wanted)?)?;
    }
    Ok(())
}

fn rows(path: &str, column: &str, wanted: &str) -> Result<usize, Box<dyn Error>> {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let file = File::open(path)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?;
    let builder = if let Some(row) = wanted.strip_prefix('#') {
        let selectors = vec![RowSelector::skip(row.parse()?), RowSelector::select(1)];
        builder.with_row_selection(RowSelection::from(selectors))
    } else {
        let mask = ProjectionMask::columns(builder.parquet_schema(), [column]);
        let wanted = wanted.to_owned();
        let equal = ArrowPredicateFn::new(mask, move |batch| {
            let texts = batch.column(0).as_string::<i32>();
            Ok(BooleanArray::from_unary(texts, |text| text == wanted))
        });
        builder.with_row_filter(RowFilter::new(vec![Box::new(equal)]))
    };
    let mut num_rows = 0;
    for batch in builder.build()? {
        num_rows += batch?.num_rows();
    }
    Ok(num_rows)
}
