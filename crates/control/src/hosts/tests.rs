//! Hosts that join, and what they report.

use super::*;
use crate::rig::idle_platform;

fn join(name: &str, address: &str, facts: HostFacts) -> HostJoin {
    let facts = HostFacts { version: snowmelt_rpc::version().to_owned(), overcommit: 1, ..facts };
    let name = name.to_owned().try_into().unwrap();
    HostJoin { name, address: Some(address.parse().unwrap()), facts }
}

#[tokio::test]
async fn a_host_may_ask_again_whose_name_another_one_has() {
    let idle = idle_platform().await;
    let agent = Agent::new(idle.platform.node.clone(), None);
    let token = Some(Token::new("sixteen-characters").unwrap());
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
