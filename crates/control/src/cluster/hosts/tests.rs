//! Hosts that join, and what they report.

use super::*;
use crate::platform::rig::idle_platform;

fn join(name: &str, address: &str, facts: HostFacts) -> HostJoin {
    let version = snowmelt_rpc::version().to_owned();
    let protocol = snowmelt_rpc::protocol();
    let facts = HostFacts { version, protocol, overcommit: 1, ..facts };
    let name = name.to_owned().try_into().unwrap();
    HostJoin { name, address: Some(address.parse().unwrap()), facts }
}

fn damaged(counts: &[(&str, u64)]) -> HostFacts {
    let counts = counts.iter().map(|(address, count)| ((*address).to_owned(), *count));
    HostFacts { damaged: counts.collect(), ..HostFacts::default() }
}

#[tokio::test]
async fn damaged_data_count_for_the_host_that_sent_them() {
    let idle = idle_platform().await;
    let agent = Agent::new(idle.platform.node.clone(), None);
    let token = Some(Token::new("sixteen-characters").unwrap().into());
    let hosts = Hosts::new("control".to_owned().try_into().unwrap(), agent, token, None).unwrap();
    // The last two have one address.
    let seen = damaged(&[("192.0.2.3", 2), ("192.0.2.4", 1), ("192.0.2.9", 5)]);
    hosts.join(join("two", "192.0.2.2:7070", seen)).unwrap();
    hosts.join(join("three", "192.0.2.3:7070", damaged(&[("192.0.2.4", 1)]))).unwrap();
    hosts.join(join("four", "192.0.2.4:7070", damaged(&[("192.0.2.3", 1)]))).unwrap();
    hosts.join(join("five", "192.0.2.4:7071", HostFacts::default())).unwrap();
    let counted = hosts.damaged();
    let of = |name: &str| counted.get(name).copied();
    assert_eq!((of("three"), of("192.0.2.4"), of("192.0.2.9")), (Some(3), Some(2), Some(5)));
    assert_eq!((of("four"), of("192.0.2.3")), (None, None));
}

#[tokio::test]
async fn a_host_may_ask_again_whose_name_another_one_has() {
    let idle = idle_platform().await;
    let agent = Agent::new(idle.platform.node.clone(), None);
    let token = Some(Token::new("sixteen-characters").unwrap().into());
    let hosts = Hosts::new("control".to_owned().try_into().unwrap(), agent, token, None).unwrap();
    hosts.join(join("two", "192.0.2.2:7070", HostFacts::default())).unwrap();
    let replaces = join("two", "192.0.2.8:7070", HostFacts::default());
    let refused = hosts.join(replaces.clone()).unwrap_err();
    assert!(refused.code == Code::HOST_REFUSED.code && refused.retryable, "{refused}");
    hosts.leave(&replaces.name);
    hosts.join(replaces).unwrap();
    // Control does not go away for it.
    let of_control = join("control", "192.0.2.8:7071", HostFacts::default());
    assert!(!hosts.join(of_control).unwrap_err().retryable);
}

#[tokio::test]
async fn hosts_one_version_apart_join_and_take_no_part_in_queries() {
    let idle = idle_platform().await;
    let agent = Agent::new(idle.platform.node.clone(), None);
    let token = Some(Token::new("sixteen-characters").unwrap().into());
    let hosts = Hosts::new("control".to_owned().try_into().unwrap(), agent, token, None).unwrap();
    hosts.join(join("two", "192.0.2.2:7070", HostFacts::default())).unwrap();
    let mut newer = join("three", "192.0.2.3:7070", HostFacts::default());
    newer.facts.version = "9.9.9".to_owned();
    newer.facts.protocol += 1;
    hosts.join(newer.clone()).unwrap();
    let names = |hosts: Vec<Arc<ClusterHost>>| {
        let mut names: Vec<_> = hosts.iter().map(|host| host.name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(hosts.open()), ["control", "three", "two"]);
    assert_eq!(names(hosts.of_query(false)), ["control", "two"]);
    for far in [0, newer.facts.protocol + 1] {
        newer.facts.protocol = far;
        let refused = hosts.join(newer.clone()).unwrap_err();
        assert!(refused.code == Code::HOST_REFUSED.code && !refused.retryable, "{refused}");
        assert!(refused.message.contains("three of version 9.9.9"), "{refused}");
    }
}
