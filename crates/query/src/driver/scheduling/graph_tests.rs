//! Random graphs of stages, whose outputs are lost at random, run to their end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use snowmelt_plan::tasks::Repeat;

use super::graph::{Changes, Graph, PassedOn, StageNode};

/// The inputs of a run of a task, with the run of each, and the inputs of these.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InputRuns {
    /// By task on which the rows depend, and whose runs may give different rows: its run.
    runs: BTreeMap<u32, u32>,
}

/// Runs a graph as the driver does, with one attempt for each task.
struct Simulation {
    graph: Graph,
    sizes: Vec<usize>,
    reads: Vec<Vec<u32>>,
    repeats: Vec<Repeat>,
    stage_of: Vec<usize>,
    /// By task that runs, its inputs with how often each was made.
    running: BTreeMap<u32, Vec<(u32, u32)>>,
    /// By task, what its last complete run gave, and the number of its runs.
    given: BTreeMap<u32, InputRuns>,
    runs: BTreeMap<u32, u32>,
    /// Outputs that are there: a loss is noticed only by a task that reads the output.
    stored: BTreeSet<u32>,
    /// By task, the results that went to the driver.
    passed: BTreeMap<u32, InputRuns>,
    /// Pairs of stages that stream, if they have not begun.
    pairs: Vec<(usize, usize)>,
    gangs: Vec<GangModel>,
}

/// The tasks of a pair that run at the same time, and those of them that have ended well.
#[derive(Clone, Debug)]
struct GangModel {
    tasks: BTreeSet<u32>,
    done: BTreeMap<u32, Vec<(u32, u32)>>,
}

/// Each stage with one reader streams to it, unless one of both takes part in another stream.
fn pairs(stages: &[(usize, Vec<u32>, Repeat)]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (reader, (_, reads, _)) in stages.iter().enumerate() {
        for sender in reads.iter().rev().map(|read| *read as usize) {
            let readers = stages.iter().filter(|stage| stage.1.contains(&(sender as u32))).count();
            let is_taken = pairs.iter().any(|(_, it)| *it == sender || *it == reader);
            if readers == 1 && !is_taken {
                pairs.push((sender, reader));
            }
        }
    }
    pairs
}

impl Simulation {
    fn new(stages: &[(usize, Vec<u32>, Repeat)]) -> Self {
        let read: BTreeSet<u32> = stages.iter().flat_map(|(_, reads, _)| reads).copied().collect();
        let mut repeats: Vec<Repeat> = Vec::new();
        for (_, reads, own) in stages {
            let inputs = reads.iter().map(|read| repeats[*read as usize]).max();
            repeats.push((*own).max(inputs.unwrap_or(Repeat::Exactly)));
        }
        let node = |(index, (_, reads, _)): (usize, &(usize, Vec<u32>, Repeat))| {
            StageNode::new(reads.clone(), !read.contains(&(index as u32)), repeats[index])
        };
        Self {
            graph: Graph::new(stages.iter().enumerate().map(node).collect()),
            sizes: stages.iter().map(|(tasks, ..)| *tasks).collect(),
            reads: stages.iter().map(|(_, reads, _)| reads.clone()).collect(),
            repeats,
            stage_of: Vec::new(),
            running: BTreeMap::new(),
            given: BTreeMap::new(),
            runs: BTreeMap::new(),
            stored: BTreeSet::new(),
            passed: BTreeMap::new(),
            pairs: Vec::new(),
            gangs: Vec::new(),
        }
    }

    /// A simulation of stages that stream where they can.
    fn streaming(stages: &[(usize, Vec<u32>, Repeat)]) -> Self {
        Self { pairs: pairs(stages), ..Self::new(stages) }
    }

    fn begin(&mut self, stage: usize) -> Vec<u32> {
        let inputs = self.reads[stage].iter();
        let inputs: BTreeSet<u32> =
            inputs.flat_map(|read| self.graph.tasks_of(*read as usize)).collect();
        self.graph.begin(stage, vec![inputs; self.sizes[stage]]);
        self.stage_of.resize(self.stage_of.len() + self.sizes[stage], stage);
        self.graph.tasks_of(stage).collect()
    }

