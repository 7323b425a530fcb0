//! The cluster of a server: its own host, and the authority by which others join.

use snowmelt_node::Node;
use snowmelt_rpc::Credential;
use snowmelt_tasks::agent::Agent;
use snowmelt_types::{Code, ErrorReport};
use tokio_util::sync::CancellationToken;

use super::{ClusterProof, ClusterSettings, ServerSettings};
use crate::cluster::authority::{self, ClusterAuthority};
use crate::cluster::hosts::Hosts;
use crate::state::records::Records;

/// The hosts of a server, and the authority of its cluster.
pub(super) struct OwnCluster {
    pub hosts: Hosts,
    /// `None` if no hosts join, and in a cluster without encryption.
    pub authority: Option<ClusterAuthority>,
}

impl OwnCluster {
    /// Makes the hosts, and keeps control's certificate new until the server is `over`. A leader
    /// among several controls sends its term with all that hosts are asked: they refuse what an
    /// earlier leader asks.
    pub async fn open(
        settings: &ServerSettings,
        node: &Node,
        records: &Records,
        over: &CancellationToken,
        term: Option<u64>,
    ) -> Result<Self, ErrorReport> {
        let agent = Agent::new(node.clone(), settings.memory);
        let Some(ClusterSettings { name, listen, proof }) = settings.cluster.clone() else {
            let name = "this-host".to_owned().try_into();
            let name = name.map_err(|message: String| ErrorReport::new(Code::OPTION, message))?;
            return Ok(Self { hosts: Hosts::new(name, agent, None, None)?, authority: None });
        };
        let mut authority = None;
        let credential = match proof {
            ClusterProof::Token(token) => Credential::from(token),
            ClusterProof::Certificates(life) => {
                let records = records.clone();
                let folder = settings.shared_folder();
                let opened = ClusterAuthority::open(folder, name.clone(), life, records).await?;
                tokio::spawn(opened.clone().keep(node.clone(), over.clone()));
                authority.insert(opened).credential().clone()
            }
        };
        // Before the first order to a host.
        if let Some(term) = term {
            credential.terms().lead(term);
        }
        node.join_cluster(credential.clone(), None);
        let hosts = Hosts::new(name, agent, Some(credential), Some(listen))?;
        Ok(Self { hosts, authority })
    }
}

/// Returns the credential of a control that stands by, and keeps its certificate new until it does
/// not any more. `None` if no hosts join.
pub(super) fn standby_credential(
    settings: &ServerSettings,
    over: &CancellationToken,
) -> Result<Option<Credential>, ErrorReport> {
    let Some(ClusterSettings { name, proof, .. }) = settings.cluster.clone() else {
        return Ok(None);
    };
    let life = match proof {
        ClusterProof::Token(token) => return Ok(Some(Credential::from(token))),
        ClusterProof::Certificates(life) => life,
    };
    let authority = authority::open_file(settings.shared_folder())?;
    let credential = authority::control_credential(&authority, &name, life)?;
    let kept = credential.clone();
    let over = over.clone();
    tokio::spawn(async move {
        while over.run_until_cancelled(tokio::time::sleep(life / 4)).await.is_some() {
            authority::renew_control(&authority, &kept, &name, life);
        }
    });
    Ok(Some(credential))
}
