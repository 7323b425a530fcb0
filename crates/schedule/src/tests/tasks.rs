//! Tests of tasks of queries beside calls and gangs: their hosts, their times, and the requests
//! that room is kept for.

use std::sync::Arc;
use std::time::Duration;

use super::gangs::{ask, gang, hosts, of_tenant};
use super::{SECOND, call, decided, name, run, waits};
use crate::{CallDemand, Decision, HostRoom, Scheduler, TaskDemand, Ticket, Wish};

pub(super) fn task(memory: u64) -> Arc<TaskDemand> {
    of_whom("t", memory)
}

pub(super) fn of_whom(tenant: &str, memory: u64) -> Arc<TaskDemand> {
    let tenant = tenant.parse().unwrap();
    Arc::new(TaskDemand { tenant, memory, cpu_millis: 1000, only: None })
}

/// The hosts in the order in which a query wants them.
pub(super) fn wish(numbers: &[usize]) -> Wish {
    Wish { hosts: numbers.iter().copied().map(name).collect(), ..Wish::default() }
}

fn waiting(
    scheduler: &mut Scheduler,
    task: Arc<TaskDemand>,
    hosts: &[usize],
    now: Duration,
) -> Ticket {
    let ticket = scheduler.ask_task(task, Wish { since: now, ..wish(hosts) }, now);
    assert_eq!(decided(scheduler, now), []);
    ticket
}

#[test]
fn a_task_gets_the_first_of_its_hosts_that_has_room() {
    let mut scheduler = hosts(3);
    let now = Duration::ZERO;
    let first = scheduler.start_task(task(50), &name(2), now).unwrap();
    assert!(scheduler.has_tasks(&name(2)) && !scheduler.has_tasks(&name(1)));
    assert_eq!(scheduler.start_task(task(1), &name(2), now), None);
    let second = scheduler.ask_task(task(30), wish(&[2, 3, 1]), now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(second, name(3))]);
    // What it cannot have now it may have later, on other hosts too.
    let third = waiting(&mut scheduler, task(30), &[2, 3], now);
    scheduler.wish(third, wish(&[3, 1]));
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(third, name(1))]);
    let fourth = waiting(&mut scheduler, task(50), &[1, 2, 3], now);
    scheduler.ended(first, None, SECOND);
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Run(fourth, name(2))]);
    // One that needs nothing is counted all the same.
    let uses = scheduler.runs_task(task(0), &name(3), SECOND);
    scheduler.ended(second, None, SECOND);
    assert!(scheduler.has_tasks(&name(3)));
    scheduler.ended(uses, None, SECOND);
    assert!(!scheduler.has_tasks(&name(3)));
}

#[test]
fn calls_ranks_and_tasks_share_the_memory_of_a_host() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let running = scheduler.start_task(task(30), &name(1), now).unwrap();
    // Calls reserve half of their limits.
    let (ran, _) = run(&mut scheduler, call("f", 20), now);
    let late = waits(&mut scheduler, call("g", 22), now);
    let burst = ask(&mut scheduler, gang(1, 11), now);
    assert_eq!(decided(&mut scheduler, now), []);
    assert_eq!(scheduler.start_task(task(11), &name(1), now), None);
    scheduler.ended(ran, Some(0), SECOND);
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Run(late, name(1))]);
    scheduler.ended(running, None, SECOND);
    let expected = vec![(name(1), 1)];
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Start(burst, expected)]);
    scheduler.start_task(task(28), &name(1), SECOND).unwrap();
    // Others than these have room that ranks may take, and tasks may not.
    let room = HostRoom { tasks: 20, ..super::gangs::ROOM };
    scheduler.report(&name(2), room);
    assert_eq!(scheduler.start_task(task(21), &name(2), SECOND), None);
    let burst = ask(&mut scheduler, gang(1, 50), SECOND);
    let expected = vec![(name(2), 1)];
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Start(burst, expected)]);
}

