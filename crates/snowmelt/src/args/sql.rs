//! The grammar of `snowmelt sql`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use snowmelt_types::{ByteSize, parse_duration};

use super::{ExchangeMedium, OutputFormat, PlatformArgs, Switch};

const EXAMPLES: &str = "\
Examples:
  snowmelt sql \"select l_returnflag, count(*) from 'lineitem/*.parquet' group by 1\"
  snowmelt sql -f report.sql --table orders=s3://shop/orders/ -o csv -O report.csv
  snowmelt sql \"select country(phone), count(*) from 'users.parquet' group by 1\" --udf udfs.py
  snowmelt sql -f scores.sql --udf score.py --image registry.example/science:v1
  snowmelt sql -f q1.sql --workers 8 --memory 2GiB --profile-out q1.html
  snowmelt sql \"select * from 'users.parquet' where name = :name\" --param name:varchar=Ann
  echo 'select 1 as one' | snowmelt sql -o json

Tables: quote a location in FROM ('file.parquet', 'folder/', 'glob*.parquet', 's3://bucket/prefix/')
or name it with --table. S3 uses the usual AWS_* variables.

Formats: table for people; json is one object per line; csv has a header; arrow is an IPC stream on
stdout and an IPC file with -O; parquet is compressed with zstd. Data goes to stdout, everything
else to stderr.";

/// `snowmelt sql`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SqlArgs {
    /// The statement; read from stdin if it is `-` or omitted
    #[arg(value_name = "QUERY", conflicts_with = "file")]
    pub query: Option<String>,
    /// Read the statement from a file, or from stdin with `-`
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Format of the result [default: table]
    #[arg(short, long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub output: Option<OutputFormat>,
    /// Write the result to this file, which is created only when it is complete
    #[arg(short = 'O', long, value_name = "FILE", help_heading = "Output")]
    pub output_file: Option<PathBuf>,
    /// Maximum rows of a table on a terminal; 0 shows all [default: 40]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = "Output")]
    pub rows: Option<u64>,
    /// Print a profile of time, bytes and memory on stderr
    #[arg(long, help_heading = "Output")]
    pub profile: bool,
    /// Write the profile as a self-contained HTML page
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub profile_out: Option<PathBuf>,

    /// TOML file with prices for the cost of the query [default: list prices of AWS]
    #[arg(long, value_name = "FILE.toml", help_heading = "Output")]
    pub prices: Option<PathBuf>,

    /// Number of workers; 0 means one for each core [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, help_heading = "Resources")]
    pub workers: Option<u32>,
    /// Memory limit of each worker [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub memory: Option<ByteSize>,
    /// Bytes of files that are worth a task: a query that scans fewer has fewer tasks than workers,
    /// unless it calls functions of yours; 0 means a task for each worker [default: 16MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub scan_task: Option<ByteSize>,
    /// Time limit of the query, for example 30s or 10m; 0 means no limit [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub timeout: Option<Duration>,

    /// Where rows are between stages; auto chooses by the hosts of the query [default: auto]
    #[arg(long, value_enum, value_name = "MEDIUM", help_heading = "Exchange")]
    pub exchange: Option<ExchangeMedium>,
    /// Bucket or prefix for an exchange by objects (repeatable: objects are spread over them)
    #[arg(
        long = "exchange-location",
        value_name = "s3://BUCKET/PREFIX/",
        help_heading = "Exchange"
    )]
    pub exchange_locations: Vec<String>,
    /// Levels of an exchange by objects, 1 to 3: more levels need fewer requests and move rows
    /// again [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, help_heading = "Exchange")]
    pub exchange_levels: Option<u32>,
    /// Whether a task writes all its partitions into one object [default: on]
    #[arg(long, value_enum, value_name = "ON|OFF", help_heading = "Exchange")]
    pub exchange_combining: Option<Switch>,
    /// Exchanged bytes that are worth a task: a stage that reads fewer has fewer tasks [default:
    /// 16MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Exchange")]
    pub exchange_task: Option<ByteSize>,

    /// Name a table: a file, folder, glob or s3:// URL of Parquet, CSV, JSON or Arrow files
    /// (repeatable)
    #[arg(long = "table", value_name = "NAME=LOCATION", value_parser = named_location, help_heading = "Data and code")]
    pub tables: Vec<(String, String)>,
    /// Option for all CSV files, as read_csv has it, for example delim=';', nullstr=NA or
    /// types.price=DOUBLE; the same name again adds a value to a list (repeatable)
    #[arg(long = "csv", value_name = "OPTION=VALUE", help_heading = "Data and code")]
    pub csv: Vec<String>,
    /// Value of a parameter, :NAME or $NAME in the statement; of ? and $1 with 1=VALUE. Numbers and
    /// booleans are recognised, or give the type: day:date=2024-01-31 (repeatable)
    #[arg(long = "param", value_name = "NAME[:TYPE]=VALUE", help_heading = "Data and code")]
    pub params: Vec<String>,
    /// Python file with functions decorated with @sm.udf (repeatable)
    #[arg(long = "udf", value_name = "FILE.py", help_heading = "Data and code")]
    pub udfs: Vec<PathBuf>,
    /// requirements.txt with packages that the UDFs need
    #[arg(long, value_name = "FILE", requires = "udfs", help_heading = "Data and code")]
    pub requirements: Option<PathBuf>,
    /// A Python package that the UDFs need, for example `phonenumbers==8.13.*` (repeatable)
    #[arg(long = "package", value_name = "REQ", requires = "udfs", help_heading = "Data and code")]
    pub packages: Vec<String>,
    /// Python version that runs the UDFs of all files, for example 3.13 [default: what each asks
    /// for]
    #[arg(
        long,
        value_name = "VERSION",
        requires = "udfs",
        conflicts_with = "image",
        help_heading = "Data and code"
    )]
    pub python: Option<String>,
    /// Run the UDFs in this block image, with its Python and its packages
    #[arg(long, value_name = "IMAGE", requires = "udfs", help_heading = "Data and code")]
    pub image: Option<String>,
    /// File or folder that the UDFs read, or those of a CREATE FUNCTION: PATH, or PATH:NAME to give
    /// it another name (repeatable)
    #[arg(long = "udf-file", value_name = "PATH[:NAME]", help_heading = "Data and code")]
    pub udf_files: Vec<OsString>,
    /// Secret of the UDFs by reference: NAME=env:VARIABLE or NAME=file:FILE, as with `udf add`
    /// (repeatable)
    #[arg(
        long = "udf-secret",
        value_name = "NAME=REFERENCE",
        requires = "udfs",
        help_heading = "Data and code"
    )]
    pub udf_secrets: Vec<String>,

    /// The platform that runs it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a whole number from 0".to_owned())
}

fn named_location(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, location)) if !name.is_empty() && !location.is_empty() => {
            Ok((name.to_owned(), location.to_owned()))
        }
        _ => Err("write NAME=LOCATION, for example orders=data/orders/".to_owned()),
    }
}
