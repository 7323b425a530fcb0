//! `snowmelt udf`: register, list, show, test and remove functions that SQL calls by name, and
//! print their logs.

use arrow::array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use snowmelt_api::{
    QueryOptions, QueryRequest, RegisterRequest, UdfLogEntry, UdfSource, UdfSummary,
};
use snowmelt_control::client::{ApiClient, QueryFrame};
use snowmelt_types::{ByteSize, Code, ErrorReport};
use snowmelt_wire::UdfKind;

use super::logs;
use crate::args::{
    AddUdfArgs, ListArgs, RemoveUdfArgs, ShowFormat, ShowUdfArgs, TestUdfArgs, UdfCommand,
    UdfLogArgs,
};
use crate::config::Config;
use crate::input::{self, function_files, secrets};
use crate::output::{TableLayout, draw, list};
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// Runs one of the commands.
///
/// # Errors
/// Errors of the platform and of the code.
pub fn run(command: &UdfCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        UdfCommand::Add(args) => add(args, config, printer),
        UdfCommand::Ls(args) => ls(args, config, printer),
        UdfCommand::Show(args) => show(args, config, printer),
        UdfCommand::Test(args) => test(args, config, printer),
        UdfCommand::Log(args) => log(args, config, printer),
        UdfCommand::Rm(args) => rm(args, config, printer),
    }
}

fn add(args: &AddUdfArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let files = function_files::collect(&args.files)?;
    let source = UdfSource {
        code: input::code(&args.file)?,
        packages: input::requirements(&args.packages)?,
        signatures: None,
        image: args.image.clone(),
        files: function_files::refs(&files),
        secrets: secrets::given(&args.secrets, "--secret")?,
    };
    let label = format!("registering {}", args.file.display());
    let added = with_platform(&args.platform, config, printer, &label, async |client| {
        client.send_files(&files).await?;
        if let Some(call) = &args.test {
            printer.note(&tried(client, call, &source).await?);
        }
        client.register(&RegisterRequest { source }).await
    })?;
    for udf in &added {
        printer::print(&format!("{} version {}\n", text::visible(&udf.text), udf.version))?;
    }
    Ok(0)
}

fn ls(args: &ListArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = "listing";
    let udfs =
        with_platform(&args.platform, config, printer, label, async |client| client.udfs().await)?;
    let rows: Vec<_> = udfs.iter().map(row).collect();
    list::print(args.output, &HEADINGS, &rows, &udfs)?;
    if udfs.is_empty() {
        printer.note("no functions; register some with `snowmelt udf add FILE`");
    }
    Ok(0)
}

const HEADINGS: [&str; 6] = ["name", ">version", "signature", "batch", "packages", "registered"];

fn row(udf: &UdfSummary) -> Vec<String> {
    vec![
        udf.name.clone(),
        udf.version.to_string(),
        udf.text.clone(),
        udf.signature.batch.clone(),
        packages(udf),
        text::moment(udf.registered_ms),
    ]
}

