//! Amounts of what a host has, and how much there is of it.

use std::fmt;
use std::ops::{Add, AddAssign, SubAssign};

use snowmelt_types::{ByteSize, CpuMillis};

/// An amount of memory, processor and instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Memory.
    pub memory: ByteSize,
    /// Thousandths of a processor core.
    pub cpu_millis: u64,
    /// Sandboxes.
    pub instances: u64,
}

/// What a host has for all sandboxes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Memory.
    pub memory: ByteSize,
    /// Sandboxes.
    pub instances: u32,
    /// Processor. It is counted only, and no bound, where it is absent: processor time is shared by
    /// the kernel, and what gets less of it is slower but does not fail.
    pub cpu: Option<CpuMillis>,
}

impl Amount {
    /// One sandbox.
    pub fn one(memory: ByteSize, cpu: CpuMillis) -> Self {
        Self { memory, cpu_millis: cpu.0.into(), instances: 1 }
    }

    /// So many times this amount.
    pub fn times(self, count: u64) -> Self {
        Self {
            memory: ByteSize(self.memory.bytes().saturating_mul(count)),
            cpu_millis: self.cpu_millis.saturating_mul(count),
            instances: self.instances.saturating_mul(count),
        }
    }

    /// The smaller of both, of each kind.
    pub fn min(self, other: Self) -> Self {
        Self {
            memory: self.memory.min(other.memory),
            cpu_millis: self.cpu_millis.min(other.cpu_millis),
            instances: self.instances.min(other.instances),
        }
    }

    /// What is left of this amount without the other.
    pub fn without(self, other: Self) -> Self {
        Self {
            memory: ByteSize(self.memory.bytes().saturating_sub(other.memory.bytes())),
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            instances: self.instances.saturating_sub(other.instances),
        }
    }

    /// Equal parts of it; the first has the remainder.
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
    /// Whether so much is within it.
    pub fn holds(&self, amount: Amount) -> bool {
        amount.memory <= self.memory
            && amount.instances <= self.instances.into()
            && self.cpu.is_none_or(|most| amount.cpu_millis <= most.0.into())
    }

    /// As much of an amount as there would be at all.
    pub fn clamp(&self, amount: Amount) -> Amount {
        let cpu_millis = self.cpu.map_or(u64::MAX, |most| most.0.into());
        amount.min(Amount { memory: self.memory, cpu_millis, instances: self.instances.into() })
    }

    /// The largest part of it, from 0 to 1, that an amount is of memory or instances (the dominant
    /// share of DRF). Processor does not count: it is never short in the same way.
    pub(crate) fn share(&self, amount: Amount) -> f64 {
        let of = |amount: u64, all: u64| amount as f64 / all.max(1) as f64;
        of(amount.memory.bytes(), self.memory.bytes())
            .max(of(amount.instances, self.instances.into()))
    }

    /// How many of an amount fit beside what is taken.
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
