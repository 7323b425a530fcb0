//! Parses the statements that define functions: `CREATE FUNCTION` and `DROP FUNCTION`.
//!
//! The code of a function is not read here. Types are those that CAST has, in the form that
//! functions take: text without views, times in microseconds.

mod clauses;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, TimeUnit};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_udf::MAX_ARGUMENTS;
use snowmelt_wire::{CreateFunction, Definition, Signature, schema_to_text};

use super::errors::sql_error;
use crate::{Error, Result};
use clauses::Clauses;

/// The result of a function, in its schema.
const RETURNED: &str = "return";

/// A statement as it is written.
enum StatementForm {
    Create(Box<Create>),
    Drop { name: String, if_exists: bool },
    Other,
}

struct Create {
    or_replace: bool,
    name: String,
    arguments: Vec<Argument>,
    returns: SqlType,
    clauses: Clauses,
}

/// An argument, or the result.
struct Argument {
    name: String,
    sql_type: SqlType,
    /// Whether the function is called for its nulls; absent where the statement does not say it.
    nullable: Option<bool>,
}

/// Parses a statement that may define a function.
///
/// # Errors
/// The statement begins to define a function, and is not valid.
pub async fn definition(sql: &str) -> Result<Definition> {
    let syntax = |error: ParserError| sql_error::syntax(&DataFusionError::from(error), sql);
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(sql).map_err(syntax)?;
    match written(&mut parser, sql).map_err(syntax)? {
        StatementForm::Create(create) => create.definition(sql).await,
        StatementForm::Drop { name, if_exists } => Ok(Definition::Drop { name, if_exists }),
        StatementForm::Other => Ok(Definition::Other),
    }
}

fn written(parser: &mut Parser<'_>, sql: &str) -> Result<StatementForm, ParserError> {
    if parser.parse_keywords(&[Keyword::DROP, Keyword::FUNCTION]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_identifier()?.value;
        end(parser)?;
        return Ok(StatementForm::Drop { name, if_exists });
    }
    if !parser.parse_keyword(Keyword::CREATE) {
        return Ok(StatementForm::Other);
    }
    let or_replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
    if !parser.parse_keyword(Keyword::FUNCTION) {
        return Ok(StatementForm::Other);
    }
    let name = parser.parse_identifier()?.value;
    parser.expect_token(&Token::LParen)?;
    let arguments = parser.parse_comma_separated0(argument, Token::RParen)?;
    parser.expect_token(&Token::RParen)?;
    parser.expect_keyword_is(Keyword::RETURNS)?;
    let returns = parser.parse_data_type()?;
    let clauses = Clauses::parse(parser, sql)?;
    end(parser)?;
    Ok(StatementForm::Create(Box::new(Create { or_replace, name, arguments, returns, clauses })))
}

fn argument(parser: &mut Parser<'_>) -> Result<Argument, ParserError> {
    let name = parser.parse_identifier()?.value;
    let sql_type = parser.parse_data_type()?;
    let nullable = if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
        Some(false)
    } else {
        parser.parse_keyword(Keyword::NULL).then_some(true)
    };
    Ok(Argument { name, sql_type, nullable })
}

/// The end of the statement, which is the only one.
fn end(parser: &mut Parser<'_>) -> Result<(), ParserError> {
    while parser.consume_token(&Token::SemiColon) {}
    match parser.next_token() {
        last if last.token == Token::EOF => Ok(()),
        other => parser.expected("the end of the statement", other),
    }
}

