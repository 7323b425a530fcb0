//! The settings of a query's exchanges.

use snowmelt_types::{ByteSize, ErrorReport};
use snowmelt_wire::{ExchangeOptions, MediumChoice};

use super::keys::{
    EXCHANGE, EXCHANGE_COMBINING, EXCHANGE_LEVELS, EXCHANGE_LOCATIONS, EXCHANGE_TASK,
};
use super::{ConfigSources, ConfigValue, amount, choice, list, number};
use crate::args::{ExchangeMedium, SqlArgs, Switch};

/// The settings of the exchange of rows between the stages of a query.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The medium of the exchanged rows.
    pub medium: ConfigValue<ExchangeMedium>,
    /// Buckets or prefixes for objects.
    pub locations: ConfigValue<Vec<String>>,
    /// Levels of an exchange by objects.
    pub levels: ConfigValue<u32>,
    /// Whether a task writes all its partitions into one object.
    pub combining: ConfigValue<Switch>,
    /// Exchanged bytes that are worth a task.
    pub task: ConfigValue<ByteSize>,
}

impl Exchange {
    pub(super) fn load(
        sources: &ConfigSources,
        sql: Option<&SqlArgs>,
    ) -> Result<Self, ErrorReport> {
        let locations = sql.map(|sql| sql.exchange_locations.clone());
        let locations = locations.filter(|given| !given.is_empty());
        let combining = sql.and_then(|sql| sql.exchange_combining);
        Ok(Self {
            medium: sources.get(&EXCHANGE, sql.and_then(|sql| sql.exchange), choice)?,
            locations: sources.get(&EXCHANGE_LOCATIONS, locations, |text| Ok(list(text)))?,
            levels: sources.get(
                &EXCHANGE_LEVELS,
                sql.and_then(|sql| sql.exchange_levels),
                number,
            )?,
            combining: sources.get(&EXCHANGE_COMBINING, combining, switch)?,
            task: sources.get(&EXCHANGE_TASK, sql.and_then(|sql| sql.exchange_task), amount)?,
        })
    }

    /// The options of a query, checked before a platform is started.
    ///
    /// # Errors
    /// `SM-0110` for options that do not fit each other.
    pub fn options(&self) -> Result<ExchangeOptions, ErrorReport> {
        let options = ExchangeOptions {
            medium: match self.medium.value {
                ExchangeMedium::Auto => MediumChoice::Auto,
                ExchangeMedium::Files => MediumChoice::Files,
                ExchangeMedium::Hosts => MediumChoice::Hosts,
                ExchangeMedium::Streams => MediumChoice::Streams,
                ExchangeMedium::Objects => MediumChoice::Objects,
            },
            locations: self.locations.value.clone(),
            levels: self.levels.value,
            combining: self.combining.value == Switch::On,
            task_bytes: self.task.value,
        };
        options.check()?;
        Ok(options)
    }
}

/// Parses a switch. A boolean in the configuration file is a switch, too.
fn switch(text: &str) -> Result<Switch, String> {
    match text {
        "true" => Ok(Switch::On),
        "false" => Ok(Switch::Off),
        text => choice(text),
    }
}
