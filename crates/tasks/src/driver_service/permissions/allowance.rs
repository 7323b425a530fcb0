//! Bounds of the requests of a driver: the most that a correct driver of its query needs.
//!
//! A driver that hostile input has taken over can repeat allowed requests. Everything that a
//! request costs is counted here: searched folders, files, workers and instances.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use snowmelt_wire::{
    Drive, FileGrant, LocalFile, MAX_FOOTERS, MAX_FURTHER_ATTEMPTS, MAX_PLANS, TaskAsk,
};

use super::locations::Locations;

/// Lists that are allowed beside one for each named location: a table can be named in several ways.
const SPARE_LISTS: usize = 64;

/// Instances of a function that can be requested in advance, for each worker. A worker that needs
/// more gets them one by one.
const AHEAD: usize = 4;

/// The most requests of one driver to recall footers of earlier queries, and as many to keep some.
/// Each request is about 131,072 files at most.
const FOOTER_REQUESTS: usize = 4096;

/// The requests that one driver has made, and may make.
#[derive(Debug)]
pub(in crate::driver_service) struct Allowance {
    workers: usize,
    attempts: u32,
    /// Locations that may still be listed.
    lists: usize,
    /// Files that may still be opened for the driver itself, each once: for its footer, or its
    /// beginning.
    opens: usize,
    /// Every file that the query's locations hold, with its version each time it was listed: no
    /// other is opened, here or on another host, which compares its own file with that version.
    listed: BTreeMap<String, Vec<String>>,
    plans: usize,
    /// Requests that may still be made to recall footers.
    recalls: usize,
    /// Requests that may still be made to keep footers.
    keeps: usize,
    /// Gangs that may still be requested: each has two plans.
    gangs: usize,
    /// The number of tasks of each plan.
    tasks: HashMap<u32, usize>,
    /// The number of attempts of each task.
    tried: HashMap<u32, u32>,
    /// Each function with its instances requested in advance, and whether the driver has an
    /// instance of its own.
    functions: HashMap<String, (usize, bool)>,
}

/// The reason why a request is refused.
type RefusalReason = &'static str;

impl Allowance {
    pub(in crate::driver_service) fn of(drive: &Drive, locations: &Locations) -> Self {
        Self {
            workers: drive.workers.max(1) as usize,
            attempts: drive.retries.saturating_add(1).saturating_add(MAX_FURTHER_ATTEMPTS),
            lists: locations.most().saturating_add(SPARE_LISTS),
            opens: 0,
            listed: BTreeMap::new(),
            plans: 0,
            recalls: FOOTER_REQUESTS,
            keeps: FOOTER_REQUESTS,
            gangs: MAX_PLANS / 2,
            tasks: HashMap::new(),
            tried: HashMap::new(),
            functions: drive.udfs.iter().map(|udf| (udf.name.clone(), (0, false))).collect(),
        }
    }

    /// Counts a location that is to be listed.
    pub(in crate::driver_service) fn list(&mut self) -> Result<(), RefusalReason> {
        let left = self.lists.checked_sub(1);
        self.lists = left.ok_or("it listed more locations than the query names")?;
        Ok(())
    }

    /// Notes files that were listed, so that each may be opened once.
    pub(in crate::driver_service) fn listed(&mut self, files: &[LocalFile]) {
        for file in files {
            self.opens += 1;
            let versions = self.listed.entry(file.path.clone()).or_default();
            if !versions.contains(&file.version) {
                versions.push(file.version.clone());
            }
        }
    }

    /// Counts files that are to be opened for the driver.
    pub(in crate::driver_service) fn open(&mut self, files: usize) -> Result<(), RefusalReason> {
        let left = self.opens.checked_sub(files);
        self.opens = left.ok_or("it opened files more often than the query needs them")?;
        Ok(())
    }

    /// Returns whether a file was listed, so that it may be opened.
    pub(in crate::driver_service) fn is_listed(&self, path: &str) -> bool {
        self.listed.contains_key(path)
    }

    /// Checks that a task may read this version of a file. Only versions that the platform has
    /// found count, whatever the driver says.
    pub(in crate::driver_service) fn grant(&self, file: &FileGrant) -> Result<(), RefusalReason> {
        match self.listed.get(&file.path) {
            Some(versions) if versions.contains(&file.version) => Ok(()),
            Some(_) => Err("it asked for a version of a file that was not found"),
            None => Err("it asked for a file that the query does not name"),
        }
    }

    /// Counts a plan that has arrived. False if the driver has sent too many.
    pub(in crate::driver_service) fn plan(&mut self) -> bool {
        self.plans += 1;
        self.plans <= MAX_PLANS
    }

