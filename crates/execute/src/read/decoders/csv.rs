//! Decodes the records of a CSV file, and matches its columns with the table's by name.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow::compute::filter_record_batch;
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Decoder;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use regex::Regex;

use super::conversion::{converted, converted_or_null, is_converted};
use crate::read::dialect::escapes::doubled;
use crate::read::dialect::header::NO_QUOTE;
use crate::read::dialect::lengths::of_length;
use crate::read::reports::shortened;
use crate::read::{Dialect, Header, Quotes};
use crate::sql_semantics::sql_name;

/// Values that are decoded at a time, to bound the memory of wide tables.
const BATCH_VALUES: usize = 1 << 20;

/// A decoder of the records of one file.
pub struct CsvDecoder {
    dialect: Dialect,
    /// The columns of the file, with the types of the table.
    file: SchemaRef,
    /// The columns that are wanted of the table, and the place of each among the decoded ones.
    wanted: SchemaRef,
    places: Vec<Option<usize>>,
    /// Indexes of the decoded columns in the file.
    decoded: Vec<usize>,
    /// The most rows of a batch.
    rows: usize,
    decoder: Decoder,
}

impl CsvDecoder {
    /// Creates a decoder of the columns `wanted` for a file with `header`. Columns that the file
    /// lacks are null.
    pub fn new(header: &Header, dialect: &Dialect, wanted: &SchemaRef, rows: usize) -> Self {
        let field = |name: &String| -> FieldRef {
            let data_type = wanted.field_with_name(name).map(Field::data_type);
            let data_type = data_type.unwrap_or(&DataType::Utf8View);
            Arc::new(Field::new(name, data_type.clone(), true))
        };
        let file = Arc::new(Schema::new(header.names.iter().map(field).collect::<Vec<_>>()));
        let index = |field: &FieldRef| header.names.iter().position(|name| name == field.name());
        let found: Vec<Option<usize>> = wanted.fields().iter().map(index).collect();
        let mut decoded: Vec<usize> = found.iter().flatten().copied().collect();
        decoded.sort_unstable();
        decoded.dedup();
        let place = |index: &Option<usize>| decoded.binary_search(&(*index)?).ok();
        let places = found.iter().map(place).collect();
        let rows = rows.min(BATCH_VALUES / header.names.len().max(1)).max(1);
        let decoder = build(&file, dialect, &decoded, rows);
        let dialect = dialect.clone();
        let wanted = Arc::clone(wanted);
        Self { dialect, file, wanted, places, decoded, rows, decoder }
    }

    /// Creates a decoder of the same records with batches of `rows` rows.
    pub(crate) fn fresh(&self, rows: usize) -> Self {
        Self {
            file: Arc::clone(&self.file),
            wanted: Arc::clone(&self.wanted),
            places: self.places.clone(),
            decoded: self.decoded.clone(),
            rows: self.rows,
            decoder: build(&self.file, &self.dialect, &self.decoded, rows.min(self.rows).max(1)),
            dialect: self.dialect.clone(),
        }
    }

    pub(crate) fn ignores_errors(&self) -> bool {
        self.dialect.ignores_errors
    }

    /// Returns the records that fit: they have as many values as there are columns, each of its
    /// column's type.
    pub(crate) fn fitting(&mut self, records: &[u8]) -> Vec<RecordBatch> {
        // An error leaves a decoder within a record.
        *self = self.fresh(self.rows);
        let plain = doubled(records, &self.dialect);
        let kept = of_length(&plain, &self.dialect, self.file.fields().len());
        let text = |field: &FieldRef| Arc::new(Field::new(field.name(), DataType::Utf8View, true));
        let texts: Vec<FieldRef> = self.file.fields().iter().map(text).collect();
        let texts = Arc::new(Schema::new(texts));
        let mut decoder = build(&texts, &self.dialect, &self.decoded, self.rows);
        let read = raw_batches(&mut decoder, &kept).and_then(|batches| {
            batches.iter().map(|batch| self.only_fitting(batch)).collect::<Result<_, _>>()
        });
        // A value may be no text.
        read.unwrap_or_else(|_| self.by_halves(records))
    }