    /// Begins the pairs that can begin.
    fn proceed_with_gangs(&mut self) {
        for (sender, receiver) in std::mem::take(&mut self.pairs) {
            let streamed = Some(sender as u32);
            if !self.graph.can_begin(sender, None) || !self.graph.can_begin(receiver, streamed) {
                self.pairs.push((sender, receiver));
                continue;
            }
            let tasks = [self.begin(sender), self.begin(receiver)].concat();
            for task in &tasks {
                self.running.insert(*task, self.graph.inputs(*task));
                self.graph.started(*task);
            }
            let tasks = tasks.into_iter().collect();
            self.gangs.push(GangModel { tasks, done: BTreeMap::new() });
        }
    }

    /// The gang of a task ends without a result.
    fn break_gang(&mut self, task: u32) {
        let Some(index) = self.gangs.iter().position(|gang| gang.tasks.contains(&task)) else {
            return;
        };
        for task in self.gangs.swap_remove(index).tasks {
            self.running.remove(&task);
            self.graph.failed(task);
        }
    }

    /// A task of a gang ends; all of them count when the last one has ended.
    fn end_in_gang(&mut self, gang: usize, task: u32, inputs: Vec<(u32, u32)>) {
        self.gangs[gang].done.insert(task, inputs);
        if self.gangs[gang].done.len() == self.gangs[gang].tasks.len() {
            for (task, inputs) in self.gangs.swap_remove(gang).done {
                self.succeed(task, &inputs);
            }
        }
    }

    /// Begins what can begin.
    fn proceed(&mut self) {
        self.proceed_with_gangs();
        for stage in self.graph.ready_stages() {
            if !self.pairs.iter().any(|(sender, reader)| *sender == stage || *reader == stage) {
                self.begin(stage);
            }
        }
        for task in self.graph.ready_tasks() {
            assert!(self.graph.can_read(task) && !self.running.contains_key(&task));
            self.running.insert(task, self.graph.inputs(task));
            self.graph.started(task);
        }
    }

    /// A running task ends: well, if all that it reads is there.
    fn end(&mut self, task: u32) -> Result<(), PassedOn> {
        let inputs = self.running.remove(&task).unwrap();
        let gang = self.gangs.iter().position(|gang| gang.tasks.contains(&task));
        let streamed =
            |input: u32| gang.is_some_and(|gang| self.gangs[gang].tasks.contains(&input));
        let is_gone = |(input, _): &&(u32, u32)| !self.stored.contains(input) && !streamed(*input);
        let gone: Vec<(u32, u32)> = inputs.iter().filter(is_gone).copied().collect();
        if let (Some(gang), true) = (gang, gone.is_empty()) {
            self.end_in_gang(gang, task, inputs);
            return Ok(());
        }
        self.break_gang(task);
        if gone.is_empty() {
            self.succeed(task, &inputs);
            return Ok(());
        }
        for (input, made) in gone {
            self.graph.lost(input, made);
        }
        self.graph.failed(task);
        self.restore()
    }

    fn restore(&mut self) -> Result<(), PassedOn> {
        let Changes { again, cancelled, discarded } = self.graph.restore()?;
        let mut broken = BTreeSet::new();
        for task in cancelled {
            if let Some(gang) = self.gangs.iter().find(|gang| gang.tasks.contains(&task)) {
                broken.extend(gang.tasks.iter().copied());
                self.break_gang(task);
            }
            let runs = self.running.remove(&task).is_some();
            assert!(runs || broken.contains(&task), "a cancelled task runs");
        }
        for task in discarded {
            self.stored.remove(&task);
        }
        assert!(again.iter().all(|task| !self.passed.contains_key(task)));
        Ok(())
    }

