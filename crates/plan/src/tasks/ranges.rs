//! Divides the sorted outputs of a stage into ranges of about the same size.
//!
//! Each task of the stage has written a sorted run, with marks: the keys of some of its frames. A
//! range is bounded by two marks of any runs. In the run that has the mark, a range begins exactly
//! there. In the other runs it begins at the same key, which is somewhere after the last mark
//! before the key: from this mark on a reader drops the rows outside of the range.
//!
//! Most rows may have the same key. Equal rows may be in any order, so they are divided between
//! ranges by their runs: rows of a run before the mark's run are in the range before the mark, and
//! rows of a run after it in the range after the mark. This takes whole keys. If a key was too long
//! for its mark, all rows whose keys begin with the mark's part of it are in the range after the
//! mark.
//!
//! Invariant: each row is in exactly one range, and no row of a range is behind one of the next.

use std::ops::Range;

use snowmelt_wire::{Edge, KeyRange, Mark, OutputPartition, TaskRead};

use super::outputs::TaskOutput;

/// Bytes that are read from an object with one request: all runs of a range are read at the same
/// time.
const OBJECT_READ_BYTES: u64 = 1 << 20;

/// The sorted outputs of a stage, and where ranges begin.
#[derive(Debug)]
pub(crate) struct Ranges<'o> {
    runs: Vec<TaskRun<'o>>,
    /// The ends of all ranges but the last; `None` after all rows.
    ends: Vec<Option<RunMark>>,
}

/// The rows that one task has sorted.
#[derive(Clone, Copy, Debug)]
struct TaskRun<'o> {
    output: &'o TaskOutput,
    part: &'o OutputPartition,
    bytes: u64,
}

/// A mark of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RunMark {
    run: usize,
    mark: usize,
}

/// The place of a bound in a run: between two places of its bytes, at an edge unless they are the
/// same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MarkPlace {
    low: u64,
    high: u64,
    edge: Option<Edge>,
}

impl<'o> Ranges<'o> {
    /// Divides the outputs, which are in the order of their tasks.
    pub(crate) fn of(outputs: &'o [TaskOutput], ranges: u32) -> Self {
        let run = |output: &'o TaskOutput| {
            let parts = output.partitions.iter();
            parts.map(move |part| TaskRun { output, part, bytes: part.bytes() })
        };
        let runs: Vec<TaskRun<'o>> = outputs.iter().flat_map(run).collect();
        let mut marks: Vec<(RunMark, u64)> = Vec::new();
        for (run, of) in runs.iter().enumerate() {
            let ends = of.part.marks.iter().skip(1).map(|next| next.bytes).chain([of.bytes]);
            let sizes = of.part.marks.iter().zip(ends).enumerate();
            let sized = |(mark, (at, end)): (usize, (&Mark, u64))| {
                (RunMark { run, mark }, end.saturating_sub(at.bytes))
            };
            marks.extend(sizes.map(sized));
        }
        // A bound at a key that is cut is before all rows that begin with it.
        let key = |bound: &RunMark| {
            let Mark { key, cut, .. } = &runs[bound.run].part.marks[bound.mark];
            (key, !cut)
        };
        marks.sort_by(|(a, _), (b, _)| key(a).cmp(&key(b)).then(a.cmp(b)));
        let ends = ends(&marks, ranges);
        Self { runs, ends }
    }

    /// Returns the reads of a task that runs `ranges`, all as the partition whose number is the
    /// first range.
    pub(crate) fn reads(&self, stage: u32, ranges: Range<u32>) -> Vec<TaskRead> {
        let partition = ranges.start;
        let from = ranges.start.checked_sub(1).map(|before| self.ends.get(before as usize));
        let to = ranges.end.checked_sub(1).and_then(|last| self.ends.get(last as usize));
        let mut reads = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            let begin = match from {
                None => run.begin(),
                Some(bound) => self.place(bound.copied().flatten(), index),
            };
            let end = self.place(to.copied().flatten(), index);
            if begin.low >= end.high {
                continue;
            }
            let part = run.slice(partition, begin.low..end.high);
            let TaskOutput { task, attempt, objects, .. } = run.output.clone();
            let range = Some(KeyRange { from: begin.edge, to: end.edge });
            let partitions = vec![part];
            let shared = false;
            reads.push(TaskRead { stage, task, attempt, partitions, objects, shared, range });
        }
        reads
    }

    /// Returns the place of a bound in a run; the bound `None` is after all rows.
    fn place(&self, bound: Option<RunMark>, run: usize) -> MarkPlace {
        let of = &self.runs[run];
        let Some(bound) = bound else {
            return MarkPlace { low: of.bytes, high: of.bytes, edge: None };
        };
        let mark = &self.runs[bound.run].part.marks[bound.mark];
        if bound.run == run && !mark.cut {
            return MarkPlace { low: mark.bytes, high: mark.bytes, edge: None };
        }
        let edge = Edge { key: mark.key.clone(), after: !mark.cut && run < bound.run };
        let marks = &of.part.marks;
        let before = marks.partition_point(|mark| is_surely_before(mark, &edge));
        let low = before.checked_sub(1).map_or(0, |last| marks[last].bytes);
        let behind = marks.partition_point(|mark| !is_surely_behind(mark, &edge));
        let high = marks.get(behind).map_or(of.bytes, |mark| mark.bytes);
        MarkPlace { low, high, edge: Some(edge) }
    }
}