    /// The rows of texts that are values of their columns.
    fn only_fitting(&self, texts: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let rows = texts.num_rows();
        let mut fits = vec![true; rows];
        let column = |(place, field): (&Option<usize>, &FieldRef)| -> Result<ArrayRef, ArrowError> {
            let Some(place) = place else { return Ok(new_null_array(field.data_type(), rows)) };
            let texts = texts.column(*place);
            let values = converted_or_null(texts, field, self.decoded[*place], &self.dialect)?;
            for (row, fits) in fits.iter_mut().enumerate() {
                *fits &= values.is_valid(row) || texts.is_null(row);
            }
            Ok(values)
        };
        let columns = self.places.iter().zip(self.wanted.fields()).map(column);
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let wanted = Arc::clone(&self.wanted);
        let batch = RecordBatch::try_new_with_options(wanted, columns, &options)?;
        filter_record_batch(&batch, &BooleanArray::from(fits))
    }

    /// Returns the records that can be decoded. Records that cannot are found by halving the text.
    fn by_halves(&self, records: &[u8]) -> Vec<RecordBatch> {
        let quotes = self.quotes();
        let mut ends = vec![0];
        let mut batches = Vec::new();
        while let Some(end) = ends.last().copied().filter(|end| *end < records.len()) {
            ends.push(end + quotes.first_record(&records[end..]));
        }
        let mut open: Vec<_> = std::iter::once(0..ends.len() - 1).collect();
        while let Some(part) = open.pop() {
            let decoded = self.fresh(part.len()).decode(&records[ends[part.start]..ends[part.end]]);
            let middle = part.start + part.len() / 2;
            match decoded {
                Ok(decoded) => batches.extend(decoded),
                Err(_) if part.len() < 2 => {}
                Err(_) => open.extend([middle..part.end, part.start..middle]),
            }
        }
        batches
    }

    pub(crate) fn quotes(&self) -> Quotes {
        Quotes::new(&self.dialect)
    }

    /// Decodes whole records.
    pub fn decode(&mut self, records: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
        let records = doubled(records, &self.dialect);
        let batches = raw_batches(&mut self.decoder, &records)?;
        batches.iter().map(|batch| self.as_wanted(batch)).collect()
    }

    fn as_wanted(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let rows = batch.num_rows();
        let column = |(place, field): (&Option<usize>, &FieldRef)| -> Result<ArrayRef, ArrowError> {
            match place {
                Some(place) => {
                    converted(batch.column(*place), field, self.decoded[*place], &self.dialect)
                }
                None => Ok(new_null_array(field.data_type(), rows)),
            }
        };
        let columns = self.places.iter().zip(self.wanted.fields()).map(column);
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &options)
    }

    /// Returns the decoder's message in terms of the table. Its line numbers count from the
    /// beginning of a block.
    pub(crate) fn why(&self, error: &ArrowError) -> String {
        let text = match error {
            ArrowError::CsvError(text) | ArrowError::ParseError(text) => text.as_str(),
            other => return shortened(&other.to_string()),
        };
        self.wrong_value(text)
            .or_else(|| self.wrong_number(text))
            .or_else(|| self.not_text(text))
            .unwrap_or_else(|| shortened(text))
    }

    fn wrong_value(&self, text: &str) -> Option<String> {
        let text = text.split_once("arsing value '").map(|(_, rest)| rest)?;
        let (text, _row) = text.rsplit_once(". Row data: '").unwrap_or((text, ""));
        let (value, rest) = text.rsplit_once("' as type '")?;
        let index: usize = rest.split_once("for column ")?.1.split(' ').next()?.parse().ok()?;
        let field = self.file.fields().get(index)?;
        let name = field.name();
        let kind = sql_name(field.data_type());
        Some(format!("column `{name}` is {kind}, and `{}` is not", shortened(value)))
    }

    fn wrong_number(&self, text: &str) -> Option<String> {
        let rest = text.strip_prefix("incorrect number of fields")?;
        let (_, found) = rest.split_once(" got ")?;
        let header = self.file.fields().len();
        let found = match found.strip_prefix("more than ") {
            Some(_) => format!("more than {header}"),
            None => found.to_owned(),
        };
        let plural = if found == "1" { "" } else { "s" };
        let first = if self.dialect.headerless.is_some() { "first record" } else { "header" };
        let not_recognised = match header {
            1 => {
                ": name the character between values (delim => ';'), and that of comments if there \
                 are any (comment => '#')"
            }
            _ => "",
        };
        Some(format!("it has {found} value{plural}, and the {first} has {header}{not_recognised}"))
    }

    fn not_text(&self, text: &str) -> Option<String> {
        let rest = text.strip_prefix("Encountered invalid UTF-8 data")?;
        let field = rest.rsplit_once("field ").map_or("", |(_, field)| field);
        Some(format!("its value {field} is not {}", self.dialect.encoding.name()))
    }
}

