//! `snowmelt sql`: runs one query and writes its result.

use std::collections::BTreeMap;
use std::path::Path;

use snowmelt_api::{FileRefs, Profile, QueryOptions, QueryRequest, UdfSource};
use snowmelt_control::client::{QueryFrame, QueryStream};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::PriceFile;

use super::{csv_options, parameters, profile};
use crate::args::SqlArgs;
use crate::config::{Config, ValueOrigin};
use crate::env;
use crate::input::{self, function_files, secrets};
use crate::output::{ResultOutput, ResultTarget, ResultWriter};
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, ProgressDisplay};

/// Runs the query and writes its result.
///
/// # Errors
/// Errors of the statement, the data, the functions or the output.
pub fn run(args: &SqlArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let output = output(args, config);
    output.check()?;
    let files = function_files::collect(&args.udf_files)?;
    let request = request(args, config, function_files::refs(&files))?;
    // Opened first, so that a long query does not fail at its end because of its output file.
    let target = ResultTarget::open(output.file)?;
    let page =
        args.profile_out.as_deref().map(|path| ResultTarget::open(Some(path))).transpose()?;
    let platform = CommandPlatform::find(&args.platform, config)?;
    let label = if platform.is_embedded() { "starting the platform" } else { "connecting" };
    let profile = platform::with(platform, printer, async |client, _| {
        let progress = ProgressDisplay::start(config.progress.value, printer, label);
        client.send_files(&files).await?;
        let mut stream = client.query(&request).await?;
        let writer = begin(&mut stream, &output, target, progress).await?;
        answer(&mut stream, writer, printer).await
    })?;
    if let Some(profile) = profile {
        report(&profile, args, page, printer)?;
    }
    Ok(0)
}

fn output<'a>(args: &'a SqlArgs, config: &Config) -> ResultOutput<'a> {
    let file = args.output_file.as_deref();
    let format = match config.format.origin {
        ValueOrigin::Flag => config.format.value,
        _ => ResultOutput::format_for(file).unwrap_or(config.format.value),
    };
    ResultOutput { format, file, rows: config.rows.value }
}

/// Writes the result. `None` if the reader of stdout closed the pipe before the end.
async fn answer(
    stream: &mut QueryStream,
    mut writer: ResultWriter,
    printer: Printer,
) -> Result<Option<Profile>, ErrorReport> {
    let mut profile = None;
    while let Some(frame) = stream.next().await? {
        match frame {
            QueryFrame::Batch(batch) if !writer.write(&batch)? => return Ok(None),
            QueryFrame::Profile(ended) => profile = Some(*ended),
            QueryFrame::Batch(_) | QueryFrame::Schema(_) | QueryFrame::Event(_) => {}
        }
    }
    // Printed even if progress is `quiet`: a shortened table must not look complete.
    writer.finish()?.iter().for_each(|note| printer.line(note));
    Ok(profile)
}

/// Shows progress until the result begins.
async fn begin(
    stream: &mut QueryStream,
    output: &ResultOutput<'_>,
    target: ResultTarget,
    progress: ProgressDisplay,
) -> Result<ResultWriter, ErrorReport> {
    while let Some(frame) = stream.next().await? {
        match frame {
            QueryFrame::Event(event) => progress.event(event),
            QueryFrame::Schema(schema) => {
                drop(progress);
                return output.open(target, &schema);
            }
            QueryFrame::Batch(_) | QueryFrame::Profile(_) => break,
        }
    }
    Err(ErrorReport::new(Code::PROTOCOL, "the result has no schema"))
}

fn report(
    profile: &Profile,
    args: &SqlArgs,
    page: Option<ResultTarget>,
    printer: Printer,
) -> Result<(), ErrorReport> {
    if args.profile {
        printer.line(&profile::text(profile));
    }
    if let (Some(mut page), Some(path)) = (page, &args.profile_out) {
        let failures = page.failures();
        std::io::Write::write_all(&mut page, profile::page(profile).as_bytes())
            .and_then(|()| page.commit())
            .map_err(|error| failures.report(&error.into()))?;
        printer.note(&format!("profile: {}", path.display()));
    }
    printer.note(&profile::summary(profile));
    Ok(())
}

