//! The basis of a query's cost besides its use of resources: prices and memory limits.

use snowmelt_wire::PriceFile;

use super::Prices;
use crate::Result;

/// The prices and the memory limits of a query's sandboxes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostBasis {
    /// The prices of requests, functions and machines.
    pub prices: Prices,
    /// Memory limit of each worker in bytes.
    pub worker_memory: u64,
    /// Memory limit of the driver in bytes.
    pub driver_memory: u64,
}

impl CostBasis {
    /// Creates the basis from the shipped prices, with the prices of the user's file in place of
    /// theirs, and the memory limits in bytes.
    ///
    /// # Errors
    /// The file is wrong.
    pub fn new(prices: Option<&PriceFile>, worker_memory: u64, driver_memory: u64) -> Result<Self> {
        Ok(Self { prices: Prices::of(prices)?, worker_memory, driver_memory })
    }
}