    fn succeed(&mut self, task: u32, inputs: &[(u32, u32)]) {
        let stage = self.stage_of[task as usize];
        let run = self.runs.entry(task).and_modify(|run| *run += 1).or_insert(1);
        let mut runs = BTreeMap::new();
        for (input, _) in inputs {
            runs.extend(self.given[input].runs.clone());
        }
        if self.repeats[stage] == Repeat::Differently {
            runs.insert(task, *run);
        }
        let released = self.graph.ended(task);
        self.given.insert(task, InputRuns { runs });
        self.stored.insert(task);
        for task in released {
            self.stored.remove(&task);
        }
        // Its results: the stages that no other reads.
        if !self.reads.iter().flatten().any(|read| *read as usize == stage) {
            let twice = self.passed.insert(task, self.given[&task].clone());
            assert!(twice.is_none(), "task {task} was passed on twice");
        }
    }

    /// Takes steps: each number chooses a task to end, or an output to be lost before.
    fn run(&mut self, steps: &[(u8, bool)]) -> Result<(), PassedOn> {
        let mut steps = steps.iter().copied();
        self.proceed();
        while !self.graph.is_complete() {
            // Without steps left: nothing is lost any more.
            let (choice, lose) = steps.next().unwrap_or((0, false));
            if lose && choice % 2 == 1 && !self.gangs.is_empty() {
                let gang = &self.gangs[choice as usize % self.gangs.len()];
                let task = *gang.tasks.iter().nth(choice as usize % gang.tasks.len()).unwrap();
                self.break_gang(task);
                self.restore()?;
                self.proceed();
                continue;
            }
            if lose && !self.stored.is_empty() {
                let index = choice as usize % self.stored.len();
                let lost = *self.stored.iter().nth(index).unwrap();
                self.stored.remove(&lost);
                continue;
            }
            assert!(!self.running.is_empty(), "nothing runs and the query is not complete");
            let index = choice as usize % self.running.len();
            let task = *self.running.keys().nth(index).unwrap();
            self.end(task)?;
            self.proceed();
        }
        Ok(())
    }

    /// All rows that were passed on depend on the same run of each task that may give others.
    fn check(&self) {
        let mut runs: BTreeMap<u32, u32> = BTreeMap::new();
        for given in self.passed.values() {
            for (task, run) in &given.runs {
                assert_eq!(*runs.entry(*task).or_insert(*run), *run, "two runs of task {task}");
            }
        }
    }
}

fn repeat() -> impl Strategy<Value = Repeat> {
    prop_oneof![
        3 => Just(Repeat::Exactly),
        1 => Just(Repeat::SameRows),
        1 => Just(Repeat::Differently),
    ]
}

