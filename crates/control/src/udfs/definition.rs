//! Functions that SQL defines: `CREATE FUNCTION` and `DROP FUNCTION`.
//!
//! Boundary: the statement is parsed in a sandbox. Here its first word is read, and the code of the
//! function is cut out of the text that the client sent, so that a sandbox cannot put another
//! there.

use std::time::Instant;

use snowmelt_api::{QueryRequest, UdfSource};
use snowmelt_tasks::{QueryRunner, WorkerLimits};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, Report, Tenant};
use snowmelt_udf::ParsedSignature;
use snowmelt_wire::{CreateFunction, Definition, SourceCode};

use super::UdfRegistry;
use super::registry::check;
use crate::access::identity::Identity;
use crate::reports::Events;
use crate::state::records::Existing;

/// A statement that defines a function has no tasks.
const NO_TASK: WorkerLimits = WorkerLimits { memory: ByteSize(0), cpu: CpuMillis(0) };

impl UdfRegistry {
    /// Carries out a statement that defines a function, and returns the query whose rows are its
    /// answer; `None` for any other statement. The statement is parsed with as many threads as a
    /// driver has, in the sandbox of an idle driver if there is one.
    pub async fn define(
        &self,
        identity: &Identity,
        request: &QueryRequest,
        threads: u32,
        events: &Events,
    ) -> Result<Option<QueryRequest>, ErrorReport> {
        if !may_define(&request.sql) {
            return no_files(request).map(|()| None);
        }
        let tenant = &identity.tenant;
        let definition = {
            // Its room is free before the code of the function is loaded, which needs other room.
            let host = self.catalog.host.clone();
            let name = "definition".to_owned();
            let runner = QueryRunner::new(host, name, tenant.clone(), Instant::now(), NO_TASK, []);
            snowmelt_tasks::definition(&runner, &request.sql, threads).await?
        };
        if !matches!(definition, Definition::Other) {
            no_parameters(request)?;
        }
        let sql = match definition {
            Definition::Create(create) => self.create(identity, request, *create, events).await?,
            Definition::Drop { name, if_exists } => {
                no_files(request)?;
                self.drop_one(tenant, &name, if_exists).await?
            }
            Definition::Other => return no_files(request).map(|()| None),
        };
        let options = request.options.clone();
        let working_folder = request.working_folder.clone();
        Ok(Some(QueryRequest { sql, options, working_folder, ..QueryRequest::default() }))
    }

    async fn create(
        &self,
        identity: &Identity,
        request: &QueryRequest,
        create: CreateFunction,
        events: &Events,
    ) -> Result<String, ErrorReport> {
        let name = create.signature.name.clone();
        check(&name)?;
        // Before anything is installed for it.
        let parsed = ParsedSignature::parse(&create.signature).map_err(|error| error.report())?;
        let existing = if create.or_replace { Existing::Replaced } else { Existing::Refused };
        let tenant = &identity.tenant;
        self.records.check_udf(tenant, &name, existing).await?;
        let source = source(request, create)?;
        identity.check_udf_source(&source)?;
        let made = self.put(tenant, source, existing, &|_| Ok(()), events).await?;
        let version = made.first().map_or(0, |record| record.version);
        let name = literal(&name);
        let text = literal(&parsed.text());
        Ok(format!("SELECT {name} AS \"function\", {version} AS version, {text} AS signature"))
    }

    async fn drop_one(
        &self,
        tenant: &Tenant,
        name: &str,
        if_exists: bool,
    ) -> Result<String, ErrorReport> {
        check(name)?;
        let dropped = if if_exists {
            self.remove_if_exists(tenant, name).await?
        } else {
            self.remove(tenant, name).await?;
            true
        };
        Ok(format!("SELECT {} AS \"function\", {dropped} AS dropped", literal(name)))
    }
}

/// Returns whether a statement may define a function, by its first word. All others are queries.
pub(super) fn may_define(sql: &str) -> bool {
    let text = without_comments(sql);
    let ends = |c: char| !c.is_alphanumeric() && c != '_';
    let end = text.find(ends).unwrap_or(text.len());
    ["create", "drop"].iter().any(|word| text[..end].eq_ignore_ascii_case(word))
}

/// Returns the text behind spaces and comments at its beginning.
fn without_comments(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            after_comment(comment)
        } else {
            return rest;
        }
        .trim_start();
    }
}

/// Returns the text behind a comment, in which other comments can be nested.
fn after_comment(comment: &str) -> &str {
    let mut depth = 1_usize;
    let mut rest = comment;
    while depth > 0 {
        let Some(at) = rest.find(['*', '/']) else { return "" };
        rest = &rest[at..];
        let (step, width) = match rest.as_bytes() {
            [b'*', b'/', ..] => (-1, 2),
            [b'/', b'*', ..] => (1, 2),
            _ => (0, 1),
        };
        depth = depth.saturating_add_signed(step);
        rest = &rest[width..];
    }
    rest
}

