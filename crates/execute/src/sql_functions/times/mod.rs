//! Functions of times: age, epochs, time zones.

pub(super) mod age;
pub(super) mod epoch;
pub(super) mod zones;
