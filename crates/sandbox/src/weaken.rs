//! Disables a single defence, for the tests that show what each one protects against.
//!
//! Invariant: without the feature `weaken`, which only those tests enable, every defence is active
//! whatever the environment says; [`is_disabled`] is then a constant.

/// The defences that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defence {
    /// All capabilities are dropped.
    Capabilities,
    /// The limits of the control group.
    ControlGroup,
    /// No core dump when a process crashes.
    CoreLimit,
    /// All descriptors but the four of a sandbox are closed.
    Descriptors,
    /// The groups of the server's user are dropped.
    Groups,
    /// Mounts are read-only, nosuid and nodev.
    Inert,
    /// A new session keyring.
    Keyring,
    /// The spawner's pid namespace, which ends with the spawner.
    Init,
    /// Landlock for files, abstract sockets and signals.
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
    /// A host user of its own for the per-user counts of a zygote and its children.
    OwnCounts,
    /// An empty network namespace for each root and each zygote.
    OwnNetwork,
    /// The limit of pending signals.
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

/// Whether a defence is disabled: never.
#[cfg(not(feature = "weaken"))]
pub(crate) const fn is_disabled(_: Defence) -> bool {
    false
}

/// Whether a defence is disabled: whether the variable `SNOWMELT_WEAKEN` names it.
#[cfg(feature = "weaken")]
pub(crate) fn is_disabled(defence: Defence) -> bool {
    let named = std::env::var("SNOWMELT_WEAKEN").unwrap_or_default();
    named.split(',').any(|name| name == format!("{defence:?}"))
}