/// Up to six stages of up to four tasks; each but the first reads one or two before it.
fn stages() -> impl Strategy<Value = Vec<(usize, Vec<u32>, Repeat)>> {
    prop::collection::vec((1usize..5, any::<(u8, u8)>(), repeat()), 1..7).prop_map(|stages| {
        let stage = |(index, (tasks, (a, b), repeat)): (usize, (usize, (u8, u8), Repeat))| {
            let read = |of: u8| u32::from(of) % (index as u32).max(1);
            let reads: BTreeSet<u32> = match (index, a % 4) {
                (0, _) | (_, 0) => BTreeSet::new(),
                _ => [read(a / 4), read(b)].into(),
            };
            (tasks, reads.into_iter().collect(), repeat)
        };
        stages.into_iter().enumerate().map(stage).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn lost_outputs_are_made_again_and_rows_of_two_runs_never_mix(
        stages in stages(),
        steps in prop::collection::vec((any::<u8>(), prop::bool::weighted(0.3)), 0..120),
    ) {
        let mut simulation = Simulation::new(&stages);
        match simulation.run(&steps) {
            Ok(()) => simulation.check(),
            // Only if a task of this kind is there.
            Err(PassedOn { lost }) => {
                let stage = simulation.stage_of[lost as usize];
                prop_assert_eq!(simulation.repeats[stage], Repeat::Differently);
            }
        }
        // Each task runs once, and again at most once for each loss.
        let losses = steps.iter().filter(|(_, lose)| *lose).count() as u32;
        prop_assert!(simulation.runs.values().all(|runs| *runs <= 1 + losses));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn gangs_that_break_end_and_no_rows_are_lost_or_twice(
        stages in stages(),
        steps in prop::collection::vec((any::<u8>(), prop::bool::weighted(0.3)), 0..120),
    ) {
        let mut simulation = Simulation::streaming(&stages);
        match simulation.run(&steps) {
            Ok(()) => {
                simulation.check();
                let all: usize = stages.iter().map(|(tasks, ..)| *tasks).sum();
                prop_assert_eq!(simulation.given.len(), all, "each task has given its rows");
            }
            Err(PassedOn { lost }) => {
                let stage = simulation.stage_of[lost as usize];
                prop_assert_eq!(simulation.repeats[stage], Repeat::Differently);
            }
        }
    }
}

/// Two tasks that two others read, whose outputs go to one: 0 and 1, 2 and 3, 4.
fn three_stages(first: Repeat) -> Simulation {
    let stages = [(2, vec![], first), (2, vec![0], Repeat::Exactly), (1, vec![1], Repeat::Exactly)];
    Simulation::new(&stages)
}

#[test]
fn inputs_that_were_released_are_made_again_from_the_files() {
    let mut simulation = three_stages(Repeat::Exactly);
    simulation.proceed();
    for task in [0, 1, 2, 3] {
        simulation.end(task).unwrap();
        simulation.proceed();
    }
    assert_eq!(simulation.stored, [2, 3].into(), "the outputs of the first stage are released");
    simulation.stored.remove(&3);
    simulation.end(4).unwrap();
    simulation.proceed();
    // Task 3 needs both tasks of the first stage.
    assert_eq!(simulation.running.keys().copied().collect::<Vec<_>>(), [0, 1]);
    simulation.run(&[]).unwrap();
    let runs: Vec<u32> = simulation.runs.values().copied().collect();
    assert_eq!(runs, [2, 2, 1, 2, 1]);
    assert!(simulation.stored.is_subset(&[4].into()), "they are released again");
}

#[test]
fn a_lost_output_is_made_once_for_all_of_its_readers() {
    let mut simulation = three_stages(Repeat::SameRows);
    simulation.proceed();
    simulation.end(0).unwrap();
    simulation.end(1).unwrap();
    simulation.proceed();
    simulation.stored.remove(&0);
    simulation.end(2).unwrap();
    simulation.proceed();
    assert!(simulation.running.contains_key(&0));
    // The other reader notices the same loss.
    simulation.end(3).unwrap();
    simulation.proceed();
    simulation.run(&[]).unwrap();
    assert_eq!(simulation.runs[&0], 2);
}

#[test]
fn readers_of_other_rows_are_run_again() {
    let mut simulation = three_stages(Repeat::Differently);
    simulation.proceed();
    simulation.end(0).unwrap();
    simulation.end(1).unwrap();
    simulation.proceed();
    simulation.end(2).unwrap();
    simulation.stored.remove(&1);
    simulation.end(3).unwrap();
    simulation.proceed();
    assert!(!simulation.stored.contains(&2), "it came from rows that are gone");
    simulation.run(&[]).unwrap();
    assert_eq!(simulation.runs[&2], 2);
    simulation.check();
}

#[test]
fn rows_that_were_passed_on_cannot_be_taken_back() {
    let stages = [(1, vec![], Repeat::Differently), (2, vec![0], Repeat::Exactly)];
    let mut simulation = Simulation::new(&stages);
    simulation.proceed();
    simulation.end(0).unwrap();
    simulation.proceed();
    simulation.end(1).unwrap();
    simulation.stored.remove(&0);
    assert_eq!(simulation.end(2), Err(PassedOn { lost: 0 }));
}
