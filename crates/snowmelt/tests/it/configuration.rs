//! Which setting holds, and what is said of one that cannot.

use crate::run::Place;

#[test]
fn an_option_wins_over_a_variable_over_the_file_over_the_default() {
    let place = Place::new();
    let file = place.write(
        "config.toml",
        "[query]\nworkers = 3\nmemory = \"2GiB\"\n\n[output]\nprogress = \"plain\"\nrows = 7\n",
    );
    let variables = [
        ("SNOWMELT_CONFIG", file.to_str().unwrap()),
        ("SNOWMELT_MEMORY", "512MiB"),
        ("SNOWMELT_PROGRESS", "tty"),
        ("SNOWMELT_SOCKET", "there.sock"),
    ];
    let ran = place.run_with(&variables, &["config", "show", "--origin", "--progress", "quiet"]);
    assert_eq!((ran.exit, ran.err.as_str()), (Some(0), ""));
    insta::assert_snapshot!("origins", squeezed(&place.anonymous(&ran.out)));
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
fn what_is_shown_is_a_configuration_that_says_the_same() {
    let place = Place::new();
    let shown = place.run(&["config", "show"]).out;
    let file = place.write("config.toml", &shown);
    let again = place.run_with(&[("SNOWMELT_CONFIG", file.to_str().unwrap())], &["config", "show"]);
    assert_eq!((again.exit, again.out), (Some(0), shown));
}

#[test]
fn the_file_is_found_in_the_home() {
    let place = Place::new();
    std::fs::create_dir_all(place.path(".config/snowmelt")).unwrap();
    place.write(".config/snowmelt/config.toml", "[query]\nworkers = 12\n");
    assert!(place.run(&["config", "show"]).out.contains("workers = 12\n"));
}

#[test]
fn a_setting_that_is_none_is_refused_where_it_stands() {
    let place = Place::new();
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
        let file = place.write("config.toml", text);
        let ran = place.run_with(&[("SNOWMELT_CONFIG", file.to_str().unwrap())], &["doctor"]);
        assert_eq!((ran.exit, ran.out.as_str()), (Some(2), ""), "{text}");
        all += &format!("{text}---\n{}\n", place.anonymous(&ran.err));
    }
    for (variable, value) in [("SNOWMELT_ROWS", "-1"), ("SNOWMELT_CONFIG", "missing.toml")] {
        let ran = place.run_with(&[(variable, value)], &["doctor"]);
        assert_eq!(ran.exit, Some(2), "{variable}");
        all += &format!("{variable}={value}\n---\n{}\n", ran.err);
    }
    insta::assert_snapshot!("refused-settings", all);
}

#[test]
fn an_empty_variable_is_no_variable() {
    let ran = Place::new().run_with(&[("SNOWMELT_WORKERS", "")], &["config", "show"]);
    assert_eq!(ran.exit, Some(0), "{}", ran.err);
}
