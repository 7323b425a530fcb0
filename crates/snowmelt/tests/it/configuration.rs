//! The precedence of settings, and the errors of invalid ones.

use crate::run::TestEnv;

#[test]
fn options_override_variables_which_override_the_file_and_the_defaults() {
    let env = TestEnv::new();
    let file = env.write(
        "config.toml",
        "[query]\nworkers = 3\nmemory = \"2GiB\"\n\n[output]\nprogress = \"plain\"\nrows = 7\n",
    );
    let variables = [
        ("SNOWMELT_CONFIG", file.to_str().unwrap()),
        ("SNOWMELT_MEMORY", "512MiB"),
        ("SNOWMELT_PROGRESS", "tty"),
        ("SNOWMELT_SOCKET", "there.sock"),
    ];
    let ran = env.run_with(&variables, &["config", "show", "--origin", "--progress", "quiet"]);
    assert_eq!((ran.exit, ran.err.as_str()), (Some(0), ""));
    insta::assert_snapshot!("origins", squeezed(&env.anonymous(&ran.out)));
}

// Paths of different lengths must not move the comments.
fn squeezed(shown: &str) -> String {
    let line = |line: &str| match line.split_once("  # ") {
        Some((setting, origin)) => format!("{} # {origin}\n", setting.trim_end()),
        None => format!("{line}\n"),
    };
    shown.lines().map(line).collect()
}

#[test]
fn the_shown_configuration_gives_the_same_settings_when_read_again() {
    let env = TestEnv::new();
    let shown = env.run(&["config", "show"]).out;
    let file = env.write("config.toml", &shown);
    let again = env.run_with(&[("SNOWMELT_CONFIG", file.to_str().unwrap())], &["config", "show"]);
    assert_eq!((again.exit, again.out), (Some(0), shown));
}

#[test]
fn quotas_are_a_list_of_kinds_and_limits() {
    let env = TestEnv::new();
    let shown = |quotas| env.run_with(&[("SNOWMELT_QUOTAS_DEFAULT", quotas)], &["config", "show"]);
    let limited = shown("memory=2GiB, instances=8,request_memory=none").out;
    let expected = "[quotas]\ndefault = \"instances=8,memory=2GiB,request_memory=none\"\n";
    assert!(limited.contains(expected), "{limited}");
    let refused = shown("disc=8");
    assert_eq!(refused.exit, Some(2));
    assert!(refused.err.contains("SNOWMELT_QUOTAS_DEFAULT: `disc` is no quota"), "{}", refused.err);
}

#[test]
fn the_file_in_the_home_folder_is_read() {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.path(".config/snowmelt")).unwrap();
    env.write(".config/snowmelt/config.toml", "[query]\nworkers = 12\n");
    assert!(env.run(&["config", "show"]).out.contains("workers = 12\n"));
}

#[test]
fn the_files_that_were_looked_for_are_shown() {
    let env = TestEnv::new();
    let shown = env.anonymous(&env.run(&["config", "show", "--origin"]).out);
    let user = "#   [folder]/.config/snowmelt/config.toml: not there\n";
    assert!(shown.contains(user) && shown.contains("#   /etc/snowmelt/config.toml: "), "{shown}");
    // As systemd starts a service.
    let mut homeless = env.command(&["config", "show", "--origin"]);
    let shown = String::from_utf8(homeless.env_remove("HOME").output().unwrap().stdout).unwrap();
    assert!(shown.contains("neither HOME nor XDG_CONFIG_HOME is set"), "{shown}");
    assert!(shown.contains("#   /etc/snowmelt/config.toml: "), "{shown}");
}

#[test]
fn an_invalid_setting_is_refused_with_its_location() {
    let env = TestEnv::new();
    let mut all = String::new();
    for text in [
        "[query]\nworker = 3\n",
        "[qeury]\nmemory = \"1GiB\"\n",
        "[output]\nformat = \"xml\"\n",
        "[query]\nmemory = true\n",
        "[query]\nmemory = \"lots\"\n",
        "[query\n",
        "workers = 3\n",
    ] {
        let file = env.write("config.toml", text);
        let ran = env.run_with(&[("SNOWMELT_CONFIG", file.to_str().unwrap())], &["doctor"]);
        assert_eq!((ran.exit, ran.out.as_str()), (Some(2), ""), "{text}");
        all += &format!("{text}---\n{}\n", env.anonymous(&ran.err));
    }
    for (variable, value) in [("SNOWMELT_ROWS", "-1"), ("SNOWMELT_CONFIG", "missing.toml")] {
        let ran = env.run_with(&[(variable, value)], &["doctor"]);
        assert_eq!(ran.exit, Some(2), "{variable}");
        all += &format!("{variable}={value}\n---\n{}\n", env.anonymous(&ran.err));
    }
    insta::assert_snapshot!("refused-settings", all);
}

