//! The options for environment variables of functions.

use std::path::PathBuf;

use clap::Args;

/// Environment variables of a function.
#[derive(Debug, Default, Args)]
pub struct EnvironmentArgs {
    /// Set an environment variable (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// Set the variables of a file with lines NAME=VALUE (repeatable); --env overrides them
    #[arg(long = "env-file", value_name = "FILE")]
    pub environment_files: Vec<PathBuf>,
}

/// Parses `NAME=VALUE`.
pub fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