#[test]
fn tasks_take_nothing_that_is_kept_for_a_gang_or_a_call_that_has_waited() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    let long = scheduler.start_task(task(20), &name(1), now).unwrap();
    let burst = ask(&mut scheduler, gang(2, 40), now);
    assert_eq!(decided(&mut scheduler, now), []);
    // It passes a gang that does not fit, until that has waited for long.
    let passes = scheduler.start_task(task(20), &name(2), SECOND).unwrap();
    scheduler.ended(passes, None, SECOND);
    let now = 16 * SECOND;
    assert_eq!(scheduler.start_task(task(20), &name(2), now), None);
    let late = waiting(&mut scheduler, task(20), &[1, 2], now);
    let beside = scheduler.start_task(task(10), &name(2), now).unwrap();
    scheduler.ended(beside, None, now);
    scheduler.ended(long, None, now);
    let expected = vec![(name(1), 1), (name(2), 1)];
    assert_eq!(decided(&mut scheduler, now), [Decision::Start(burst, expected)]);
    scheduler.ended(burst, None, now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(late, name(1))]);

    let others = [1, 2].map(|host| scheduler.start_task(task(30), &name(host), now).unwrap());
    let large = waits(&mut scheduler, call("large", 60), now);
    scheduler.ended(others[1], None, now + 16 * SECOND);
    // It gets the room before a task is asked about.
    let now = now + 16 * SECOND;
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(large, name(2))]);
    let larger = waits(&mut scheduler, call("larger", 90), now);
    assert_eq!(scheduler.start_task(task(20), &name(2), now + 16 * SECOND), None);
    scheduler.withdraw(larger, now);
    scheduler.start_task(task(20), &name(2), now + 16 * SECOND).unwrap();
}

#[test]
fn a_task_that_has_waited_has_room_kept_on_one_host_if_no_gang_waits_as_long() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    let on = |host| CallDemand { only: Some(name(host)), ..call("f", 20) };
    let first = [1; 4].map(|host| run(&mut scheduler, on(host), now).0);
    let second = [2; 5].map(|host| run(&mut scheduler, on(host), now).0);
    let large = waiting(&mut scheduler, task(40), &[1, 2], now);
    let now = 16 * SECOND;
    // The host that has most of it free keeps what becomes free there, and no other host does.
    scheduler.ended(first[0], Some(0), now);
    let late = waits(&mut scheduler, call("late", 20), now);
    scheduler.ended(second[0], Some(0), now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(late, name(2))]);
    scheduler.ended(first[1], Some(0), now);
    assert_eq!(decided(&mut scheduler, now), []);
    scheduler.ended(first[2], Some(0), now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(large, name(1))]);

    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let running = scheduler.start_task(task(30), &name(1), now).unwrap();
    let starved = waiting(&mut scheduler, task(45), &[1], now);
    let burst = ask(&mut scheduler, gang(1, 45), now);
    scheduler.ended(running, None, 16 * SECOND);
    let expected = vec![(name(1), 1)];
    assert_eq!(decided(&mut scheduler, 16 * SECOND), [Decision::Start(burst, expected)]);
    scheduler.ended(burst, None, 17 * SECOND);
    assert_eq!(decided(&mut scheduler, 17 * SECOND), [Decision::Run(starved, name(1))]);
}

#[test]
fn the_tenant_whose_calls_gangs_and_tasks_have_the_least_comes_first() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let first = scheduler.start_task(of_whom("greedy", 25), &name(1), now).unwrap();
    let second = scheduler.start_task(of_whom("greedy", 25), &name(1), now).unwrap();
    let greedy = waiting(&mut scheduler, of_whom("greedy", 25), &[1], now);
    let modest = waiting(&mut scheduler, of_whom("modest", 25), &[1], SECOND);
    scheduler.ended(first, None, 2 * SECOND);
    assert_eq!(decided(&mut scheduler, 2 * SECOND), [Decision::Run(modest, name(1))]);
    scheduler.ended(second, None, 2 * SECOND);
    assert_eq!(decided(&mut scheduler, 2 * SECOND), [Decision::Run(greedy, name(1))]);
    // A gang of the one that has less comes before its task.
    let third = waiting(&mut scheduler, of_whom("greedy", 25), &[1], 3 * SECOND);
    let burst = ask(&mut scheduler, of_tenant("modest", gang(1, 25)), 3 * SECOND);
    scheduler.ended(modest, None, 4 * SECOND);
    let expected = vec![(name(1), 1)];
    assert_eq!(decided(&mut scheduler, 4 * SECOND), [Decision::Start(burst, expected)]);
    scheduler.withdraw(third, 5 * SECOND);
    assert_eq!(scheduler.waiting(), 0);
}

