//! The format of a file, by its name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A format of files with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Text with a header line and values between commas.
    Csv,
    /// CSV with tabs between fields.
    Tsv,
    /// NDJSON: a JSON object per line.
    Json,
    /// Arrow's IPC file format, which is also Feather 2.
    Arrow,
    /// A workbook of Excel.
    Excel,
}

/// The compression of a file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The compression of a file with this name, whatever its format is.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        Self::within(&name).1
    }

    /// Splits a name into the name without the extension of a compression, and the compression.
    fn within(name: &str) -> (&str, Self) {
        let packed = |end: &str, compression| Some((name.strip_suffix(end)?, compression));
        packed(".gz", Self::Gzip)
            .or_else(|| packed(".zst", Self::Zstd))
            .unwrap_or((name, Self::None))
    }
}

/// The format and compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The format of the file's rows.
    pub format: Format,
    /// The compression of the file.
    pub compression: Compression,
}

impl Kind {
    /// Returns the kind of a file with this name; `None` if its extension is not known.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let (plain, compression) = Compression::within(&name);
        let (stem, extension) = plain.rsplit_once('.')?;
        let format = match extension {
            _ if stem.is_empty() => return None,
            "parquet" => Format::Parquet,
            "csv" => Format::Csv,
            "tsv" => Format::Tsv,
            "json" | "jsonl" | "ndjson" => Format::Json,
            "arrow" | "feather" | "ipc" => Format::Arrow,
            "xlsx" | "xlsm" => Format::Excel,
            _ => return None,
        };
        let text = matches!(format, Format::Csv | Format::Tsv | Format::Json);
        (text || compression == Compression::None).then_some(Self { format, compression })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Json => "JSON",
            Self::Arrow => "Arrow",
            Self::Excel => "Excel",
        })
    }
}

/// Keeps the files of a folder that are its table: those of a known format. Beside Parquet files,
/// files of other formats are not data: many writers of Parquet put a description of the table
/// there.
pub fn retain_data<T>(files: &mut Vec<T>, path: impl Fn(&T) -> &Path) {
    let is_parquet = |kind: &Kind| kind.format == Format::Parquet;
    let any = files.iter().filter_map(|file| Kind::of(path(file))).any(|kind| is_parquet(&kind));
    files.retain(|file| Kind::of(path(file)).is_some_and(|kind| !any || is_parquet(&kind)));
}

/// Returns the one format of a table's files. A file without a known extension, which a location
/// can name or match, is Parquet. `Err` is a list of the formats, each with its number of files and
/// an example.
pub fn common_format<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Format, String> {
    let mut found: BTreeMap<Format, (usize, &Path)> = BTreeMap::new();
    for path in paths {
        let format = Kind::of(path).map_or(Format::Parquet, |kind| kind.format);
        found.entry(format).or_insert((0, path)).0 += 1;
    }
    if found.len() <= 1 {
        return Ok(found.into_keys().next().unwrap_or(Format::Parquet));
    }
    let each = |(format, (count, path)): (Format, (usize, &Path))| {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let format = match Kind::of(path) {
            Some(_) => format.to_string(),
            None => "unknown format".to_owned(),
        };
        match count {
            1 => format!("{format} (`{name}`)"),
            count => format!("{format} (`{name}` and {} more)", count - 1),
        }
    };
    Err(found.into_iter().map(each).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Option<(Format, Compression)> {
        Kind::of(Path::new(name)).map(|kind| (kind.format, kind.compression))
    }

    #[test]
    fn extensions_tell_format_and_compression() {
        use Compression::*;
        for (name, expected) in [
            ("a/b.parquet", Some((Format::Parquet, None))),
            ("x.CSV", Some((Format::Csv, None))),
            ("x.y.csv.gz", Some((Format::Csv, Gzip))),
            ("x.tsv.zst", Some((Format::Tsv, Zstd))),
            ("x.json", Some((Format::Json, None))),
            ("x.ndjson.gz", Some((Format::Json, Gzip))),
            ("x.jsonl", Some((Format::Json, None))),
            ("x.feather", Some((Format::Arrow, None))),
            ("x.xlsx", Some((Format::Excel, None))),
            ("x.xlsx.gz", Option::None),
            ("x.arrow.gz", Option::None),
            ("x.parquet.gz", Option::None),
            ("x.txt", Option::None),
            ("csv", Option::None),
            (".csv", Option::None),
            ("x.gz", Option::None),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
        for (name, expected) in [("a/x.TXT.GZ", Gzip), ("x.zst", Zstd), ("x.csv", None)] {
            assert_eq!(Compression::of(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn only_parquet_is_data_beside_other_formats() {
        let retained = |names: &[&'static str]| {
            let mut names = names.to_vec();
            retain_data(&mut names, |name| Path::new(*name));
            names
        };
        assert_eq!(retained(&["a.parquet", "b.csv", "c"]), ["a.parquet"]);
        assert_eq!(retained(&["b.csv", "d.json", "c.txt"]), ["b.csv", "d.json"]);
    }

    #[test]
    fn several_formats_are_named() {
        let format = |names: &[&str]| common_format(names.iter().map(Path::new));
        assert_eq!(format(&["a.csv", "b.csv.gz"]), Ok(Format::Csv));
        assert_eq!(format(&["noname"]), Ok(Format::Parquet));
        let several = format(&["d/a.csv", "d/b.csv", "d/c.json"]).unwrap_err();
        assert_eq!(several, "CSV (`a.csv` and 1 more), JSON (`c.json`)");
        assert_eq!(
            format(&["a.csv", "n.txt"]).unwrap_err(),
            "unknown format (`n.txt`), CSV (`a.csv`)"
        );
    }
}
