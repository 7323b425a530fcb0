//! The one user whom the server of an ordinary user serves.

use snowmelt_kernel::rootless;
use snowmelt_rpc::Peer;
use snowmelt_types::{Code, ErrorReport};

/// Refuses every other user of the machine, root included, if the server is in a user namespace of its
/// own: there all of them have one number, so nobody can be told from another.
pub(super) fn check(peer: Peer) -> Result<(), ErrorReport> {
    check_where(peer, rootless::entered().is_some())
}

fn check_where(peer: Peer, is_in_namespace: bool) -> Result<(), ErrorReport> {
    match peer {
        Peer::User(user) if user != 0 && is_in_namespace => {
            let message = "the server of an ordinary user serves this user only";
            Err(ErrorReport::new(Code::ROOTLESS, message)
                .hint("start your own with `snowmelt up`, or have root start one for all"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_refused_in_a_namespace_only() {
        for (peer, is_in_namespace, is_served) in [
            (Peer::User(0), true, true),
            (Peer::User(65534), true, false),
            (Peer::User(1), true, false),
            (Peer::User(65534), false, true),
            (Peer::Remote, true, true),
        ] {
            assert_eq!(check_where(peer, is_in_namespace).is_ok(), is_served, "{peer:?}");
        }
    }
}