#[test]
fn an_empty_variable_is_ignored() {
    let ran = TestEnv::new().run_with(&[("SNOWMELT_WORKERS", "")], &["config", "show"]);
    assert_eq!(ran.exit, Some(0), "{}", ran.err);
}

#[test]
fn spans_are_sent_to_the_collector_of_all_signals_unless_they_have_their_own() {
    let env = TestEnv::new();
    let file = env.write("config.toml", "[traces]\nendpoint = \"http://a:4318/v1/traces\"\n");
    let config = ("SNOWMELT_CONFIG", file.to_str().unwrap());
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318/");
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/spans");
    let shown = |variables: &[(&str, &str)]| {
        let out = env.run_with(variables, &["config", "show"]).out;
        let (_, after) = out.split_once("[traces]\nendpoint = \"")?;
        Some(after.split('"').next().unwrap_or_default().to_owned())
    };
    assert_eq!(shown(&[]), None);
    assert_eq!(shown(&[config]).unwrap(), "http://a:4318/v1/traces");
    assert_eq!(shown(&[config, collector]).unwrap(), "http://b:4318/v1/traces");
    assert_eq!(shown(&[config, collector, own]).unwrap(), "http://c:4318/spans");
}

#[test]
fn only_servers_refuse_a_collector_to_which_they_cannot_send() {
    let env = TestEnv::new();
    let with = |variables: &[(&str, &str)]| {
        // Other programs read the same variables, so a command works with any value.
        assert_eq!(env.run_with(variables, &["config", "show"]).exit, Some(0));
        let ran = env.run_with(variables, &["up", "--foreground"]);
        assert_eq!(ran.exit, Some(2), "{ran:?}");
        ran.err
    };
    let tls = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example")]);
    assert!(tls.contains("OTEL_EXPORTER_OTLP_ENDPOINT: spans are sent over plain http"), "{tls}");
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let headers = with(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret")]);
    assert!(headers.contains("`a b` is not a header") && !headers.contains("secret"), "{headers}");
    let sampler = with(&[endpoint, ("OTEL_TRACES_SAMPLER", "xray")]);
    assert!(sampler.contains("`xray` is not a known sampler"), "{sampler}");
}

#[test]
fn the_first_that_is_set_chooses_the_platform_and_brings_all_of_it() {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.path(".config/snowmelt")).unwrap();
    env.write(
        ".config/snowmelt/contexts.toml",
        "current = \"prod\"\n\
         [contexts.prod]\nurl = \"https://prod.example\"\nca = \"/prod.pem\"\ntenant = \"acme\"\n\
         [contexts.test]\nurl = \"https://test.example\"\ntoken_file = \"/test.token\"\n",
    );
    let config =
        "[client]\nurl = \"https://file.example\"\nca = \"/file.pem\"\ntenant = \"file\"\n";
    let file = env.write("config.toml", config);
    let file = ("SNOWMELT_CONFIG", file.to_str().unwrap());
    let url = ("SNOWMELT_URL", "https://variable.example");
    let context = ("SNOWMELT_CONTEXT", "test");
    let shown = |variables: &[(&str, &str)], options: &[&str]| {
        let ran = env.run_with(variables, &[&["config", "show", "--origin"], options].concat());
        assert_eq!(ran.exit, Some(0), "{}", ran.err);
        let (_, client) = ran.out.split_once("[client]\n").unwrap_or_default();
        env.anonymous(&squeezed(client.split("\n\n").next().unwrap_or_default()))
    };
    let of_prod = "tenant = \"acme\" # context prod\n\
         context = \"prod\" # current context of [folder]/.config/snowmelt/contexts.toml\n\
         url = \"https://prod.example\" # context prod\n\
         ca = \"/prod.pem\" # context prod\n";
    assert_eq!(shown(&[], &[]), of_prod);
    assert_eq!(shown(&[("SNOWMELT_CA", "/other.pem")], &[]), of_prod);
    let of_file = shown(&[file], &[]);
    assert!(
        of_file.contains("\"https://file.example\"") && !of_file.contains("context"),
        "{of_file}"
    );
    let of_variable = shown(&[file, url, ("SNOWMELT_CA", "/variable.pem")], &[]);
    assert!(of_variable.contains("https://variable.example\" # SNOWMELT_URL"), "{of_variable}");
    assert!(of_variable.contains("\"/variable.pem\" # SNOWMELT_CA"), "{of_variable}");
    let of_test = shown(&[file, url, context], &[]);
    assert!(of_test.contains("url = \"https://test.example\" # context test"), "{of_test}");
    assert!(of_test.contains("token_file = \"/test.token\" # context test"), "{of_test}");
    // The tenant of the file is for all platforms, and the context names none.
    assert!(of_test.contains("tenant = \"file\"") && !of_test.contains("/file.pem"), "{of_test}");
    let by_option = shown(&[file, context], &["--url", "https://option.example"]);
    assert!(by_option.contains("\"https://option.example\" # option"), "{by_option}");
    let prod = shown(&[file, url, context, ("SNOWMELT_TENANT", "t")], &["--context", "prod"]);
    assert!(prod.contains("tenant = \"t\" # SNOWMELT_TENANT"), "{prod}");
    assert!(prod.contains("context = \"prod\" # option"), "{prod}");
    let local = shown(&[file, url], &["--context", "local"]);
    assert!(local.contains("context = \"local\" # option") && !local.contains("url"), "{local}");
    for wrong in [&["--context", "prid"][..], &["--context", "prod", "--url", "https://x.example"]]
    {
        assert_eq!(env.run(&[&["config", "show"], wrong].concat()).exit, Some(2), "{wrong:?}");
    }
    // Commands about contexts work whatever the current one is.
    assert_eq!(env.run(&["context", "ls", "--context", "prid"]).exit, Some(0));
}

