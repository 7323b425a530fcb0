//! Amounts of a host's memory, processor and instances, and the capacity of a host.

use std::fmt;
use std::ops::{Add, AddAssign, SubAssign};

use snowmelt_types::{ByteSize, CpuMillis};

/// An amount of memory, processor and instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The memory.
    pub memory: ByteSize,
    /// The share of processor cores, in thousandths of a core.
    pub cpu_millis: u64,
    /// The number of sandboxes.
    pub instances: u64,
}

/// The resources that a host has for all sandboxes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The memory for all sandboxes.
    pub memory: ByteSize,
    /// The greatest number of sandboxes.
    pub instances: u32,
    /// The processor cores. If absent, use of processor is counted but not limited: processor time
    /// is shared by the kernel, and a sandbox that gets less of it is slower but does not fail.
    pub cpu: Option<CpuMillis>,
}

impl Amount {
    /// Returns the amount for one sandbox.
    pub fn one(memory: ByteSize, cpu: CpuMillis) -> Self {
        Self { memory, cpu_millis: cpu.0.into(), instances: 1 }
    }

    /// Returns this amount `count` times.
    pub fn times(self, count: u64) -> Self {
        Self {
            memory: ByteSize(self.memory.bytes().saturating_mul(count)),
            cpu_millis: self.cpu_millis.saturating_mul(count),
            instances: self.instances.saturating_mul(count),
        }
    }

    /// Returns the smaller of two amounts, of each kind of resource.
    pub fn min(self, other: Self) -> Self {
        Self {
            memory: self.memory.min(other.memory),
            cpu_millis: self.cpu_millis.min(other.cpu_millis),
            instances: self.instances.min(other.instances),
        }
    }

    /// Returns the rest of this amount without the other.
    pub fn without(self, other: Self) -> Self {
        Self {
            memory: ByteSize(self.memory.bytes().saturating_sub(other.memory.bytes())),
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            instances: self.instances.saturating_sub(other.instances),
        }
    }

    /// Returns one of `count` equal parts of this amount; the first has the remainder.
    pub(crate) fn part(self, index: u64, count: u64) -> Self {
        let of = |whole: u64| whole / count + if index == 0 { whole % count } else { 0 };
        Self {
            memory: ByteSize(of(self.memory.bytes())),
            cpu_millis: of(self.cpu_millis),
            instances: of(self.instances),
        }
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            memory: ByteSize(self.memory.bytes().saturating_add(other.memory.bytes())),
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            instances: self.instances.saturating_add(other.instances),
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        *self = self.without(other);
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.instances == 1 { "" } else { "es" };
        write!(f, "{} and {} sandbox{plural}", self.memory, self.instances)
    }
}

impl Capacity {
    /// Whether an amount is within the capacity.
    pub fn holds(&self, amount: Amount) -> bool {
        amount.memory <= self.memory
            && amount.instances <= self.instances.into()
            && self.cpu.is_none_or(|most| amount.cpu_millis <= most.0.into())
    }

    /// Limits an amount to the capacity.
    pub fn clamp(&self, amount: Amount) -> Amount {
        let cpu_millis = self.cpu.map_or(u64::MAX, |most| most.0.into());
        amount.min(Amount { memory: self.memory, cpu_millis, instances: self.instances.into() })
    }

    /// Returns the largest part, from 0 to 1, that an amount has of memory or instances (the
    /// dominant share of DRF). Processor does not count: it is never short in the same way.
    pub(crate) fn share(&self, amount: Amount) -> f64 {
        let of = |amount: u64, all: u64| amount as f64 / all.max(1) as f64;
        of(amount.memory.bytes(), self.memory.bytes())
            .max(of(amount.instances, self.instances.into()))
    }

    /// Returns how many times an amount fits beside the taken amount.
    pub(crate) fn how_many(&self, each: Amount, taken: Amount) -> u64 {
        let of = |all: u64, taken: u64, each: u64| {
            all.saturating_sub(taken).checked_div(each).unwrap_or(u64::MAX)
        };
        let cpu =
            self.cpu.map_or(u64::MAX, |most| of(most.0.into(), taken.cpu_millis, each.cpu_millis));
        of(self.memory.bytes(), taken.memory.bytes(), each.memory.bytes())
            .min(of(self.instances.into(), taken.instances, each.instances))
            .min(cpu)
    }
}
