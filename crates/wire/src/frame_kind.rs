//! The kinds of frames, and the bound of what each carries.
//!
//! Invariant: a number is of one kind for ever; other numbers are refused.

/// The longest accepted payload: batches are bounded by rows and bytes far below it.
pub const MAX_PAYLOAD_BYTES: u32 = 256 << 20;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// The content of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $value,)* }

        impl Kind {
            /// The kind of this number. `None` for a number that this version does not know.
            pub(crate) fn of(number: u8) -> Option<Self> {
                match number {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// JSON [`crate::Load`]: the code that the instance must load for this connection.
    Load = 1,
    /// JSON [`crate::LoadReport`]: the code is loaded.
    Ready = 2,
    /// JSON [`crate::Call`]: one invocation of a function.
    Call = 3,
    /// JSON: the value that a function returned.
    Return = 4,
    /// JSON: [`crate::FunctionFailure`] from an instance, [`crate::TaskFailure`] from the worker of
    /// a task, `ErrorReport` from a driver or server.
    Failure = 5,
    /// An Arrow IPC schema message.
    Schema = 6,
    /// Arrow IPC messages: one record batch with the dictionaries that it needs.
    Batch = 7,
    /// The end of this direction.
    End = 8,
    /// JSON [`crate::Task`]: a task for a query worker.
    Task = 9,
    /// A serialised DataFusion physical plan.
    Plan = 10,
    /// JSON list of [`crate::FileGrant`], with one descriptor each.
    Files = 11,
    /// JSON list of [`crate::UdfGrant`], with one descriptor each.
    Udfs = 12,
    /// JSON [`crate::TaskProgress`].
    Progress = 13,
    /// JSON [`crate::TaskDone`]: the task's results are complete.
    Done = 14,
    /// JSON: an event of a query for the user's progress display.
    Event = 15,
    /// JSON: the profile of a query.
    Profile = 16,
    /// JSON [`crate::Drive`]: a query for a driver to plan and run, with two descriptors.
    Drive = 17,
    /// JSON [`crate::DriverRequest`] of a driver.
    Request = 18,
    /// JSON [`crate::Reply`] to a driver, with the descriptors that it names.
    Reply = 19,
    /// JSON list of task numbers, with one descriptor each: the outputs that a task reads.
    Inputs = 20,
    /// The file that a task writes its output to, as a descriptor.
    Output = 21,
    /// JSON list of [`crate::HostOutputs`], with one connected socket each: the outputs on other
    /// hosts that a task reads.
    HostOutputs = 32,
    /// The scratch of a task, an empty file, as a descriptor.
    Scratch = 33,
    /// JSON list of task numbers, with one connected socket each: the streams between a task and
    /// the others of its gang.
    Streams = 34,
    /// 4 bytes, little endian: the partition of the `Batch` frames that follow in a stream.
    Partition = 35,
    /// JSON [`crate::Clean`]: what a worker removes from the locations of an exchange.
    Clean = 22,
    /// A descriptor of memory for batches, and the sizes of the two parts of this memory (two u64).
    /// An instance of a UDF maps it and answers with an empty frame of this kind.
    SharedMemory = 36,
    /// The range of a batch in the shared memory (offset and length, two u64), and a byte: 1 if the
    /// function keeps the arguments of its last call, which then must not be overwritten.
    SharedBatch = 37,
    /// JSON [`crate::AggregateCall`] to an instance of an aggregate function, and its answer
    /// [`crate::AggregateDone`].
    Aggregate = 40,
    /// JSON [`crate::Statement`]: a statement for a worker to parse. The worker answers with a
    /// frame of this kind that has the JSON [`crate::Definition`].
    Definition = 38,
    /// Bytes of the connection between a client and the instance that it has leased, which travel
    /// on the connection of the lease: no descriptor leads to another host.
    Relayed = 50,
}
