//! Builders and converters that are killed while they write.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use snowmelt_image::block::{BlockSize, OciDigest};
use snowmelt_image::build::{LayerFolder, Recipe, build};
use snowmelt_image::source::OciLayout;
use snowmelt_image::{Converted, Image, Options};

use super::lazy_mounts::noise;

const PARTS: u8 = 6;

fn folder(scratch: &Path, number: u8) -> PathBuf {
    scratch.join(format!("part{number}"))
}

/// An image of all parts up to `last`, with its own name.
fn make(scratch: &Path, layout: &OciLayout, last: u8) -> Converted {
    let part =
        |number| LayerFolder::content(&folder(scratch, number), &format!("p{number}")).unwrap();
    let recipe = Recipe { parts: (0..=last).map(part).collect(), ..Recipe::default() };
    let options = Options { block_size: BlockSize::MIN, ..Options::default() };
    let built = build(&recipe, layout, options).unwrap();
    layout.tag(&format!("image{last}"), &built.manifest).unwrap();
    built
}

/// The process that the next test kills. Does nothing without the folder variable.
#[test]
fn builder_to_be_killed() {
    let Some(scratch) = std::env::var_os("SNOWMELT_TEST_BUILD").map(PathBuf::from) else { return };
    let layout = OciLayout::create(&scratch.join("store")).unwrap();
    println!("begin");
    for last in (0..PARTS).cycle() {
        make(&scratch, &layout, last);
        println!("built {last}");
    }
}

#[test]
fn a_killed_builder_leaves_only_complete_blobs_and_images() {
    let scratch = tempfile::tempdir().unwrap();
    for number in 0..PARTS {
        fs::create_dir(folder(scratch.path(), number)).unwrap();
        fs::write(folder(scratch.path(), number).join("file"), noise(number, 70_000)).unwrap();
    }
    let clean = OciLayout::create(&scratch.path().join("clean")).unwrap();
    let expected: Vec<_> = (0..PARTS).map(|last| make(scratch.path(), &clean, last)).collect();
    let store = scratch.path().join("store");
    for round in 0..14 {
        kill_after(scratch.path(), round % (usize::from(PARTS) + 1), round);
        let layout = OciLayout::create(&store).unwrap();
        for blob in fs::read_dir(store.join("blobs/sha256")).unwrap() {
            let path = blob.unwrap().path();
            let digest = OciDigest::of(&fs::read(&path).unwrap());
            assert_eq!(path.file_name().unwrap().to_str().unwrap(), digest.hex());
        }
        for last in 0..PARTS {
            let Ok(manifest) = layout.find(Some(&format!("image{last}"))) else { continue };
            assert_eq!(manifest.digest, expected[usize::from(last)].manifest.digest);
            let image = Image::decode(&layout.read_blob(&manifest).unwrap()).unwrap();
            assert!(image.blobs().all(|blob| layout.blob_path(&blob.digest).is_file()));
        }
        let again = make(scratch.path(), &layout, PARTS - 1);
        assert_eq!(again.manifest, expected[usize::from(PARTS) - 1].manifest);
        fs::remove_dir_all(&store).unwrap();
    }
}

/// Kills a builder after `lines` lines and, so that the moments vary, a little later.
fn kill_after(scratch: &Path, lines: usize, later: usize) {
    let mut builder = Command::new(std::env::current_exe().unwrap());
    builder.args(["--exact", "crashes::builder_to_be_killed", "--nocapture"]);
    builder.env("SNOWMELT_TEST_BUILD", scratch).stdout(Stdio::piped());
    let mut builder = builder.spawn().unwrap();
    let told = BufReader::new(builder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = told.filter(|line| line.contains("begin") || line.contains("built "));
    assert_eq!(told.take(lines + 1).count(), lines + 1, "the builder exited");
    std::thread::sleep(std::time::Duration::from_micros(later as u64 * 700));
    builder.kill().unwrap();
    builder.wait().unwrap();
}