/// The ends of all ranges but the last, from the marks in the order of their rows, each with the
/// bytes up to the next mark of its run.
fn ends(marks: &[(RunMark, u64)], ranges: u32) -> Vec<Option<RunMark>> {
    let total: u128 = marks.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let mut before = 0_u128;
    let mut next = marks.iter();
    let mut current = next.next();
    let end = |index: u32| {
        let wanted = total * u128::from(index) / u128::from(ranges.max(1));
        while let Some((_, bytes)) = current
            && before < wanted
        {
            before += u128::from(*bytes);
            current = next.next();
        }
        current.map(|(bound, _)| *bound)
    };
    (1..ranges.max(1)).map(end).collect()
}

/// True if the first row of a mark, and so all rows before it, are known to be before an edge. The
/// keys of marks and edges have the same maximum length.
fn is_surely_before(mark: &Mark, edge: &Edge) -> bool {
    match mark.key == edge.key {
        true => edge.after && !mark.cut,
        false => mark.key < edge.key,
    }
}

/// True if the first row of a mark, and so all rows from there on, are known not to be before an
/// edge.
fn is_surely_behind(mark: &Mark, edge: &Edge) -> bool {
    match mark.key == edge.key {
        true => !edge.after || mark.cut,
        false => mark.key > edge.key,
    }
}