impl Create {
    async fn definition(self, sql: &str) -> Result<Definition> {
        if self.arguments.len() > MAX_ARGUMENTS {
            let found = self.arguments.len();
            let message = format!("`{}` has {found} arguments", self.name);
            let report = ErrorReport::new(Code::FUNCTION_SIGNATURE, message);
            return Err(Error::Sql(Box::new(report.hint(format!("{MAX_ARGUMENTS} are allowed")))));
        }
        let state = SessionContext::new().state();
        let called = self.clauses.called_on_null.unwrap_or(false);
        let mut fields = Vec::new();
        for Argument { name, sql_type, nullable } in &self.arguments {
            let found = arrow_type(&state, sql_type, sql).await?;
            fields.push(Field::new(name, found, nullable.unwrap_or(called)));
        }
        // A row without a call has no value.
        fields.push(Field::new(RETURNED, arrow_type(&state, &self.returns, sql).await?, true));
        let schema = schema_to_text(&Schema::new(fields));
        let schema = schema.map_err(|error| Error::Sql(Box::new(error.report())))?;
        let Clauses { options, code, deterministic, .. } = self.clauses;
        let signature = Signature {
            kind: snowmelt_wire::UdfKind::Scalar,
            name: self.name,
            batch: options.batch.unwrap_or_else(|| "scalar".to_owned()),
            schema,
            on_error: options.on_error.unwrap_or_default(),
            deterministic: deterministic.unwrap_or(false),
            packages: Vec::new(),
            memory: options.memory,
            timeout: options.timeout,
        };
        Ok(Definition::Create(Box::new(CreateFunction {
            signature,
            or_replace: self.or_replace,
            packages: options.packages.unwrap_or_default(),
            secrets: options.secrets.unwrap_or_default(),
            image: options.image,
            code,
        })))
    }
}

/// The type of a column of this SQL type.
async fn arrow_type(state: &SessionState, sql_type: &SqlType, sql: &str) -> Result<DataType> {
    let text = sql_type.to_string();
    match state.create_logical_plan(&format!("SELECT CAST(NULL AS {text})")).await {
        Ok(plan) => Ok(plain(plan.schema().field(0).data_type())),
        Err(error) => {
            let message = format!("the type {text} is not supported: {}", error.strip_backtrace());
            let report = ErrorReport::new(Code::SQL_TYPE, message);
            Err(sql_error::location_error(Error::Sql(Box::new(report)), &text, sql))
        }
    }
}

