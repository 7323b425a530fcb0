//! Leaves a defence out, for the tests that show what each one is for.
//!
//! Invariant: without the feature `weaken`, which nothing but those tests enables, every defence
//! is there whatever the environment says, and the compiler knows it.

/// What the spawner can be told to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defence {
    /// No capability in any set.
    Capabilities,
    /// The limits of the control group.
    ControlGroup,
    /// Nothing is dumped when a process crashes.
    CoreLimit,
    /// No descriptor beside the four.
    Descriptors,
    /// No group of the server's user.
    Groups,
    /// Read-only, nosuid, nodev.
    Inert,
    /// An own session keyring.
    Keyring,
    /// The spawner's pid namespace, which ends with the spawner.
    Init,
    /// Files, abstract sockets and signals by Landlock.
    Landlock,
    /// Files of `/proc` about the whole machine are covered.
    MaskedProc,
    /// The empty network namespace.
    Network,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// The limit of open descriptors.
    OpenFiles,
    /// Paths in a root are resolved inside it.
    OwnTree,
    /// A user of the host for what a zygote and its children count for.
    OwnCounts,
    /// An empty network namespace for each root and each zygote.
    OwnNetwork,
    /// The limit of signals that wait.
    PendingSignals,
    /// The pid namespace.
    Processes,
    /// `/proc` is read-only.
    ReadOnlyProc,
    /// The size of the scratch.
    ScratchSize,
    /// The system call filter.
    Seccomp,
    /// A user id of its own, in a user namespace of its own.
    User,
}

/// Whether to go without it.
#[cfg(not(feature = "weaken"))]
pub(crate) const fn lacks(_: Defence) -> bool {
    false
}

/// Whether to go without it: whether the variable `SNOWMELT_WEAKEN` names it.
#[cfg(feature = "weaken")]
pub(crate) fn lacks(defence: Defence) -> bool {
    let named = std::env::var("SNOWMELT_WEAKEN").unwrap_or_default();
    named.split(',').any(|name| name == format!("{defence:?}"))
}