impl TaskRun<'_> {
    fn begin(&self) -> MarkPlace {
        MarkPlace { low: 0, high: 0, edge: None }
    }

    /// Returns the byte ranges of the run's output that hold `bytes`, which are counted from the
    /// run's beginning. Both ends are marks, or the run's end.
    fn slice(&self, partition: u32, bytes: Range<u64>) -> OutputPartition {
        let mut sliced = OutputPartition { partition, ..OutputPartition::default() };
        let rows_at = |at: u64| {
            let marks = &self.part.marks;
            let index = marks.partition_point(|mark| mark.bytes < at);
            marks.get(index).map_or(self.part.rows, |mark| mark.rows)
        };
        sliced.rows = rows_at(bytes.end).saturating_sub(rows_at(bytes.start));
        let mut begin = 0;
        for (index, (offset, length)) in self.part.ranges.iter().enumerate() {
            let within = bytes.start.max(begin)..bytes.end.min(begin + length);
            let object = self.part.objects.get(index).copied();
            for piece in self.pieces(within, object.is_some()) {
                sliced.ranges.push((offset + piece.start - begin, piece.end - piece.start));
                sliced.objects.extend(object);
            }
            begin += length;
        }
        sliced
    }

    /// Divides a range at marks into pieces that are read with one request each.
    fn pieces(&self, bytes: Range<u64>, by_requests: bool) -> Vec<Range<u64>> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let mut pieces = Vec::new();
        let mut start = bytes.start;
        let inside = self.part.marks.iter().map(|mark| mark.bytes);
        for at in inside.filter(|at| by_requests && bytes.contains(at)) {
            if at.saturating_sub(start) >= OBJECT_READ_BYTES {
                pieces.push(start..at);
                start = at;
            }
        }
        pieces.push(start..bytes.end);
        pieces
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use snowmelt_wire::MARK_KEY_BYTES;

    use super::*;

    /// Bytes of a frame.
    const FRAME: u64 = 10;

    /// The output of a task with sorted rows, `of_frame` in a frame, of which every `step`th is
    /// marked, in two byte ranges.
    fn output(task: u32, rows: &[Vec<u8>], of_frame: usize, step: usize) -> TaskOutput {
        let frames: Vec<&[Vec<u8>]> = rows.chunks(of_frame).collect();
        let mark = |(index, frame): (usize, &&[Vec<u8>])| {
            let mut key = frame[0].clone();
            key.truncate(MARK_KEY_BYTES);
            let rows = (index * of_frame) as u64;
            let bytes = index as u64 * FRAME;
            Mark { rows, bytes, key, cut: frame[0].len() > MARK_KEY_BYTES }
        };
        let marks = frames.iter().enumerate().step_by(step).map(mark).collect();
        let half = frames.len() as u64 / 2 * FRAME;
        let all = frames.len() as u64 * FRAME;
        let ranges = vec![(1_000, half), (7_000, all - half)];
        let rows = rows.len() as u64;
        let part = OutputPartition { partition: task, rows, ranges, marks, ..Default::default() };
        TaskOutput { task, attempt: 0, partitions: Arc::new(vec![part]), objects: None }
    }

    /// The rows that a task reads, with their tasks, as a reader selects them.
    fn rows_of(
        reads: &[TaskRead],
        runs: &[Vec<Vec<u8>>],
        of_frame: usize,
    ) -> Vec<(Vec<u8>, usize, usize)> {
        let mut found = Vec::new();
        for read in reads {
            let rows = &runs[read.task as usize];
            let frames = rows.len().div_ceil(of_frame) as u64;
            let half = frames / 2 * FRAME;
            let range = read.range.clone().unwrap();
            for (offset, length) in &read.partitions[0].ranges {
                let begin = if *offset >= 7_000 { offset - 7_000 + half } else { offset - 1_000 };
                assert!(begin % FRAME == 0 && length % FRAME == 0, "whole frames");
                for frame in begin / FRAME..(begin + length) / FRAME {
                    let first = frame as usize * of_frame;
                    let of_frame = rows.iter().enumerate().skip(first).take(of_frame);
                    let is_before = |edge: &Edge, key: &[u8]| edge.is_after(key);
                    let inside = |key: &[u8]| {
                        range.from.as_ref().is_none_or(|edge| !is_before(edge, key))
                            && range.to.as_ref().is_none_or(|edge| is_before(edge, key))
                    };
                    let of_frame = of_frame.filter(|(_, key)| inside(key));
                    found.extend(of_frame.map(|(row, key)| (key.clone(), read.task as usize, row)));
                }
            }
        }
        found
    }

    fn long(suffix: u8) -> Vec<u8> {
        let mut key = vec![5; MARK_KEY_BYTES];
        key.push(suffix);
        key
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => prop::collection::vec(0u8..4, 1..3),
            4 => Just(vec![2, 2]),
            1 => Just(vec![5; MARK_KEY_BYTES]),
            1 => (0u8..3).prop_map(long),
        ]
    }

    proptest! {
        #[test]
        fn each_row_is_in_one_range_and_ranges_are_in_order(
            mut runs in prop::collection::vec(prop::collection::vec(keys(), 0..60), 1..6),
            (of_frame, step) in (1usize..5, 1usize..4),
            (ranges, tasks) in (1u32..9, 1u32..9),
        ) {
            runs.iter_mut().for_each(|rows| rows.sort());
            let outputs: Vec<TaskOutput> = (0..)
                .zip(&runs)
                .filter(|(_, rows)| !rows.is_empty())
                .map(|(task, rows)| output(task, rows, of_frame, step))
                .collect();
            let found = Ranges::of(&outputs, ranges);
            let shares = crate::tasks::stage_tasks::contiguous(ranges, tasks);
            let mut all = Vec::new();
            let mut last: Option<Vec<u8>> = None;
            for share in shares {
                let mut rows = rows_of(&found.reads(3, share), &runs, of_frame);
                rows.sort();
                if let (Some(last), Some((first, ..))) = (&last, rows.first()) {
                    prop_assert!(last <= first);
                }
                last = rows.last().map(|(key, ..)| key.clone()).or(last);
                all.extend(rows);
            }
            all.sort_by_key(|(_, task, row)| (*task, *row));
            let places: Vec<(usize, usize)> = all.iter().map(|(_, t, r)| (*t, *r)).collect();
            let expected: Vec<(usize, usize)> = runs
                .iter()
                .enumerate()
                .flat_map(|(task, rows)| (0..rows.len()).map(move |row| (task, row)))
                .collect();
            prop_assert_eq!(places, expected);
        }
    }

    #[test]
    fn one_key_in_most_rows_is_divided() {
        let rows = |before: usize| {
            let mut rows: Vec<Vec<u8>> = vec![vec![1]; before];
            rows.extend(vec![vec![2]; 90]);
            rows.extend(vec![vec![3]; 10 - before]);
            rows
        };
        let runs: Vec<Vec<Vec<u8>>> = (0..4).map(rows).collect();
        let outputs: Vec<TaskOutput> =
            (0..4).zip(&runs).map(|(task, rows)| output(task, rows, 5, 1)).collect();
        let ranges = Ranges::of(&outputs, 8);
        for range in 0..8 {
            let rows = rows_of(&ranges.reads(0, range..range + 1), &runs, 5).len();
            assert!((40..=65).contains(&rows), "{range}: {rows}");
        }
    }

    #[test]
    fn objects_are_read_in_pieces() {
        let marks = (0..8).map(|n| Mark { bytes: n << 19, ..Mark::default() }).collect();
        let ranges = vec![(0, 3 << 20), (0, 1 << 20)];
        let objects = vec![4, 5];
        let part = OutputPartition { ranges, objects, marks, ..OutputPartition::default() };
        let bytes = part.bytes();
        let partitions = Arc::new(vec![part]);
        let output = TaskOutput { task: 0, attempt: 0, partitions, objects: None };
        let run = TaskRun { output: &output, part: &output.partitions[0], bytes };
        let sliced = run.slice(0, (1 << 19)..bytes);
        let mib = 1 << 20;
        assert_eq!(
            sliced.ranges,
            [(mib / 2, mib), (mib / 2 * 3, mib), (mib / 2 * 5, mib / 2), (0, mib)]
        );
        assert_eq!(sliced.objects, [4, 4, 4, 5]);
    }
}
