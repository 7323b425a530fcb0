//! What is simulated.

use std::num::NonZeroUsize;
use std::time::Duration;

use snowmelt_tree::Repair;

use crate::error::Error;

/// The most streams of one simulation: streams are hosts times functions (times layers).
pub(crate) const MAX_STREAMS: u64 = 20_000_000;

/// A tree has so many places for each host.
const MAX_CHILDREN: usize = 64;

/// Moments are nanoseconds in 64 bits: they stay below this number of seconds, 31 years.
pub(crate) const MAX_SECONDS: f64 = 1e9;

/// One burst: containers of some functions start on hosts that have nothing of their images. Sizes
/// are in bytes as they are sent, rates in bytes a second.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Hosts.
    pub hosts: u32,
    /// Containers that start, over all functions.
    pub containers: u32,
    /// Functions, each with an image of its own.
    pub functions: u32,
    /// Containers of one function that a host takes (FaaSNet 3.3).
    pub per_host: u32,
    /// Rate of each host's link, in each direction.
    pub link: u64,
    /// Rate at which the registry sends.
    pub registry_link: u64,
    /// Time of a message from a host to the next.
    pub delay: Duration,
    /// Size of an image.
    pub image: u64,
    /// What a start reads of it, which is sent first.
    pub start: u64,
    /// What it reads on demand before it is known what follows: with [`crate::Strategy::Stripes`], the
    /// other stripes begin after that.
    pub on_demand: u64,
    /// Size of a block.
    pub block: u64,
    /// Layers of an image, for [`crate::Strategy::Layers`].
    pub layers: u32,
    /// Hosts that may read from one.
    pub fanout: NonZeroUsize,
    /// How trees are repaired.
    pub repair: Repair,
    /// Rate at which a start works through the bytes that it reads, while they arrive.
    pub read_rate: u64,
    /// What a start does after it has all bytes.
    pub tail: Duration,
    /// The start of each further container of a function on a host.
    pub fork: Duration,
    /// Functions that a host starts at the same time without slowing each other.
    pub cores: u32,
    /// Rate at which a pulled image is unpacked.
    pub unpack_rate: u64,
    /// Hosts that fail at random moments.
    pub kill: u32,
    /// From a failure until the tree is repaired.
    pub detect: Duration,
    /// Of everything that is random: orders of hosts, failures.
    pub seed: u64,
}

/// What the model leaves out or takes as given.
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
    /// Checks what no type checks.
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

    /// Checks what bursts and traces have in common.
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

    /// A time, in seconds, that nothing exceeds.
    fn longest(&self) -> f64 {
        let images = f64::from(self.hosts) * f64::from(self.functions);
        let rate = self.link.min(self.registry_link).min(self.read_rate).min(self.unpack_rate);
        let hops = f64::from(self.hosts) * self.delay.as_secs_f64();
        let forks = f64::from(self.per_host) * self.fork.as_secs_f64();
        let local = self.tail.as_secs_f64() + self.detect.as_secs_f64() + forks + hops;
        images * self.image as f64 / rate as f64 + local
    }

    /// Containers of each function, as even as possible.
    pub(crate) fn containers_of(&self, function: u32) -> u32 {
        self.containers / self.functions + u32::from(function < self.containers % self.functions)
    }
}
