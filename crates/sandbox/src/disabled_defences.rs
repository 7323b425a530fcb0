//! Disables a single defence, for the tests that show what each one protects against.
//!
//! Invariant: without the feature `weaken`, which only those tests enable, every defence is active
//! whatever the environment says; [`is_disabled`] is then a constant.
//!
//! The native loop of zygotes has steps of its own, whose names begin with `Child`; it reads the
//! same variable (`runtimes/native/weaken.h`).

/// The defences that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defence {
    /// The dropping of all capabilities.
    Capabilities,
    /// The spawner's check that a child of a zygote has its own user and is in its control group.
    ChildIdentity,
    /// The limits of the control group.
    ControlGroup,
    /// The limit that suppresses core dumps when a process crashes.
    CoreLimit,
    /// The closing of all descriptors but the four of a sandbox.
    Descriptors,
    /// The dropping of the groups of the server's user.
    Groups,
    /// The attributes of mounts: read-only, nosuid and nodev.
    Inert,
    /// A new session keyring.
    Keyring,
    /// The spawner's pid namespace, which ends with the spawner.
    Init,
    /// Landlock for files, abstract sockets and signals.
    Landlock,
    /// The covers over files of `/proc` about the whole machine.
    MaskedProc,
    /// The empty network namespace.
    Network,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// The limit of open descriptors.
    OpenFiles,
    /// The resolution of paths in a root inside that root.
    OwnTree,
    /// A host user of its own for the per-user counts of a zygote and its children.
    OwnCounts,
    /// An empty network namespace for each root and each zygote.
    OwnNetwork,
    /// The limit of pending signals.
    PendingSignals,
    /// The pid namespace.
    Processes,
    /// The read-only mount of `/proc`.
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

/// Whether a defence is disabled: if the variable `SNOWMELT_WEAKEN` names it.
#[cfg(feature = "weaken")]
pub(crate) fn is_disabled(defence: Defence) -> bool {
    let named = std::env::var(VARIABLE).unwrap_or_default();
    named.split(',').any(|name| name == format!("{defence:?}"))
}

/// The variable that names the disabled defences.
#[cfg(feature = "weaken")]
const VARIABLE: &str = "SNOWMELT_WEAKEN";

/// Adds nothing to the environment of a zygote.
#[cfg(not(feature = "weaken"))]
pub(crate) const fn pass_on(_: &mut [(String, String)]) {}

/// Gives a zygote the variable `SNOWMELT_WEAKEN`, for its native loop.
#[cfg(feature = "weaken")]
pub(crate) fn pass_on(env: &mut Vec<(String, String)>) {
    env.extend(std::env::var(VARIABLE).ok().map(|named| (VARIABLE.to_owned(), named)));
}