#[test]
fn a_host_that_refuses_gets_no_tasks_until_it_reports_and_calls_all_the_same() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    let first = scheduler.ask_task(task(10), wish(&[1, 2]), now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(first, name(1))]);
    scheduler.refused(first, now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Run(first, name(2))]);
    assert_eq!(scheduler.start_task(task(10), &name(1), now), None);
    run(&mut scheduler, CallDemand { only: Some(name(1)), ..call("f", 10) }, now);
    scheduler.report(&name(1), super::gangs::ROOM);
    scheduler.start_task(task(10), &name(1), now).unwrap();
    scheduler.drain(&name(1), true);
    assert_eq!(scheduler.start_task(task(10), &name(1), now), None);
    scheduler.withdraw(first, now);
}

#[test]
fn a_host_that_comes_back_still_has_its_tasks() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    let first = scheduler.start_task(task(30), &name(2), now).unwrap();
    let second = scheduler.start_task(task(10), &name(2), now).unwrap();
    scheduler.remove(&name(2), SECOND);
    // It may have been silent for a while only: whoever lost it says so.
    scheduler.ended(second, None, SECOND);
    scheduler.report(&name(2), super::gangs::ROOM);
    assert!(scheduler.has_tasks(&name(2)));
    assert_eq!(scheduler.start_task(task(21), &name(2), SECOND), None);
    scheduler.ended(first, None, SECOND);
    assert!(!scheduler.has_tasks(&name(2)));
    scheduler.start_task(task(50), &name(2), SECOND).unwrap();
}

#[test]
fn a_host_that_refuses_tasks_is_not_free_for_those_that_wait() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let only = scheduler.start_task(task(10), &name(1), now).unwrap();
    scheduler.refused(only, now);
    assert_eq!(scheduler.lacking(SECOND), 0, "nobody has said that it waits");
    scheduler.withdraw(only, now);
    waiting(&mut scheduler, task(10), &[1], now);
    assert_eq!(scheduler.lacking(SECOND), 1);
    scheduler.report(&name(1), super::gangs::ROOM);
    assert_eq!(decided(&mut scheduler, SECOND).len(), 1);
}

#[test]
fn a_share_is_kept_for_a_gang_also_of_memory_that_tasks_really_use() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let first = scheduler.start_task(task(30), &name(1), now).unwrap();
    let burst = ask(&mut scheduler, gang(1, 40), now);
    // The memory of the machine that is left, as long as the task runs.
    let used = HostRoom { ranks: 20, ..super::gangs::ROOM };
    scheduler.report(&name(1), used);
    let before = scheduler.start_task(task(5), &name(1), SECOND).unwrap();
    scheduler.ended(before, None, SECOND);
    assert_eq!(decided(&mut scheduler, 16 * SECOND), []);
    assert_eq!(scheduler.start_task(task(5), &name(1), 16 * SECOND), None);
    scheduler.ended(first, None, 17 * SECOND);
    scheduler.report(&name(1), super::gangs::ROOM);
    let expected = vec![(name(1), 1)];
    assert_eq!(decided(&mut scheduler, 17 * SECOND), [Decision::Start(burst, expected)]);
}

#[test]
fn tasks_that_wait_need_the_hosts_that_hold_them() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    scheduler.start_task(task(50), &name(1), now).unwrap();
    let first = waiting(&mut scheduler, task(25), &[1], now);
    scheduler.wish(first, Wish { behind: 4, ..wish(&[1]) });
    assert_eq!(scheduler.lacking(Duration::ZERO), 0, "others may end in a moment");
    assert_eq!(scheduler.lacking(SECOND), 3);
    // Tasks of several queries may be on one host.
    waiting(&mut scheduler, task(10), &[1], now);
    assert_eq!(scheduler.lacking(SECOND), 3);
    waiting(&mut scheduler, task(40), &[1], now);
    assert_eq!(scheduler.lacking(SECOND), 4);
    let bound = TaskDemand { only: Some(name(1)), ..(*task(50)).clone() };
    waiting(&mut scheduler, Arc::new(bound), &[1], now);
    waiting(&mut scheduler, task(51), &[1], now);
    assert_eq!(scheduler.lacking(SECOND), 4, "only one host may run it, or none holds it");
    // What is free on others counts before a query can use them.
    scheduler.report(&name(2), super::gangs::ROOM);
    assert_eq!(decided(&mut scheduler, SECOND), []);
    assert_eq!(scheduler.lacking(SECOND), 3);
}
