//! Parses one SELECT statement and refuses all others.
//!
//! Invariant: an accepted statement only reads. Statements that write, define or set something are
//! refused by name before they are planned.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr,
    Statement as SqlStatement, Visit, Visitor,
};
use snowmelt_execute::sql_semantics;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::Parameters;

use super::dialect::{self, PostgresLike};
use super::errors::sql_error;
use super::parameters::{self, ParameterValues};
use super::pivot::{self, PivotValues, Unwritten};
use super::{asof, equivalents, from, samples, semantics};
use crate::{Error, Result};

/// A statement that may run.
pub(crate) struct Statement {
    /// The query, without its EXPLAIN. Its parameters are in it: they name columns.
    pub(crate) query: DfStatement,
    /// The values of the query's parameters.
    pub(crate) values: ParameterValues,
    /// The kind of result that the statement gives.
    pub(crate) result_kind: ResultKind,
    /// Names in single quotes in FROM, which are always locations.
    pub(crate) quoted: BTreeSet<String>,
    /// A query that finds the values of a PIVOT. It is to run first: the statement is incomplete.
    pub(crate) unlisted: Option<String>,
}

/// The kind of a statement's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultKind {
    /// The rows.
    Rows,
    /// EXPLAIN: the plan.
    Plan,
    /// EXPLAIN COST: what the query will cost.
    Cost,
    /// DESCRIBE: the columns and their types.
    Columns,
    /// SUMMARIZE: a row about each column.
    Summary,
    /// SHOW TABLES: the tables that were named beside the statement.
    Tables,
}

/// Parses a text that must contain exactly one statement, which only reads.
pub(crate) fn parse(sql: &str, params: &Parameters, known: &PivotValues) -> Result<Statement> {
    let text = Text { sql, params, known };
    if let Some(plain) = as_describe(sql) {
        let statement = parse_plain(&plain, text)?;
        return match statement.result_kind {
            ResultKind::Columns => Ok(Statement { result_kind: ResultKind::Summary, ..statement }),
            _ => Err(refused("SUMMARIZE needs a table or a query", "write SUMMARIZE t")),
        };
    }
    let Some(plain) = without_cost(sql) else { return parse_plain(sql, text) };
    let statement = parse_plain(&plain, text)?;
    match statement.result_kind {
        ResultKind::Plan => Ok(Statement { result_kind: ResultKind::Cost, ..statement }),
        _ => Err(refused("EXPLAIN COST needs a query", "write EXPLAIN COST SELECT …")),
    }
}

/// The text of a statement, with the values of its parameters and of its PIVOTs.
#[derive(Clone, Copy)]
struct Text<'a> {
    sql: &'a str,
    params: &'a Parameters,
    known: &'a PivotValues,
}

/// Rewrites an EXPLAIN COST as an EXPLAIN, which the parser knows. Spaces replace the word, so that
/// positions in errors stay right.
fn without_cost(sql: &str) -> Option<String> {
    let explain = sql.trim_start();
    let rest = explain.get(..7).filter(|word| word.eq_ignore_ascii_case("explain"))?;
    let cost = explain[rest.len()..].trim_start();
    let is_word = cost.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("cost"));
    let begin = sql.len() - cost.len();
    let is_apart = cost.len() < explain.len() - rest.len()
        && cost[4.min(cost.len())..].starts_with(|next: char| next.is_whitespace() || next == '(');
    (is_word && is_apart).then(|| format!("{}    {}", &sql[..begin], &sql[begin + 4..]))
}

/// Rewrites a SUMMARIZE as a DESCRIBE, which the parser knows and which takes the same operands.
fn as_describe(sql: &str) -> Option<String> {
    const WORD: &str = "summarize";
    let begin = sql.len() - sql.trim_start().len();
    let word = sql.get(begin..begin + WORD.len())?;
    let rest = &sql[begin + WORD.len()..];
    let is_word = rest.starts_with(|next: char| next.is_whitespace() || matches!(next, '(' | '\''));
    (is_word && word.eq_ignore_ascii_case(WORD))
        .then(|| format!("{}describe {rest}", &sql[..begin]))
}