fn request(args: &SqlArgs, config: &Config, files: FileRefs) -> Result<QueryRequest, ErrorReport> {
    let mut packages = input::listed(&args.packages, args.requirements.as_deref())?;
    packages.extend(args.python.as_deref().map(snowmelt_package::python_requirement));
    let secrets = secrets::given(&args.udf_secrets, "--udf-secret")?;
    let source = |path: &std::path::PathBuf| {
        Ok(UdfSource {
            code: input::code(path)?,
            packages: packages.clone(),
            signatures: None,
            image: args.image.clone(),
            files: files.clone(),
            secrets: secrets.clone(),
        })
    };
    let timeout = config.timeout.value.as_millis();
    Ok(QueryRequest {
        sql: statement(args)?,
        params: parameters::given(&args.params)?,
        tables: tables(&args.tables)?,
        csv: csv_options::given(&args.csv)?,
        udfs: args.udfs.iter().map(source).collect::<Result<_, ErrorReport>>()?,
        // With --udf they are files of those functions.
        files: if args.udfs.is_empty() { files } else { FileRefs::new() },
        tenant: None,
        options: QueryOptions {
            workers: config.workers.value,
            memory: config.memory.value,
            scan_task: config.scan_task.value,
            timeout_ms: u64::try_from(timeout).unwrap_or(u64::MAX),
            exchange: config.exchange.options()?,
            prices: config.prices.as_ref().map(|file| prices(&file.value)).transpose()?,
        },
        working_folder: working_folder()?,
        aws: env::aws().collect(),
    })
}

fn prices(path: &Path) -> Result<PriceFile, ErrorReport> {
    Ok(PriceFile { file: path.display().to_string(), text: input::file(path)? })
}

fn tables(named: &[(String, String)]) -> Result<BTreeMap<String, String>, ErrorReport> {
    let mut tables = BTreeMap::new();
    for (name, location) in named {
        if tables.insert(name.clone(), location.clone()).is_some() {
            let message = format!("--table names `{name}` twice");
            return Err(ErrorReport::new(Code::OPTION, message).hint(
                "a table is one location: a folder or a glob for several files, or UNION ALL",
            ));
        }
    }
    Ok(tables)
}

fn statement(args: &SqlArgs) -> Result<String, ErrorReport> {
    let dash = Path::new("-");
    let sql = match (&args.query, args.file.as_deref()) {
        (None, Some(file)) if file != dash => input::file(file)?,
        (Some(query), _) if query != "-" => query.clone(),
        (query, file) => {
            let hint = "use snowmelt sql \"select 1\", or -f FILE, or pipe a statement to stdin";
            input::stdin("statement", hint, query.is_some() || file.is_some())?
        }
    };
    if sql.trim().is_empty() {
        return Err(ErrorReport::new(Code::OPTION, "the statement is empty"));
    }
    Ok(sql)
}

fn working_folder() -> Result<String, ErrorReport> {
    let refused = |problem: String| {
        ErrorReport::new(Code::OPTION, format!("the working folder cannot be used: {problem}"))
    };
    let folder = std::env::current_dir().map_err(|error| refused(error.to_string()))?;
    folder.into_os_string().into_string().map_err(|_| refused("its path is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OutputFormat;

    #[test]
    fn the_extension_of_the_file_chooses_the_format() {
        let format = |name: &str| ResultOutput::format_for(Some(Path::new(name)));
        assert_eq!(format("a.csv"), Some(OutputFormat::Csv));
        assert_eq!(format("a.ndjson"), Some(OutputFormat::Json));
        assert_eq!(format("a.txt"), None);
    }
}