    /// Counts a request to read footers of earlier queries.
    pub(in crate::driver_service) fn recall(
        &mut self,
        footers: usize,
    ) -> Result<(), RefusalReason> {
        if footers > MAX_FOOTERS {
            return Err("it asked for too many footers at once");
        }
        let left = self.recalls.checked_sub(1);
        self.recalls = left.ok_or("it asked for footers more often than queries do")?;
        Ok(())
    }

    /// Counts a request to keep footers. False if it has too many footers, or the driver made too
    /// many requests.
    pub(in crate::driver_service) fn keep(&mut self, footers: usize) -> bool {
        let may = footers <= MAX_FOOTERS && self.keeps > 0;
        self.keeps = self.keeps.saturating_sub(1);
        may
    }

    /// Counts a gang for which room is to be reserved.
    pub(in crate::driver_service) fn reserve(&mut self) -> Result<(), RefusalReason> {
        let left = self.gangs.checked_sub(1);
        self.gangs = left.ok_or("it asked for more gangs than the query has stages")?;
        Ok(())
    }

    /// Counts an attempt of a task that is to be started; its plan has arrived.
    pub(in crate::driver_service) fn run(&mut self, ask: &TaskAsk) -> Result<(), RefusalReason> {
        let udfs: BTreeSet<&String> = ask.udfs.iter().collect();
        if udfs.len() < ask.udfs.len() {
            return Err("it asked for several instances of a function for one task");
        }
        if ask.files.len() > self.listed.len() {
            return Err("it asked for more files for a task than the query names");
        }
        let tried = self.tried.get(&ask.task).copied().unwrap_or_default();
        if ask.attempt != tried || tried >= self.attempts {
            return Err("it ran a task more often than tasks are tried");
        }
        if tried == 0 {
            let tasks = self.tasks.entry(ask.plan).or_default();
            if *tasks >= self.workers {
                return Err("it asked for more workers than the query has");
            }
            *tasks += 1;
        }
        self.tried.insert(ask.task, tried + 1);
        Ok(())
    }

    /// Filters the functions whose instances the tasks will need: returns those that may be
    /// requested in advance.
    pub(in crate::driver_service) fn expect(&mut self, udfs: Vec<String>) -> Vec<String> {
        let most = self.workers.saturating_mul(AHEAD);
        let is_allowed = |name: &String| match self.functions.get_mut(name) {
            Some((expected, _)) if *expected < most => {
                *expected += 1;
                true
            }
            _ => false,
        };
        udfs.into_iter().filter(is_allowed).collect()
    }