/// Parses `plain`; errors show the text, which has the same positions.
fn parse_plain(plain: &str, text: Text<'_>) -> Result<Statement> {
    let parsed = dialect::tokens(plain, &PostgresLike)
        .and_then(|tokens| DFParserBuilder::new(tokens).with_dialect(&PostgresLike).build())
        .and_then(|mut parser| parser.parse_statements());
    let mut statements = parsed.map_err(|error| sql_error::syntax(&error, text.sql))?;
    match (statements.pop_front(), statements.len()) {
        (None, _) => Err(refused("there is no statement in the SQL", "write one SELECT")),
        (Some(only), 0) => accept(only, ResultKind::Rows, text),
        (Some(_), more) => {
            let message = format!("the SQL contains {} statements", more + 1);
            Err(refused(&message, "run them one by one"))
        }
    }
}

fn accept(statement: DfStatement, result_kind: ResultKind, text: Text<'_>) -> Result<Statement> {
    match statement {
        DfStatement::Statement(inner) => accept_sql(*inner, result_kind, text),
        DfStatement::Explain(inner) if inner.options.analyze => {
            Err(refused("EXPLAIN ANALYZE is not supported", ANALYZE_HINT))
        }
        DfStatement::Explain(inner) => accept(*inner.statement, ResultKind::Plan, text),
        DfStatement::CopyTo(_) => {
            Err(refused("COPY is not allowed", "choose the output with -o and redirect it"))
        }
        other => Err(not_a_query(&other.to_string())),
    }
}

const PIVOT_HINT: &str = "write PIVOT t ON a, b USING sum(x), FROM t PIVOT (sum(x) FOR c IN ('a', 'b')), \
                          or aggregates with FILTER (WHERE c = 'a')";

const ANALYZE_HINT: &str =
    "the profile has rows and time of each operator: run the query with --profile";

fn accept_sql(
    statement: SqlStatement,
    result_kind: ResultKind,
    text: Text<'_>,
) -> Result<Statement> {
    let mut query = match statement {
        SqlStatement::Query(query) => query,
        SqlStatement::ExplainTable { table_name, .. } => {
            let all = parse(&format!("select * from {table_name}"), text.params, text.known)?;
            return Ok(Statement { result_kind: ResultKind::Columns, ..all });
        }
        SqlStatement::Explain { statement, analyze: false, .. } => {
            return accept_sql(*statement, ResultKind::Columns, text);
        }
        SqlStatement::ShowTables { .. } => {
            let any = parse("select 1", text.params, text.known)?;
            return Ok(Statement { result_kind: ResultKind::Tables, ..any });
        }
        other => return Err(not_a_query(&other.to_string())),
    };
    let wrong = |(report, name): parameters::ParameterError| match name {
        Some(name) => sql_error::location_error(Error::Sql(Box::new(report)), &name, text.sql),
        None => Error::Sql(Box::new(report)),
    };
    let values = ParameterValues::new(&query, text.params).map_err(wrong)?;
    let asked = |query: &Query| values.of(query).ok().map(|query| query.to_string());
    match pivot::write(&mut query, text.known, &asked) {
        Ok(()) => (),
        Err(Unwritten::Wrong(message)) => return Err(refused(&message, PIVOT_HINT)),
        Err(Unwritten::Unlisted(finding)) => {
            let unlisted = Some(values.of(&finding).map_err(wrong)?.to_string());
            let query = DfStatement::Statement(Box::new(SqlStatement::Query(finding)));
            return Ok(Statement { query, values, result_kind, quoted: BTreeSet::new(), unlisted });
        }
    }
    let mut check = ReadOnlyCheck::default();
    if let ControlFlow::Break(refusal) =
        Visit::visit(&values.of(&query).map_err(wrong)?, &mut check)
    {
        return Err(refusal);
    }
    from::write(&mut query).map_err(|(message, hint)| unsupported(message, hint))?;
    samples::write(&mut query).map_err(|(message, hint)| refused(message, hint))?;
    asof::write(&mut query).map_err(|(message, hint)| refused(message, hint))?;
    let query = DfStatement::Statement(Box::new(SqlStatement::Query(query)));
    Ok(Statement { query, values, result_kind, quoted: check.quoted, unlisted: None })
}

