//! The grammar of `snowmelt udf`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::{ListArgs, LogFormat, PackageArgs, PlatformArgs, ShowFormat};

pub const EXAMPLES: &str = "\
Examples:
  snowmelt udf add score.py --test \"score(1.5, 0.2)\"
  snowmelt sql \"select score(amount, rate) from 'sales/'\"     no --udf
  snowmelt udf ls
  snowmelt udf rm score";

const ADD_EXAMPLES: &str = "\
Examples:
  snowmelt udf add score.py
  snowmelt udf add score.py --package scikit-learn==1.7.* --test \"score(1.5, 0.2)\"
  snowmelt udf add score.py --image registry.example/science:v1
  snowmelt udf add score.py --file model.pkl --file data/:words     read as open(\"model.pkl\")
  snowmelt udf add score.py --secret API_KEY=env:API_KEY            read as sm.secret(\"API_KEY\")

The file defines functions with @sm.udf; each of them is registered under its name. A name that is
registered already gets another version; queries that run go on with the version that they began with.";

const TEST_EXAMPLES: &str = "\
Examples:
  snowmelt udf test score 1.5 0.2
  snowmelt udf test shorten \"'a text'\" null

Arguments are expressions of SQL.";

/// `snowmelt udf`.
#[derive(Debug, Subcommand)]
pub enum UdfCommand {
    /// Register the functions of a file, so that SQL and other engines call them by name
    Add(AddUdfArgs),
    /// List the registered functions
    Ls(ListArgs),
    /// Show a function with its signature and versions
    Show(ShowUdfArgs),
    /// Call a function once and print its result
    Test(TestUdfArgs),
    /// Print what instances of a function wrote
    Log(UdfLogArgs),
    /// Remove a function with all its versions
    Rm(RemoveUdfArgs),
}

/// `snowmelt udf add`.
#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub struct AddUdfArgs {
    /// Python file that defines functions with @sm.udf
    pub file: PathBuf,
    /// The packages that the functions need.
    #[command(flatten)]
    pub packages: PackageArgs,
    /// Block image in which the functions run, with its Python and its packages
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["packages", "requirements", "python"])]
    pub image: Option<String>,
    /// File or folder that the functions read: PATH, or PATH:NAME to give it another name
    #[arg(long = "file", value_name = "PATH[:NAME]")]
    pub files: Vec<OsString>,
    /// Secret by reference: the server reads it from a variable (NAME=env:VARIABLE) or from a file
    /// of its folder of secrets (NAME=file:FILE)
    #[arg(long = "secret", value_name = "NAME=REFERENCE")]
    pub secrets: Vec<String>,
    /// A call that must succeed before anything is registered, for example "score(1.5, 0.2)"
    #[arg(long, value_name = "CALL")]
    pub test: Option<String>,
    /// The platform to register with.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt udf show`.
#[derive(Debug, Args)]
pub struct ShowUdfArgs {
    /// Name of the function
    pub name: String,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
    /// The platform to query.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt udf test`.
#[derive(Debug, Args)]
#[command(after_help = TEST_EXAMPLES)]
pub struct TestUdfArgs {
    /// Name of the function
    pub name: String,
    /// Its arguments
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    pub arguments: Vec<String>,
    /// The platform that runs it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt udf log`.
#[derive(Debug, Args)]
pub struct UdfLogArgs {
    /// Name of the function
    pub name: String,
    /// Only the last N lines (default: 200)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tail: Option<u32>,
    /// Format; json prints one object per line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: LogFormat,
    /// The platform to query.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt udf rm`.
#[derive(Debug, Args)]
pub struct RemoveUdfArgs {
    /// Name of the function
    pub name: String,
    /// The platform to remove it from.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}