    /// Counts the one instance of a function with which the driver itself may be connected.
    pub(in crate::driver_service) fn connect(&mut self, udf: &str) -> Result<(), RefusalReason> {
        match self.functions.get_mut(udf) {
            Some((_, connected @ false)) => {
                *connected = true;
                Ok(())
            }
            Some(_) => Err("it asked for a second instance of a function for itself"),
            None => Err("it asked for a function that the query does not have"),
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_wire::{ExchangeOptions, OnError, Signature};

    use super::*;

    /// Returns the allowance of a query with two workers, one retry and one function.
    fn allowance() -> Allowance {
        let udf = Signature {
            name: "f".to_owned(),
            kind: Default::default(),
            batch: "scalar".to_owned(),
            schema: String::new(),
            on_error: OnError::Raise,
            deterministic: false,
            packages: Vec::new(),
            memory: None,
            timeout: None,
        };
        let drive = Drive {
            query: "q".to_owned(),
            sql: "select f(a) from 'x'".to_owned(),
            params: Default::default(),
            csv: Vec::new(),
            tables: BTreeMap::new(),
            udfs: vec![udf],
            aws: BTreeMap::new(),
            http_sources: Vec::new(),
            workers: 2,
            scan_task_bytes: 0,
            threads: 1,
            memory_bytes: 1,
            retries: 1,
            exchange: ExchangeOptions::default(),
            exchange_folder: String::new(),
            elapsed_us: 0,
            packages_us: 0,
            hosts: 1,
            worker_memory: 0,
            driver_memory: 0,
            prices: None,
        };
        Allowance::of(&drive, &Locations::of(&drive))
    }

    fn ask(plan: u32, task: u32, attempt: u32) -> TaskAsk {
        TaskAsk { task, attempt, partitions: vec![0], plan, batch_rows: 1, ..TaskAsk::default() }
    }

    fn file(path: &str, version: &str) -> LocalFile {
        LocalFile { path: path.into(), bytes: 0, modified_nanos: 0, version: version.into() }
    }

    fn granted(path: &str, version: &str) -> FileGrant {
        FileGrant { path: path.into(), bytes: 0, version: version.into() }
    }

    #[test]
    fn each_plan_has_as_many_tasks_as_the_query_has_workers() {
        let mut allowance = allowance();
        for (plan, task) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
            allowance.run(&ask(plan, task, 0)).unwrap();
        }
        for (plan, task, attempt) in [(0, 4, 0), (1, 5, 0), (0, 0, 0), (0, 0, 2)] {
            assert!(allowance.run(&ask(plan, task, attempt)).is_err(), "{plan} {task} {attempt}");
        }
        allowance.run(&ask(0, 0, 1)).unwrap();
    }

    #[test]
    fn a_task_is_tried_once_and_again_after_losses_within_a_bound() {
        let mut allowance = allowance();
        // The first attempt, one retry, and those after lost outputs or beside slow attempts.
        let most = 2 + MAX_FURTHER_ATTEMPTS;
        for attempt in 0..most {
            let twin = attempt == 3;
            allowance.run(&TaskAsk { twin, ..ask(0, 0, attempt) }).unwrap();
        }
        assert!(allowance.run(&ask(0, 0, most)).is_err());
        assert!(allowance.run(&TaskAsk { twin: true, ..ask(0, 0, most) }).is_err());
        // The bound of another task is its own, and that of the plan's tasks is unchanged.
        allowance.run(&ask(0, 1, 0)).unwrap();
        assert!(allowance.run(&ask(0, 2, 0)).is_err());
    }

    #[test]
    fn a_task_has_one_instance_of_a_function_and_no_more_files_than_there_are() {
        let mut allowance = allowance();
        let reads = TaskAsk { files: vec![granted("/x/a", "1")], ..ask(0, 0, 0) };
        assert!(allowance.run(&reads).is_err());
        allowance.listed(&[file("/x/a", "1")]);
        allowance.run(&reads).unwrap();
        let twice = TaskAsk { udfs: vec!["f".into(), "f".into()], ..ask(0, 1, 0) };
        assert!(allowance.run(&twice).is_err());
    }

    #[test]
    fn files_are_opened_as_often_as_they_were_listed() {
        let mut allowance = allowance();
        assert!(allowance.open(1).is_err() && !allowance.is_listed("/x/a"));
        allowance.listed(&[file("/x/a", "1"), file("/x/b", "1")]);
        allowance.open(2).unwrap();
        assert!(allowance.open(1).is_err() && allowance.is_listed("/x/a"));
        for _ in 0..=SPARE_LISTS {
            allowance.list().unwrap();
        }
        assert!(allowance.list().is_err());
    }

    #[test]
    fn files_are_granted_in_the_versions_that_the_platform_has_found() {
        let mut allowance = allowance();
        allowance.listed(&[file("/x/a", "7-17.5-ff"), file("/x/b", "8-17.5-ff")]);
        allowance.listed(&[file("/x/a", "7-19.5-ff")]);
        // The file was written to between two listings: the plan may have either.
        for version in ["7-17.5-ff", "7-19.5-ff"] {
            allowance.grant(&granted("/x/a", version)).unwrap();
        }
        for (path, version) in [("/x/b", "7-17.5-ff"), ("/x/a", ""), ("/x/c", "7-17.5-ff")] {
            assert!(allowance.grant(&granted(path, version)).is_err(), "{path} {version}");
        }
    }

    #[test]
    fn functions_are_requested_in_advance_within_bounds_and_connected_once() {
        let mut allowance = allowance();
        let names = |name: &str, count| vec![name.to_owned(); count];
        assert_eq!(allowance.expect(names("f", 5)).len(), 5);
        assert_eq!(allowance.expect(names("f", 9)).len(), 2 * AHEAD - 5);
        assert!(allowance.expect(names("g", 1)).is_empty());
        allowance.connect("f").unwrap();
        assert!(allowance.connect("f").is_err() && allowance.connect("g").is_err());
    }

    #[test]
    fn footers_are_recalled_and_kept_within_bounds() {
        let mut allowance = allowance();
        assert!(allowance.recall(MAX_FOOTERS + 1).is_err() && !allowance.keep(MAX_FOOTERS + 1));
        assert!((0..FOOTER_REQUESTS).all(|_| allowance.recall(MAX_FOOTERS).is_ok()));
        assert!(allowance.recall(1).is_err());
        assert!((1..FOOTER_REQUESTS).all(|_| allowance.keep(MAX_FOOTERS)) && !allowance.keep(1));
    }

    #[test]
    fn plans_are_counted() {
        let mut allowance = allowance();
        assert!((0..MAX_PLANS).all(|_| allowance.plan()) && !allowance.plan());
    }
}