fn packages(udf: &UdfSummary) -> String {
    let all = udf.packages.iter().chain(&udf.signature.packages);
    all.map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn show(args: &ShowUdfArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("showing {}", args.name);
    let udf = with_platform(&args.platform, config, printer, &label, async |client| {
        client.udf(&args.name).await
    })?;
    printer::print(&match args.output {
        ShowFormat::Json => list::json(&udf)?,
        ShowFormat::Table => lines(&udf),
    })?;
    Ok(0)
}

/// The settings of a function, one per line; empty ones are omitted.
fn lines(udf: &UdfSummary) -> String {
    let versions = udf.versions.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let rows = [
        ("name", udf.name.clone()),
        ("signature", udf.text.clone()),
        ("version", udf.version.to_string()),
        ("kept", versions),
        ("registered", text::ago(udf.registered_ms)),
        ("batch", udf.signature.batch.clone()),
        ("packages", packages(udf)),
        ("image", udf.image.clone().unwrap_or_default()),
        ("memory", udf.signature.memory.clone().unwrap_or_default()),
        ("timeout", udf.signature.timeout.clone().unwrap_or_default()),
    ];
    let present = rows.into_iter().filter(|(_, value)| !value.is_empty());
    let files = udf.files.iter().map(|(name, file)| {
        ("file", format!("{name}  {}  sha256:{}", ByteSize(file.size), file.digest))
    });
    let secrets =
        udf.secrets.iter().map(|(name, reference)| ("secret", format!("{name}  {reference}")));
    let all = present.chain(files).chain(secrets);
    all.map(|(name, value)| format!("{name:<12} {}\n", text::visible(&value))).collect()
}

fn test(args: &TestUdfArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let call = format!("{}({})", args.name, args.arguments.join(", "));
    let label = format!("calling {}", args.name);
    let result = with_platform(&args.platform, config, printer, &label, async |client| {
        // Without it, a built-in function of that name would be called.
        let udf = client.udf(&args.name).await?;
        match udf.signature.kind {
            UdfKind::Table => {
                let answer = answer(client, format!("select * from {call}"), Vec::new()).await?;
                drawn(&answer)
            }
            _ => value(client, &call, Vec::new()).await,
        }
    })?;
    printer::print(&format!("{result}\n"))?;
    Ok(0)
}

fn log(args: &UdfLogArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("reading the log of {}", args.name);
    let entries = with_platform(&args.platform, config, printer, &label, async |client| {
        client.udf_log(&args.name, args.tail).await
    })?;
    logs::print(&entries, args.output, log_text)?;
    if entries.is_empty() {
        printer.note(&format!("{} has written nothing", args.name));
    }
    Ok(0)
}

fn log_text(entry: &UdfLogEntry) -> String {
    let from = entry.query.as_ref().map_or("a lease", |query| query.as_str());
    logs::entry(&format!("{from} {}", text::moment(entry.at_ms)), &entry.text)
}

fn rm(args: &RemoveUdfArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("removing {}", args.name);
    with_platform(&args.platform, config, printer, &label, async |client| {
        client.remove_udf(&args.name).await
    })?;
    printer.note(&format!("removed {}", args.name));
    Ok(0)
}

/// Calls a function of code that is not registered. Returns its result as text.
async fn tried(client: &ApiClient, call: &str, source: &UdfSource) -> Result<String, ErrorReport> {
    let refused = match value(client, call, vec![source.clone()]).await {
        Ok(result) => return Ok(format!("{call} = {result}")),
        Err(report) => report,
    };
    if refused.code != Code::PLAN_UNSUPPORTED.code {
        return Err(refused);
    }
    // Which of its functions are table functions, only the platform knows.
    let sql = format!("select * from {call}");
    let answer = answer(client, sql, vec![source.clone()]).await;
    // An error of the function itself says more than the refusal of the first form.
    let is_of_function = |report: &ErrorReport| report.code.starts_with("SM-02");
    let answer = answer.map_err(|report| if is_of_function(&report) { report } else { refused })?;
    let rows: usize = answer.iter().map(RecordBatch::num_rows).sum();
    Ok(format!("{call} gives {rows} {}", if rows == 1 { "row" } else { "rows" }))
}

/// The value of an expression, as text.
async fn value(
    client: &ApiClient,
    call: &str,
    udfs: Vec<UdfSource>,
) -> Result<String, ErrorReport> {
    let answer = answer(client, format!("select {call}"), udfs).await?;
    let first = answer.iter().find(|batch| batch.num_rows() > 0);
    let first = first.ok_or_else(|| ErrorReport::new(Code::PROTOCOL, "the call has no result"))?;
    cell(first, 0, 0)
}

/// The answer of a query that reads no tables.
async fn answer(
    client: &ApiClient,
    sql: String,
    udfs: Vec<UdfSource>,
) -> Result<Vec<RecordBatch>, ErrorReport> {
    let request = QueryRequest {
        sql,
        udfs,
        options: QueryOptions { workers: 1, ..QueryOptions::default() },
        working_folder: "/".to_owned(),
        ..QueryRequest::default()
    };
    let mut stream = client.query(&request).await?;
    let mut batches = Vec::new();
    while let Some(frame) = stream.next().await? {
        if let QueryFrame::Batch(batch) = frame {
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Rows as a table.
fn drawn(answer: &[RecordBatch]) -> Result<String, ErrorReport> {
    let Some(first) = answer.first() else { return Ok("no rows".to_owned()) };
    let schema = first.schema();
    let headings: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut rows = Vec::new();
    for batch in answer {
        for row in 0..batch.num_rows() {
            let cells = (0..batch.num_columns()).map(|column| cell(batch, column, row).map(Some));
            rows.push(cells.collect::<Result<Vec<_>, _>>()?);
        }
    }
    if rows.is_empty() {
        return Ok("no rows".to_owned());
    }
    Ok(draw(&headings, &rows, TableLayout::unlimited()).trim_end().to_owned())
}

fn cell(batch: &RecordBatch, column: usize, row: usize) -> Result<String, ErrorReport> {
    let options = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(batch.column(column).as_ref(), &options);
    let formatter =
        formatter.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    Ok(formatter.value(row).to_string())
}
