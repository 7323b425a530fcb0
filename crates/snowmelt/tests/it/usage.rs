//! Mistakes on the command line: the message, its stream and the exit code.

use crate::run::{RunOutput, TestEnv};

fn shown(env: &TestEnv, ran: &RunOutput) -> String {
    assert_eq!(ran.out, "", "an error is never written to stdout");
    let exit = ran.exit.map_or("a signal".to_owned(), |exit| exit.to_string());
    format!("exit {exit}\n{}", env.anonymous(&ran.err))
}

#[test]
fn mistakes() {
    let env = TestEnv::new();
    env.write("empty.sql", " \n");
    env.write("f.py", "def handler(event): return event\n");
    let mistakes: &[&[&str]] = &[
        &["sqll", "select 1"],
        &["sql", "select 1", "--worker", "3"],
        &["sql", "select 1", "--workers", "many"],
        &["sql", "select 1", "--memory", "5 parsecs"],
        &["sql", "select 1", "--timeout", "soon"],
        &["sql", "select 1", "-o", "xml"],
        &["sql", "select 1", "--table", "lineitem"],
        &["sql", "select 1", "--table", "t=a", "--table", "t=b"],
        &["sql", "select 1", "-f", "q.sql"],
        &["sql", "select 1", "--package", "six"],
        &["sql", "select 1", "--embedded", "--server", "/tmp/x.sock"],
        &["sql", "-f", "missing.sql"],
        &["sql", "-f", "empty.sql"],
        &["sql"],
        &["sql", "select 1", "--udf", "missing.py"],
        &["sql", "select 1", "-O", "no/such/folder/a.csv", "--server", "none.sock"],
        &["sql", "select 1", "--profile-out", "no/such/folder/p.html"],
        &["fn", "deploy", "../etc", "f.py"],
        &["fn", "deploy", "f", "missing.py"],
        &["fn", "deploy", "f", "f.py", "--env", "X"],
        &["fn", "deploy", "f", "f.py", "--cpu", "0"],
        &["fn", "call", "f", "--data", "{width: 80}"],
        &["fn", "call", "f", "--data", "@missing.json"],
        &["fn", "call", "f", "--async"],
        &["image", "convert", "app.tar", "app:v1"],
        &["help", "slq"],
        &["serve"],
        &["status"],
    ];
    let mut all = String::new();
    for mistake in mistakes {
        let ran = env.run(mistake);
        all += &format!("$ snowmelt {}\n{}\n", mistake.join(" "), shown(&env, &ran));
    }
    insta::assert_snapshot!("mistakes", all);
    assert_eq!(env.names(), ["empty.sql", "f.py"], "a mistake creates no files");
}

#[test]
fn with_errors_json_an_error_is_one_json_object() {
    let env = TestEnv::new();
    for (exit, arguments) in [
        (2, ["--errors", "json", "sql", "select 1", "--wrokers"].as_slice()),
        (2, &["fn", "call", "f", "--data", "{", "--errors=json"]),
        (3, &["--errors=json", "status"]),
    ] {
        let ran = env.run(arguments);
        let report = ran.report();
        assert_eq!(ran.exit, Some(exit), "{report}");
        assert!(report["code"].as_str().unwrap().starts_with("SM-"), "{report}");
        assert!(!report["message"].as_str().unwrap().is_empty(), "{report}");
    }
    let ran = env.run_with(&[("SNOWMELT_ERRORS", "json")], &["sqll"]);
    assert_eq!(ran.report()["code"], "SM-0110");
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let env = TestEnv::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = env.command(&["config", "show"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error[SM-0114]"));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = env.command(&["config", "show"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn a_terminal_gets_colour_but_no_binary_output() {
    let env = TestEnv::new();
    let ran = env.run_on_terminal(&[], &["sql", "select 1", "-o", "arrow"]);
    insta::assert_snapshot!(ran, @r"
    \u{1b}[1;31merror[SM-0110]\u{1b}[0m: arrow is binary and stdout is a terminal
    \u{1b}[1;36mhint: \u{1b}[0mwrite a file with -O answer.arrow, or pipe it to a program
    ");
    let ran = env.run_on_terminal(&[("NO_COLOR", "1")], &["sql", "select 1", "-o", "parquet"]);
    insta::assert_snapshot!(ran, @r"
    error[SM-0110]: parquet is binary and stdout is a terminal
    hint: write a file with -O answer.parquet, or pipe it to a program
    ");
}

#[test]
fn down_succeeds_if_no_server_is_running() {
    let ran = TestEnv::new().run(&["down"]);
    assert_eq!((ran.exit, ran.err.as_str()), (Some(0), "no server is running\n"));
}