/// The type in which functions get such values.
fn plain(data_type: &DataType) -> DataType {
    use DataType::*;
    let inner = |field: &FieldRef| {
        Arc::new(field.as_ref().clone().with_data_type(plain(field.data_type())))
    };
    match data_type {
        Utf8View => Utf8,
        BinaryView => Binary,
        Time64(_) => Time64(TimeUnit::Microsecond),
        Timestamp(TimeUnit::Nanosecond, zone) => Timestamp(TimeUnit::Microsecond, zone.clone()),
        List(item) => List(inner(item)),
        LargeList(item) => LargeList(inner(item)),
        Struct(fields) => Struct(fields.iter().map(inner).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_udf::ParsedSignature;
    use snowmelt_wire::OnError;

    use super::*;

    async fn created(sql: &str) -> CreateFunction {
        match definition(sql).await {
            Ok(Definition::Create(created)) => *created,
            Ok(other) => panic!("{sql}: {other:?}"),
            Err(error) => panic!("{sql}: {}", error.report()),
        }
    }

    async fn refusal(sql: &str) -> String {
        match definition(sql).await {
            Ok(found) => panic!("accepted: {sql}: {found:?}"),
            Err(error) => error.report().to_string(),
        }
    }

    fn text(created: &CreateFunction) -> String {
        ParsedSignature::parse(&created.signature).unwrap().text()
    }

    #[tokio::test]
    async fn a_function_has_the_declared_types_and_options() {
        let sql = "-- a comment\ncreate or replace function Score(x double, y text null)\n\
                   returns double language python\n\
                   packages = ('numpy', 'six==1.16'), memory = '1GiB' timeout = 30\n\
                   on_error = 'null' as $$\n  return x\n$$;";
        let created = created(sql).await;
        assert_eq!(text(&created), "Score(x DOUBLE, y VARCHAR NULL) DOUBLE");
        assert_eq!(&sql[created.code.clone()], "\n  return x\n");
        assert!(created.or_replace);
        assert_eq!(created.packages, ["numpy", "six==1.16"]);
        let signature = created.signature;
        assert_eq!(signature.memory.as_deref(), Some("1GiB"));
        assert_eq!(signature.timeout.as_deref(), Some("30"));
        assert_eq!((signature.batch.as_str(), signature.on_error), ("scalar", OnError::Null));
    }

    #[tokio::test]
    async fn secrets_are_names_with_references() {
        let sql = "create function f() returns int language python \
                   secrets = ('API_KEY=env:KEY', 'other=file:a=b') as $$ return 1 $$";
        let secrets: Vec<_> = created(sql).await.secrets.into_iter().collect();
        let pair = |name: &str, reference: &str| (name.to_owned(), reference.to_owned());
        assert_eq!(secrets, [pair("API_KEY", "env:KEY"), pair("other", "file:a=b")]);
        for wrong in ["'hunter2'", "('A=env:A', 'A=env:B')", "'=env:A'"] {
            let sql = format!(
                "create function f() returns int language python secrets = {wrong} as $$ $$"
            );
            assert!(refusal(&sql).await.contains("secrets"), "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_code_is_found_wherever_and_however_it_is_quoted() {
        for (sql, code) in [
            ("create function f() returns int language python as $$return '$1'$$", "return '$1'"),
            (
                "create function f() returns int as $é$ü $$ 'x'\r\n$é$ language python",
                "ü $$ 'x'\r\n",
            ),
            ("/* ü\n */ create function f() returns int language python as $$$$", ""),
        ] {
            let created = created(sql).await;
            assert_eq!(&sql[created.code.clone()], code, "{sql}");
        }
    }

    #[tokio::test]
    async fn types_are_those_of_sql_in_the_form_of_functions() {
        let sql = "create function f(a int, b bigint, c varchar(10), d decimal(10, 2), e date, \
                   g timestamp, h boolean, i bytea, j text[], k real, l time) returns smallint \
                   language python called on null input with (image = 'i', batch = 'arrow') \
                   as $$ return 1 $$";
        let created = created(sql).await;
        assert_eq!(
            text(&created).replace(" NULL", ""),
            "f(a INTEGER, b BIGINT, c VARCHAR, d DECIMAL(10, 2), e DATE, g TIMESTAMP, h BOOLEAN, \
             i BLOB, j VARCHAR[], k REAL, l TIME) SMALLINT"
        );
        let parsed = ParsedSignature::parse(&created.signature).unwrap();
        assert!(parsed.arguments.iter().all(|field| field.is_nullable()));
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(parsed.arguments[5].data_type(), &time);
        assert_eq!(
            (created.image.as_deref(), created.signature.batch.as_str()),
            (Some("i"), "arrow")
        );
    }

    #[tokio::test]
    async fn other_statements_are_left_to_the_planner() {
        for sql in
            ["select 1", "create table t (a int)", "drop table t", "create view v as select 1"]
        {
            assert_eq!(definition(sql).await.unwrap(), Definition::Other, "{sql}");
        }
        let drop = |if_exists| Definition::Drop { name: "F".to_owned(), if_exists };
        assert_eq!(definition("drop function F").await.unwrap(), drop(false));
        assert_eq!(definition("DROP FUNCTION IF EXISTS F;").await.unwrap(), drop(true));
    }

    #[tokio::test]
    async fn what_is_wrong_is_shown_where_it_is() {
        let whole = |clauses: &str| format!("create function f(x int) returns int\n{clauses}");
        for (sql, reason, marked) in [
            (whole("language python"), "the code", "language python"),
            (whole("as $$ return 1 $$"), "LANGUAGE python", "as $$"),
            (whole("language js as $$ 1 $$"), "python", "language js"),
            (whole("language python as 'return 1'"), "between $$ and $$", "as 'return 1'"),
            (whole("language python colour = 'red' as $$ $$"), "memory", "colour"),
            (whole("language python memory = '1' memory = '2' as $$ $$"), "twice", "memory"),
            (whole("language python as $$ $$ as $$ $$"), "twice", "as $$"),
            (whole("language python as $$ $$; select 1"), "the end", "select 1"),
            (whole("language python as $$ return 1"), "Unterminated", "return 1"),
            (whole("language python batch = 'polars' as $$ $$"), "", ""),
            ("create function f(int) returns int".to_owned(), "data type", "f(int)"),
            ("create function f(x money[)".to_owned(), "SM-0101", "x money["),
            (
                "create function f(x colour) returns int language python as $$ $$".to_owned(),
                "SM-0103",
                "colour",
            ),
            ("drop function".to_owned(), "identifier", "drop function"),
        ] {
            if reason.is_empty() {
                // The platform checks the values of options, as it does for other functions.
                assert!(definition(&sql).await.is_ok());
                continue;
            }
            let report = refusal(&sql).await;
            assert!(report.contains(reason) && report.contains(marked), "{sql}: {report}");
        }
        let many: Vec<String> = (0..300).map(|n| format!("a{n} int")).collect();
        let many =
            format!("create function f({}) returns int language python as $$ $$", many.join(","));
        assert!(refusal(&many).await.contains("300 arguments"));
    }
}
