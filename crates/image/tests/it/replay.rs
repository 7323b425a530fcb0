//! Checks the fuzzing seeds and all inputs that fuzzing found; `fuzz/` contains the checks.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/src/checks.rs"]
mod checks;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;

type Check = fn(&[u8]);

#[test]
fn seeds_and_found_inputs_pass_the_checks() {
    if std::env::var_os("SNOWMELT_WRITE_SEEDS").is_some() {
        seeds::write_all().unwrap();
    }
    let targets: [(&str, Check); 6] = [
        ("manifest", checks::manifest),
        ("table", checks::table),
        ("archive", checks::archive),
        ("layer", checks::layer),
        ("erofs", checks::erofs),
        ("volume", checks::volume),
    ];
    let seeds = Path::new("../../fuzz/seeds");
    for (target, check) in targets {
        let mut files = fs::read_dir(seeds.join(target)).unwrap().peekable();
        assert!(files.peek().is_some(), "{target} has seeds");
        for file in files {
            check(&fs::read(file.unwrap().path()).unwrap());
        }
    }
}
