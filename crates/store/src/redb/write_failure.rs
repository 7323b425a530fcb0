//! The failure of a transaction: a refusal, or a failure of the file.

use crate::Error;

/// The reason why a transaction failed.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// The transaction was refused; the file can be used.
    Refused(Error),
    /// The file cannot be used.
    File(Box<::redb::Error>),
}

impl From<Error> for WriteFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

macro_rules! failures_of_the_file {
    ($($error:ty),*) => {$(
        impl From<$error> for WriteFailure {
            fn from(error: $error) -> Self {
                Self::File(Box::new(error.into()))
            }
        }
    )*};
}

failures_of_the_file!(
    ::redb::TransactionError,
    ::redb::TableError,
    ::redb::StorageError,
    ::redb::CommitError
);