#[test]
fn contexts_are_made_chosen_and_removed() {
    let env = TestEnv::new();
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/../rpc/testdata/authority.pem");
    let run = |arguments: &[&str]| {
        let ran = env.run(arguments);
        assert_eq!(ran.exit, Some(0), "{arguments:?}: {}", ran.err);
        ran.out
    };
    let url = ["--url", "https://prod.example"];
    run(&[&["context", "set", "prod", "--ca", authority][..], &url].concat());
    run(&[&["context", "set", "test", "--ca", authority][..], &url].concat());
    run(&["context", "set", "test", "--tenant", "acme"]);
    let listed = |csv: String| csv.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        listed(run(&["context", "ls", "-o", "csv"])),
        [
            ",local,-,-,the user",
            "*,prod,https://prod.example,-,key in SNOWMELT_TOKEN",
            ",test,https://prod.example,acme,key in SNOWMELT_TOKEN",
        ]
    );
    let key = ("SNOWMELT_TOKEN", "a-key-of-a-test-00");
    let token = env.run_with(&[key], &["context", "token"]);
    assert_eq!((token.exit, token.out.as_str()), (Some(0), "a-key-of-a-test-00\n"));
    run(&["context", "use", "local"]);
    assert_eq!(run(&["context", "token", "-o", "json"]), "null\n");
    run(&["context", "rm", "test"]);
    assert_eq!(listed(run(&["context", "ls", "-o", "csv"])).len(), 2);
    for wrong in [
        &["context", "use", "test"][..],
        &["context", "rm", "local"],
        &["context", "set", "../a", "--url", "https://prod.example"],
        &["context", "set", "new"],
        &["context", "set", "new", "--url", "http://prod.example"],
        &["context", "token"],
        &["login"],
        &["login", "--context", "new"],
        &["logout", "--context", "new"],
    ] {
        let ran = env.run(wrong);
        assert_eq!((ran.exit, ran.out.as_str()), (Some(2), ""), "{wrong:?} {}", ran.err);
    }
}
