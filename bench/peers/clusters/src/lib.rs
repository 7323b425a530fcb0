//! What the clients of both engines do: answer queries from their standard input in one session, a
//! line of JSON each way, so that a query finds open connections and footers that are read already.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use serde::{Deserialize, Serialize};

/// The tables of a session.
#[derive(Args)]
pub struct Tables {
    /// A table and where it is: `lineitem=data/tpch/sf1/lineitem` or
    /// `lineitem=s3://bucket/lineitem/`.
    #[arg(long = "table", value_parser = parse_table)]
    tables: Vec<(String, String)>,
}

fn parse_table(text: &str) -> Result<(String, String), String> {
    let (name, location) = text.split_once('=').ok_or("a table is given as name=location")?;
    Ok((name.to_owned(), location.to_owned()))
}

#[derive(Deserialize)]
struct Request {
    sql: String,
    /// Where its rows go, as an Arrow file.
    answer: PathBuf,
}

#[derive(Serialize)]
struct Report {
    rows: usize,
    /// From the text to the rows.
    wall: f64,
}

/// Answers queries until the end of the input.
pub async fn serve(context: &SessionContext, tables: &Tables) -> Result<()> {
    for (name, location) in &tables.tables {
        context
            .register_parquet(name, location, ParquetReadOptions::default())
            .await
            .with_context(|| format!("table {name} at {location}"))?;
    }
    println!("{{}}");
    for line in std::io::stdin().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        println!("{}", serde_json::to_string(&answer(context, &request).await?)?);
    }
    Ok(())
}

async fn answer(context: &SessionContext, request: &Request) -> Result<Report> {
    let begun = Instant::now();
    let frame = context.sql(&request.sql).await?;
    let schema = SchemaRef::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await?;
    let wall = begun.elapsed().as_secs_f64();
    let path = &request.answer;
    write(path, &schema, &batches).with_context(|| path.display().to_string())?;
    Ok(Report { rows: batches.iter().map(RecordBatch::num_rows).sum(), wall })
}

fn write(path: &Path, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<()> {
    // The engines may differ from the logical plan in whether a column can be null.
    let schema = batches.first().map_or_else(|| schema.clone(), RecordBatch::schema);
    let mut writer = FileWriter::try_new(File::create(path)?, &schema)?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()?;
    Ok(())
}
