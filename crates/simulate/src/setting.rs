//! The settings of a simulation.

use std::num::NonZeroUsize;
use std::time::Duration;

use snowmelt_tree::Repair;

use crate::error::Error;

/// The greatest number of streams of one simulation: hosts times functions (times layers).
pub(crate) const MAX_STREAMS: u64 = 20_000_000;

/// The greatest fan-out. A tree has a place in memory for each child that a host may have.
const MAX_CHILDREN: usize = 64;

/// The greatest time in seconds, 31 years: below it, moments fit into 64 bits as nanoseconds.
pub(crate) const MAX_SECONDS: f64 = 1e9;

/// The settings of one burst: containers of some functions start on hosts that have nothing of
/// their images. Sizes are in bytes as they are sent, rates in bytes a second.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The number of hosts.
    pub hosts: u32,
    /// The number of containers that start, over all functions.
    pub containers: u32,
    /// The number of functions, each with an image of its own.
    pub functions: u32,
    /// The greatest number of containers of one function on a host (FaaSNet 3.3).
    pub per_host: u32,
    /// The rate of each host's link in each direction, in bytes a second.
    pub link: u64,
    /// The rate at which the registry sends, in bytes a second.
    pub registry_link: u64,
    /// The time that a message takes from one host to the next.
    pub delay: Duration,
    /// The size of an image in bytes.
    pub image: u64,
    /// The bytes of the image that a start reads, which are sent first.
    pub start: u64,
    /// The bytes that a start reads on demand before its host knows what follows: with
    /// [`crate::Strategy::Stripes`], the streams of other stripes begin after that.
    pub on_demand: u64,
    /// The size of a block in bytes.
    pub block: u64,
    /// The number of layers of an image, for [`crate::Strategy::Layers`].
    pub layers: u32,
    /// The greatest number of hosts that read from one host.
    pub fanout: NonZeroUsize,
    /// The way in which trees are repaired.
    pub repair: Repair,
    /// The rate at which a start works through the bytes that it reads, while they arrive, in bytes
    /// a second.
    pub read_rate: u64,
    /// The time that a start takes after the last of its bytes has arrived.
    pub tail: Duration,
    /// The time of the start of each further container of a function on a host.
    pub fork: Duration,
    /// The number of functions that a host starts at the same time without slowing each other.
    pub cores: u32,
    /// The rate at which a pulled image is unpacked, in bytes a second.
    pub unpack_rate: u64,
    /// The number of hosts that fail at random moments.
    pub kill: u32,
    /// The time from a failure until the tree is repaired.
    pub detect: Duration,
    /// The seed of everything that is random: orders of hosts, failures.
    pub seed: u64,
}

/// The simplifications in the model of a burst.
pub const ASSUMPTIONS: [&str; 8] = [
    "links share their rate fairly (max-min) between streams, without loss, headers or ramp-up",
    "the network between the hosts' links is never the bottleneck",
    "all hosts are told their parents at time 0; control takes no time",
    "every host gets the blocks in the same order: those of the start profile, then the rest",
    "a block goes on when it is whole; checking and storing it takes no time",
    "a delay is added for each hop to the root, and streams pipeline their requests",
    "functions that start on one host share its cores evenly",
    "a stream that gets another parent sends the block again that was under way",
];

impl Setting {
    /// Checks the settings of a burst beyond their types.
    pub(crate) fn check(&self, trees: u32) -> Result<(), Error> {
        self.check_model()?;
        let wrong = |what: String| Err(Error::Setting(what));
        if self.containers < self.functions {
            return wrong(format!("{} functions need a container each", self.functions));
        }
        let room = u64::from(self.hosts) * u64::from(self.per_host);
        let most = u64::from(self.containers.div_ceil(self.functions));
        if most > room {
            return wrong(format!("{most} containers of a function do not fit {room} places"));
        }
        if self.kill >= self.hosts {
            return wrong(format!("no host is left if {} fail", self.kill));
        }
        let streams = u64::from(self.hosts.min(self.containers)) * u64::from(trees);
        if streams > MAX_STREAMS {
            return wrong(format!("{streams} streams are more than {MAX_STREAMS}"));
        }
        Ok(())
    }

    /// Checks the settings that bursts and traces have in common.
    pub(crate) fn check_model(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Setting(what));
        let none = [
            ("hosts", u64::from(self.hosts)),
            ("containers", u64::from(self.containers)),
            ("functions", u64::from(self.functions)),
            ("containers a host", u64::from(self.per_host)),
            ("layers", u64::from(self.layers)),
            ("cores", u64::from(self.cores)),
            ("bytes of an image", self.image),
            ("bytes of a start", self.start),
            ("bytes of a block", self.block),
            ("bytes a second of a link", self.link.min(self.registry_link)),
            ("bytes a second of a host", self.read_rate.min(self.unpack_rate)),
        ];
        if let Some((what, _)) = none.iter().find(|(_, count)| *count == 0) {
            return wrong(format!("there are no {what}"));
        }
        if self.fanout.get() > MAX_CHILDREN {
            return wrong(format!("no more than {MAX_CHILDREN} hosts can read from one"));
        }
        if self.longest() > MAX_SECONDS {
            return wrong("it would take decades".to_owned());
        }
        if self.start > self.image {
            return wrong("a start reads more than the image has".to_owned());
        }
        if self.on_demand > self.start {
            return wrong("a start reads more on demand than it reads".to_owned());
        }
        if self.image.div_ceil(self.block) > u64::from(u32::MAX) {
            return wrong("the blocks are too small for such an image".to_owned());
        }
        Ok(())
    }

    /// A time in seconds that no simulation with these settings exceeds.
    fn longest(&self) -> f64 {
        let images = f64::from(self.hosts) * f64::from(self.functions);
        let rate = self.link.min(self.registry_link).min(self.read_rate).min(self.unpack_rate);
        let hops = f64::from(self.hosts) * self.delay.as_secs_f64();
        let forks = f64::from(self.per_host) * self.fork.as_secs_f64();
        let local = self.tail.as_secs_f64() + self.detect.as_secs_f64() + forks + hops;
        images * self.image as f64 / rate as f64 + local
    }

    /// The number of containers of each function, as even as possible.
    pub(crate) fn containers_of(&self, function: u32) -> u32 {
        self.containers / self.functions + u32::from(function < self.containers % self.functions)
    }
}