/// Refuses files that come with a statement which defines no function: nothing would read them.
fn no_files(request: &QueryRequest) -> Result<(), ErrorReport> {
    if request.files.is_empty() {
        return Ok(());
    }
    let message = "files come with this statement, which defines no function";
    Err(ErrorReport::new(Code::FUNCTION_FILE, message)
        .hint("give them with the code of a function, or with CREATE FUNCTION"))
}

/// Refuses parameters of a statement that defines a function, which has no places for values.
fn no_parameters(request: &QueryRequest) -> Result<(), ErrorReport> {
    if request.params.is_empty() {
        return Ok(());
    }
    let message = "values of parameters come with a statement that defines a function";
    Err(ErrorReport::new(Code::OPTION, message).hint("pass them to the query that calls it"))
}

/// Makes the code of a function from its statement.
fn source(request: &QueryRequest, create: CreateFunction) -> Result<UdfSource, ErrorReport> {
    let sql = request.sql.as_str();
    let files = request.files.clone();
    let CreateFunction { signature, packages, secrets, image, code, .. } = create;
    let outside = || ErrorReport::new(Code::PROTOCOL, "the code is not a part of its statement");
    let before = sql.get(..code.start).ok_or_else(outside)?;
    let body = sql.get(code).ok_or_else(outside)?;
    let (text, indented) = lines(before, body);
    let file = format!("CREATE FUNCTION {}", signature.name);
    let code = SourceCode::Definition { file, text, indented, signature: Box::new(signature) };
    Ok(UdfSource { code, packages, signatures: None, image, files, secrets })
}

/// Returns the code with the line numbers of its statement, and whether it is inside of an `if`:
/// then the code can be indented without a change of the texts in it.
fn lines(before: &str, body: &str) -> (String, bool) {
    let above = "\n".repeat(before.matches('\n').count());
    let (first, rest) = body.split_once('\n').unwrap_or((body, ""));
    if !first.trim().is_empty() {
        return (format!("{above}{}\n{rest}", first.trim_start()), false);
    }
    let is_code = |line: &&str| !matches!(line.trim_start().chars().next(), None | Some('#'));
    let indented = rest.lines().find(is_code).is_some_and(|line| line.starts_with([' ', '\t']));
    (format!("{above}{}\n{rest}", if indented { "if True:" } else { "" }), indented)
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use snowmelt_wire::{OnError, Signature};

    use super::*;

    #[test]
    fn the_first_word_tells_definitions() {
        for sql in ["create function f", " DROP function f", "-- a\n/* b /* c */ */ Create\nx"] {
            assert!(may_define(sql), "{sql}");
        }
        for sql in [
            "select 1",
            "with create as (select 1) select 1",
            "created",
            "create_x",
            "",
            "-- create",
            "/* create",
            "/* */ select 'create'",
            "'create'",
        ] {
            assert!(!may_define(sql), "{sql}");
        }
    }

    #[test]
    fn code_keeps_its_lines() {
        let line = |text: &str, wanted: &str| {
            text.lines().position(|line| line.contains(wanted)).map(|line| line + 1)
        };
        let before = "create function f()\nreturns int as $$";
        for (body, indented) in [
            ("\nx = 1\nreturn x\n", false),
            ("\n    # comment\n    x = 1\n    return x\n", true),
            ("\n# comment\n\n\tx = 1\n\treturn x\n  ", true),
            (" x = 1\nreturn x", false),
            ("\r\n  x = 1\r\n  return x\r\n", true),
        ] {
            let (text, found) = lines(before, body);
            let whole = format!("{before}{body}");
            assert_eq!(line(&text, "return x"), line(&whole, "return x"), "{body:?}: {text:?}");
            assert_eq!(line(&text, "x = 1"), line(&whole, "x = 1"), "{body:?}: {text:?}");
            assert_eq!(found, indented, "{body:?}");
        }
        assert_eq!(lines("", " return 1 "), ("return 1 \n".to_owned(), false));
        assert_eq!(lines("", ""), ("\n".to_owned(), false));
    }

    #[test]
    fn only_a_part_of_the_statement_is_code() {
        let signature = Signature {
            kind: snowmelt_wire::UdfKind::Scalar,
            name: "f".to_owned(),
            batch: "scalar".to_owned(),
            schema: String::new(),
            on_error: OnError::Raise,
            deterministic: false,
            packages: Vec::new(),
            memory: None,
            timeout: None,
        };
        let create = |code| CreateFunction {
            signature: signature.clone(),
            or_replace: false,
            packages: Vec::new(),
            secrets: Default::default(),
            image: None,
            code,
        };
        let request = QueryRequest { sql: "é $$x$$".to_owned(), ..QueryRequest::default() };
        let SourceCode::Definition { text, .. } = source(&request, create(5..6)).unwrap().code
        else {
            panic!("it is a definition");
        };
        assert_eq!(text, "x\n");
        // Backwards, too long, and inside of a letter.
        for (start, end) in [(6, 5), (5, 99), (1, 6)] {
            assert!(source(&request, create(Range { start, end })).is_err());
        }
    }
}
