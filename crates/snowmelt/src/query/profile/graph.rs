//! The graph of the stages, as inline SVG: a box for each stage and for the driver, an arrow for
//! each exchange.
//!
//! A stage is to the right of all stages that it reads. Sizes are pixels: a large graph is wider
//! than the window and scrolls, so that its text stays readable.

use std::fmt::Write;

use snowmelt_api::{Profile, StageProfile};
use snowmelt_types::ByteSize;

use super::escape::Escaped;
use super::{share, stages};
use crate::terminal::text;

const WIDTH: usize = 176;
const HEIGHT: usize = 64;
/// Pixels between two columns, for the arrows.
const GAP: usize = 44;
/// Pixels between two boxes of a column.
const SPACE: usize = 16;

/// The box of a stage, and its place.
struct StageBox<'p> {
    /// `None` for the driver.
    stage: Option<&'p StageProfile>,
    column: usize,
    x: usize,
    y: usize,
}

/// The whole graph; empty if the profile has no stages.
pub fn graph(profile: &Profile) -> String {
    if profile.stages.is_empty() {
        return String::new();
    }
    let (nodes, width, height) = places(&profile.stages);
    let mut shown = format!(
        "<div class=\"wide\"><svg class=\"graph\" width=\"{width}\" height=\"{height}\" \
         role=\"img\"><title>Stages and exchanges</title>"
    );
    for node in &nodes {
        arrows(node, &nodes, &mut shown);
    }
    let most = profile.stages.iter().map(|stage| stage.cpu_us).max().unwrap_or(0);
    for node in &nodes {
        match node.stage {
            Some(stage) => stage_box(node, stage, profile, most, &mut shown),
            None => driver_box(node, profile, &mut shown),
        }
    }
    shown + "</svg></div>"
}

/// The boxes, and the size of the picture.
fn places(stages: &[StageProfile]) -> (Vec<StageBox<'_>>, usize, usize) {
    let columns = columns(stages);
    let last = columns.iter().max().map_or(0, |column| column + 1);
    let in_column = |column| columns.iter().filter(|other| **other == column).count();
    let tallest = (0..last).map(in_column).max().unwrap_or(1);
    let height = tallest * (HEIGHT + SPACE) - SPACE;
    let mut filled = vec![0; last + 1];
    let mut place = |stage, column: usize, boxes: usize| {
        let used = boxes * (HEIGHT + SPACE) - SPACE;
        let y = (height - used) / 2 + filled[column] * (HEIGHT + SPACE);
        filled[column] += 1;
        StageBox { stage, column, x: column * (WIDTH + GAP), y }
    };
    let mut nodes: Vec<StageBox<'_>> = stages
        .iter()
        .zip(&columns)
        .map(|(stage, column)| place(Some(stage), *column, in_column(*column)))
        .collect();
    nodes.push(place(None, last, 1));
    (nodes, last * (WIDTH + GAP) + WIDTH + 2, height + 2)
}

/// The column of each stage: one more than that of the last stage from which it reads.
fn columns(stages: &[StageProfile]) -> Vec<usize> {
    let mut columns: Vec<usize> = Vec::with_capacity(stages.len());
    for stage in stages {
        let reads = stages.iter().zip(&columns).filter(|(it, _)| stage.reads.contains(&it.stage));
        columns.push(reads.map(|(_, column)| column + 1).max().unwrap_or(0));
    }
    columns
}

/// The arrows that leave a box.
fn arrows(from: &StageBox<'_>, nodes: &[StageBox<'_>], shown: &mut String) {
    let Some(stage) = from.stage else { return };
    for to in nodes {
        let is_reader = match to.stage {
            Some(reader) => reader.reads.contains(&stage.stage),
            None => stage.medium == "driver",
        };
        if !is_reader || to.column <= from.column {
            continue;
        }
        let x1 = from.x + WIDTH;
        let y1 = from.y + HEIGHT / 2;
        let x2 = to.x;
        let y2 = to.y + HEIGHT / 2;
        let middle = (x1 + x2) / 2;
        // Twice as wide for each thousand times as many bytes.
        let wide = 1.0 + ((stage.bytes_sent.max(1) as f64).log10() / 3.0).floor();
        let tip = format!(
            "stage {} to {}\n{} by {}\n{} rows",
            stage.stage,
            to.stage.map_or("the driver".to_owned(), |to| format!("stage {}", to.stage)),
            ByteSize(stage.bytes_sent),
            stage.medium,
            text::count(stage.rows)
        );
        let _ = write!(
            shown,
            "<path class=\"arrow\" style=\"stroke-width:{wide}px\" data-tip=\"{}\" \
             d=\"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}\"/>",
            Escaped(tip)
        );
    }
}

