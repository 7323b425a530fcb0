//! Snapshots of every help text.

use crate::run::TestEnv;

/// The commands, each of which has a help text.
const COMMANDS: [&str; 83] = [
    "",
    "sql",
    "fn",
    "fn deploy",
    "fn pack",
    "fn new",
    "fn ls",
    "fn show",
    "fn call",
    "fn burst",
    "fn result",
    "fn logs",
    "fn rm",
    "burst",
    "burst ls",
    "burst wait",
    "burst cancel",
    "image",
    "image convert",
    "image build",
    "image push",
    "image pull",
    "image warm",
    "image ls",
    "image inspect",
    "image verify",
    "image diff",
    "image rm",
    "image prune",
    "image key",
    "up",
    "down",
    "backup",
    "hosts",
    "hosts drain",
    "store",
    "store copy",
    "du",
    "prune",
    "status",
    "token",
    "token new",
    "token ls",
    "token rotate",
    "token revoke",
    "quota",
    "quota ls",
    "quota set",
    "quota reset",
    "audit",
    "audit verify",
    "login",
    "logout",
    "context",
    "context ls",
    "context show",
    "context set",
    "context use",
    "context rm",
    "context token",
    "cluster",
    "cluster join-token",
    "tree",
    "net",
    "net ls",
    "net show",
    "net trace",
    "lab",
    "lab up",
    "lab add",
    "lab ls",
    "lab run",
    "lab exec",
    "lab fail",
    "lab heal",
    "lab restart",
    "lab pool",
    "lab down",
    "simulate",
    "doctor",
    "completions",
    "config",
    "config show",
];

#[test]
fn help_texts() {
    let env = TestEnv::new();
    for command in COMMANDS {
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let ran = env.run_with(&[("COLUMNS", "100")], &arguments);
        assert_eq!((ran.exit, ran.err.as_str()), (Some(0), ""), "{command}");
        let name = format!("help {command}").trim_end().replace(' ', "-");
        insta::assert_snapshot!(name, ran.out);
    }
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let env = TestEnv::new();
    let commands = [
        "sql",
        "fn deploy",
        "fn pack",
        "fn new",
        "fn ls",
        "fn show",
        "fn call",
        "fn burst",
        "fn result",
        "fn logs",
        "fn rm",
        "image convert",
        "image build",
        "image push",
        "image pull",
        "image warm",
        "image ls",
        "image inspect",
        "image verify",
        "image diff",
        "image prune",
        "image key",
        "burst ls",
        "net ls",
        "net show",
        "net trace",
        "lab up",
        "lab run",
        "lab exec",
        "lab fail",
        "simulate",
        "up",
        "token new",
        "token ls",
        "token rotate",
        "token revoke",
        "cluster join-token",
        "node",
    ];
    for command in commands {
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let shown = env.run(&arguments).out;
        assert!(shown.contains(&format!("  snowmelt {command}")), "{shown}");
    }
}

#[test]
fn the_word_help_is_the_same_as_the_option() {
    let env = TestEnv::new();
    for (asked, option) in [
        (["help"].as_slice(), ["--help"].as_slice()),
        (&["help", "sql"], &["sql", "--help"]),
        (&["help", "fn", "deploy"], &["fn", "deploy", "--help"]),
        (&["fn", "help", "deploy"], &["fn", "deploy", "--help"]),
    ] {
        let asked = env.run(asked);
        let option = env.run(option);
        assert_eq!((asked.exit, &asked.out), (Some(0), &option.out), "{asked:?}");
    }
    // In the position of a name, it is a name.
    assert!(!env.run(&["fn", "show", "help"]).out.contains("Usage"));
}

#[test]
fn completions_and_manual_pages_are_generated_from_the_grammar() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = env.run(&["completions", shell]).out;
        assert!(script.contains("snowmelt") && script.contains("profile-out"), "{shell}");
    }
    assert_eq!(env.run(&["man", "pages"]).exit, Some(0));
    let page = std::fs::read_to_string(env.path("pages/snowmelt-fn-deploy.1")).unwrap();
    assert!(page.contains(".TH SNOWMELT-FN-DEPLOY 1") && page.contains("\\-\\-memory"), "{page}");
    assert!(!env.path("pages/snowmelt-serve.1").exists(), "it is hidden");
}

#[test]
fn without_arguments_the_help_is_shown() {
    let ran = TestEnv::new().run(&[]);
    assert_eq!((ran.exit, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("Commands:"), "{}", ran.err);
}

#[test]
fn the_option_version_prints_the_version_and_the_build() {
    let ran = TestEnv::new().run(&["--version"]);
    let shown = ran.out.strip_prefix(concat!("snowmelt ", env!("CARGO_PKG_VERSION"), "+"));
    let build = shown.unwrap().trim_end();
    assert!(build.len() == 12 && build.bytes().all(|byte| byte.is_ascii_hexdigit()), "{build}");
}