/// The batches of a decoder.
fn raw_batches(decoder: &mut Decoder, records: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut rest = records;
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let read = decoder.decode(rest)?;
        rest = &rest[read..];
        if read == 0 || rest.is_empty() || decoder.capacity() == 0 {
            let batch = decoder.flush()?;
            let stuck = read == 0 && batch.is_none();
            batches.extend(batch);
            if stuck {
                break;
            }
        }
    }
    Ok(batches)
}

fn build(file: &SchemaRef, dialect: &Dialect, decoded: &[usize], rows: usize) -> Decoder {
    let read = |(index, field): (usize, &FieldRef)| match is_converted(field, index, dialect) {
        true => Arc::new(Field::new(field.name(), DataType::Utf8View, true)),
        false => Arc::clone(field),
    };
    let read: Vec<FieldRef> = file.fields().iter().enumerate().map(read).collect();
    let builder = ReaderBuilder::new(Arc::new(Schema::new(read)))
        .with_delimiter(dialect.delimiter)
        .with_quote(dialect.quote.unwrap_or(NO_QUOTE))
        .with_projection(decoded.to_vec())
        .with_truncated_rows(dialect.pads)
        .with_batch_size(rows);
    match dialect.nulls.as_deref().and_then(one_of) {
        Some(nulls) => builder.with_null_regex(nulls),
        None => builder,
    }
    .build_decoder()
}

/// Returns a regular expression that matches exactly the given words.
fn one_of(words: &[String]) -> Option<Regex> {
    let words: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
    Regex::new(&format!("^(?:{})$", words.join("|"))).ok()
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use snowmelt_files::Format;

    use super::*;
    use crate::read::text::{Decoder, Undecodable};

    fn decoder() -> Decoder {
        let header = Header { names: ["b", "x", "a"].map(str::to_owned).to_vec() };
        let field = |name, kind| Field::new(name, kind, true);
        let wanted = Schema::new(vec![
            field("a", DataType::Int64),
            field("none", DataType::Float64),
            field("b", DataType::Utf8View),
        ]);
        let dialect = Dialect::of(Format::Csv);
        CsvDecoder::new(&header, &dialect, &Arc::new(wanted), 2).into()
    }

    #[test]
    fn columns_are_matched_by_name() {
        let batches = decoder().decode(b"u,1,7\r\n\"v\nw\",2,\n,3,9\n").unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        let text = pretty_format_batches(&batches).unwrap().to_string();
        assert!(text.contains("| 7 |      | u |"), "{text}");
        assert!(text.contains("| 9 |      |   |"), "{text}");
    }

    #[test]
    fn wrong_records_are_explained() {
        for (records, line, why) in [
            ("u,1,7\nv,2,8.5\n", 1, "column `a` is BIGINT, and `8.5` is not"),
            ("\"u\n\",1,7\n\nv,1,it's as type\n", 3, "column `a` is BIGINT, and `it's as type` is"),
            ("u,1\n", 0, "it has 2 values, and the header has 3"),
            ("u,1,2,3\n", 0, "values, and the header has 3"),
        ] {
            let Undecodable { line: found, why: text } =
                decoder().decode(records.as_bytes()).unwrap_err();
            assert_eq!(found, Some(line), "{records:?}");
            assert!(text.contains(why), "{records:?}: {text}");
        }
        let wrong = decoder().decode(b"u,1,7\n\xff,1,7\n").unwrap_err();
        assert_eq!(wrong.line, Some(1));
        assert!(wrong.why.contains("not UTF-8"), "{}", wrong.why);
    }
}