fn stage_box(
    node: &StageBox<'_>,
    stage: &StageProfile,
    profile: &Profile,
    most: u64,
    shown: &mut String,
) {
    let time = text::micros(stage.to_us.saturating_sub(stage.from_us));
    let lines = [
        format!("{time} · CPU {}", text::micros(stage.cpu_us)),
        format!("{} rows · {}", text::count(stage.rows), ByteSize(stage.bytes_sent)),
    ];
    let again = stage.attempts.saturating_sub(stage.tasks);
    let tasks = match again {
        0 => text::counted(stage.tasks.into(), "task"),
        _ => format!("{} + {again}", text::counted(stage.tasks.into(), "task")),
    };
    let class = if stages::is_skewed(stage) { "box skewed" } else { "box" };
    let tip = stages::tip(stage, profile);
    let name = format!("stage {}", stage.stage);
    draw(node, class, &tip, [&name, &tasks, &lines[0], &lines[1]], shown);
    let bar = share(stage.cpu_us, most) * WIDTH as f64;
    let x = node.x + 1;
    let y = node.y + HEIGHT - 4;
    let _ =
        write!(shown, "<rect class=\"work\" x=\"{x}\" y=\"{y}\" width=\"{bar:.1}\" height=\"4\"/>");
}

fn driver_box(node: &StageBox<'_>, profile: &Profile, shown: &mut String) {
    let merge = profile.phases.iter().find(|phase| phase.phase == "merge");
    let merge = merge.map_or(0, |phase| phase.to_us.saturating_sub(phase.from_us));
    let lines =
        [format!("merge {}", text::micros(merge)), format!("{} rows", text::count(profile.rows))];
    let tip = format!("driver\n{}\n{}", lines[0], lines[1]);
    draw(node, "box driver", &tip, ["driver", "", &lines[0], &lines[1]], shown);
}

/// A box with a title on both sides and two lines.
fn draw(node: &StageBox<'_>, class: &str, tip: &str, texts: [&str; 4], shown: &mut String) {
    let x = node.x + 1;
    let y = node.y + 1;
    let [left, right, first, second] = texts;
    let _ = write!(
        shown,
        "<g class=\"{class}\" data-tip=\"{}\">\
         <rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"7\"/>",
        Escaped(tip)
    );
    for (class, x, y, text) in [
        ("name", x + 10, y + 19, left),
        ("right", x + WIDTH - 10, y + 19, right),
        ("line", x + 10, y + 37, first),
        ("line", x + 10, y + 53, second),
    ] {
        let _ =
            write!(shown, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", Escaped(text));
    }
    shown.push_str("</g>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::profile::sample;

    #[test]
    fn a_stage_is_to_the_right_of_what_it_reads() {
        let stages = sample::profile().stages;
        let (nodes, width, height) = places(&stages);
        assert_eq!(nodes.len(), stages.len() + 1);
        for node in &nodes {
            assert!(node.x + WIDTH <= width && node.y + HEIGHT <= height);
            let reads = node.stage.map(|stage| stage.reads.clone()).unwrap_or_default();
            for read in
                nodes.iter().filter(|node| node.stage.is_some_and(|s| reads.contains(&s.stage)))
            {
                assert!(read.x + WIDTH < node.x);
            }
        }
    }

    #[test]
    fn boxes_do_not_overlap() {
        let profile = sample::large();
        let (nodes, _, _) = places(&profile.stages);
        for (index, a) in nodes.iter().enumerate() {
            for b in &nodes[index + 1..] {
                assert!(a.x.abs_diff(b.x) >= WIDTH || a.y.abs_diff(b.y) >= HEIGHT);
            }
        }
    }

    #[test]
    fn each_exchange_is_an_arrow() {
        let profile = sample::profile();
        let reads: usize = profile.stages.iter().map(|stage| stage.reads.len()).sum();
        let to_driver = profile.stages.iter().filter(|stage| stage.medium == "driver").count();
        assert_eq!(graph(&profile).matches("class=\"arrow\"").count(), reads + to_driver);
    }
}