/// Visits a query: refuses hidden writes, and collects the locations in FROM.
#[derive(Default)]
struct ReadOnlyCheck {
    quoted: BTreeSet<String>,
}

impl Visitor for ReadOnlyCheck {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        if !query.locks.is_empty() {
            return ControlFlow::Break(not_a_query("FOR UPDATE"));
        }
        if let Some((message, hint)) = equivalents::refused_clause(query) {
            return ControlFlow::Break(refused(message, hint));
        }
        match writes(&query.body) {
            Some(what) => ControlFlow::Break(not_a_query(&what)),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        let refusal = equivalents::refused_groups(select)
            .or_else(|| equivalents::refused_values(select))
            .or_else(|| refused_star(select));
        match refusal {
            Some((message, hint)) => ControlFlow::Break(refused(message, hint)),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Error> {
        if let [ObjectNamePart::Identifier(name)] = relation.0.as_slice()
            && name.quote_style == Some('\'')
        {
            self.quoted.insert(name.value.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        if let Expr::Function(function) = expr
            && let Some(ObjectNamePart::Identifier(name)) = function.name.0.last()
            && sql_semantics::is_operator(&name.value.to_lowercase())
        {
            let report = ErrorReport::new(Code::SQL_NAME, format!("there is no function `{name}`"));
            return ControlFlow::Break(Error::Sql(Box::new(report)));
        }
        match semantics::refused(expr).or_else(|| equivalents::refused_frame(expr)) {
            Some((message, hint)) => ControlFlow::Break(refused(message, hint)),
            None => ControlFlow::Continue(()),
        }
    }
}

/// The planner takes `t.* ILIKE 'a'` for all columns of the table.
fn refused_star(select: &Select) -> Option<(&'static str, &'static str)> {
    let is_star = |item: &SelectItem| match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
            options.opt_ilike.is_some()
        }
        _ => false,
    };
    select.projection.iter().any(is_star).then_some((
        "a condition of the columns of one table is not supported",
        "write * LIKE 'a%', which is of the columns of all tables, or take them in a subquery",
    ))
}

fn writes(body: &SetExpr) -> Option<String> {
    match body {
        SetExpr::Select(select) if select.into.is_some() => Some("SELECT INTO".to_owned()),
        SetExpr::SetOperation { left, right, .. } => writes(left).or_else(|| writes(right)),
        SetExpr::Insert(inner)
        | SetExpr::Update(inner)
        | SetExpr::Delete(inner)
        | SetExpr::Merge(inner) => Some(inner.to_string()),
        _ => None,
    }
}

fn not_a_query(text: &str) -> Error {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = ["CREATE", "DROP", "ALTER", "SELECT", "FOR", "INSERT", "DELETE"];
    let two = words.first().is_some_and(|first| pairs.contains(first));
    let name = words[..words.len().min(if two { 2 } else { 1 })].join(" ");
    refused(
        &format!("{name} is not allowed: only queries are allowed"),
        "write one SELECT; tables are files that it names in FROM",
    )
}

fn unsupported(message: &str, hint: &str) -> Error {
    Error::Sql(Box::new(ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(hint)))
}

fn refused(message: &str, hint: &str) -> Error {
    Error::Sql(Box::new(ErrorReport::new(Code::SQL_SYNTAX, message).hint(hint)))
}

#[cfg(test)]
mod tests {
    use snowmelt_types::Report;

    use super::*;

    fn parse(sql: &str) -> Result<Statement> {
        super::parse(sql, &Parameters::default(), &PivotValues::new())
    }

    fn refusal(sql: &str) -> String {
        match parse(sql) {
            Ok(_) => panic!("accepted: {sql}"),
            Err(error) => error.report().to_string(),
        }
    }

    #[test]
    fn queries_explain_and_describe_are_accepted() {
        for sql in ["select 1", "with t as (select 1) select * from t", "values (1), (2)"] {
            assert_eq!(parse(sql).unwrap().result_kind, ResultKind::Rows);
        }
        assert_eq!(parse("explain select 1").unwrap().result_kind, ResultKind::Plan);
        for sql in ["explain cost select 1", " EXPLAIN\nCost\nselect 1", "explain cost(select 1)"] {
            assert_eq!(parse(sql).unwrap().result_kind, ResultKind::Cost, "{sql}");
        }
        for sql in ["describe t", "desc 'a/*.parquet'", "describe select 1"] {
            assert_eq!(parse(sql).unwrap().result_kind, ResultKind::Columns);
        }
        assert!(parse("describe 'a/*.parquet'").unwrap().quoted.contains("a/*.parquet"));
        for sql in ["summarize t", " SUMMARIZE 'a/*.parquet'", "summarize select 1"] {
            assert_eq!(parse(sql).unwrap().result_kind, ResultKind::Summary, "{sql}");
        }
        assert_eq!(parse("show tables").unwrap().result_kind, ResultKind::Tables);
        assert!(refusal("summarize").contains("SM-0101"));
        assert!(refusal("summarizes t").contains("SM-0101"));
        assert!(parse("select 1;").is_ok());
    }

    #[test]
    fn statements_that_write_are_refused_by_name() {
        for (sql, name) in [
            ("drop table t", "DROP TABLE"),
            ("create table t as select 1", "CREATE TABLE"),
            ("insert into t values (1)", "INSERT INTO"),
            ("update t set a = 1", "UPDATE"),
            ("delete from t", "DELETE FROM"),
            ("set a = 1", "SET"),
            ("copy t to 'x.csv'", "COPY"),
            ("create external table t stored as csv location 'x'", "CREATE EXTERNAL"),
            ("select 1 into t", "SELECT INTO"),
            ("explain analyze select 1", "EXPLAIN ANALYZE"),
            ("select * from t tablesample (10) repeatable (1.5)", "seed"),
        ] {
            let report = refusal(sql);
            assert!(report.contains(name) && report.contains("SM-0101"), "{sql}: {report}");
        }
    }

    #[test]
    fn exactly_one_statement_is_required() {
        assert!(refusal("").contains("no statement"));
        assert!(refusal("  -- only a comment").contains("no statement"));
        assert!(refusal("select 1; select 2").contains("2 statements"));
    }

    #[test]
    fn from_alone_selects_everything() {
        for sql in ["from t limit 2", "select * from (from t)"] {
            let text = parse(sql).unwrap().query.to_string().to_lowercase();
            assert!(text.contains("select * from t"), "{text}");
        }
    }

    #[test]
    fn explain_cost_needs_a_query() {
        for sql in
            ["explain cost", "explain cost set a = 1", "explain costs select 1", "explaincost"]
        {
            assert!(refusal(sql).contains("SM-0101"), "{sql}");
        }
        assert!(refusal("explain cost analyze select 1").contains("ANALYZE"));
        // The caret is below the wrong word.
        let report = refusal("explain cost select a from t where (a > 1 group");
        assert!(report.contains("explain cost select a from t where"), "{report}");
    }

    #[test]
    fn a_parameter_needs_a_value() {
        let report = refusal("select * from t where a = $1");
        assert!(report.contains("$1 has no value") && report.contains("--param"), "{report}");
    }
}
