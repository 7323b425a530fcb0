//! The prices from which the cost of a query is computed: the shipped list, and the user's file
//! that replaces parts of it.
//!
//! Invariant: an unknown key is refused, and all amounts are finite and not negative.

mod basis;

use std::borrow::Cow;

use snowmelt_api::PriceList;
use snowmelt_types::{Code, ErrorReport, SourceLocation, nearest};
use snowmelt_wire::PriceFile;
use toml::de::{DeTable, DeValue};

use crate::{Error, Result};
pub use basis::CostBasis;

/// The shipped list of prices: AWS's, with its date.
const SHIPPED: &str = include_str!("prices.toml");

/// The largest file of prices in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Prices in US dollars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    name: String,
    date: String,
    machine: String,
    /// Price of a million read requests to object storage.
    pub(crate) reads_per_million: f64,
    /// Price of a million write requests to object storage.
    pub(crate) writes_per_million: f64,
    /// Price of a million list requests to object storage.
    pub(crate) lists_per_million: f64,
    /// Price of one GiB of a function's memory limit for one second.
    pub(crate) gib_second: f64,
    /// Price of a million invocations of functions.
    pub(crate) invocations_per_million: f64,
    /// Price of the machine for one hour.
    pub(crate) machine_hour: f64,
    /// Number of processors of the machine.
    pub(crate) machine_cpus: f64,
    /// Memory of the machine in GiB.
    pub(crate) machine_memory_gib: f64,
}

/// The keys that are text.
const TEXTS: [&str; 3] = ["name", "date", "machine.name"];

/// The keys that are amounts.
const AMOUNTS: [&str; 8] = [
    "storage.reads_per_million",
    "storage.writes_per_million",
    "storage.lists_per_million",
    "functions.gib_second",
    "functions.invocations_per_million",
    "machine.hour",
    "machine.cpus",
    "machine.memory_gib",
];

impl Prices {
    /// Reads the shipped prices, and the prices of the user's file in place of theirs.
    ///
    /// # Errors
    /// The file is not TOML, has an unknown key, or an amount that is not a price.
    pub(crate) fn of(file: Option<&PriceFile>) -> Result<Self> {
        let mut prices = Self::default();
        prices.read(&PriceFile { file: "prices.toml".to_owned(), text: SHIPPED.to_owned() })?;
        let Some(file) = file else { return Ok(prices) };
        // Its prices are not those of the shipped list, whatever it leaves as it was.
        prices.name = format!("prices of {}", file.file);
        prices.date = String::new();
        prices.read(file)?;
        Ok(prices)
    }

    /// Describes the prices: the name and date of the list, and the machine that it is for.
    pub(crate) fn list(&self) -> PriceList {
        PriceList {
            name: self.name.clone(),
            date: self.date.clone(),
            machine: self.machine.clone(),
        }
    }

    fn read(&mut self, file: &PriceFile) -> Result<()> {
        let wrong = |offset: usize, message: String| setting(refused(file, offset, message));
        if file.text.len() > MAX_BYTES {
            let most = MAX_BYTES >> 10;
            return Err(wrong(0, format!("a file of prices has at most {most} KiB")));
        }
        let table = DeTable::parse(&file.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            wrong(offset, format!("the prices are not TOML: {}", error.message()))
        })?;
        for (key, value) in table.get_ref() {
            match value.get_ref() {
                DeValue::Table(section) => {
                    for (inner, value) in section {
                        let name = format!("{}.{}", key.get_ref(), inner.get_ref());
                        self.set(&name, value.get_ref())
                            .map_err(|problem| problem.report(file, inner.span().start))?;
                    }
                }
                value => self
                    .set(key.get_ref(), value)
                    .map_err(|problem| problem.report(file, key.span().start))?,
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Problem> {
        if let Some(text) = self.text(key) {
            let DeValue::String(given) = value else {
                return Err(Problem::Value(format!("`{key}` is a text")));
            };
            *text = given.to_string();
            return Ok(());
        }
        let Some(amount) = self.amount(key) else { return Err(Problem::Unknown(key.to_owned())) };
        let given = match value {
            DeValue::Integer(number) => number.to_string().parse().ok(),
            DeValue::Float(number) => number.to_string().parse().ok(),
            _ => None,
        };
        // A machine without processors would have no price for a share of it.
        let least = if matches!(key, "machine.cpus" | "machine.memory_gib") { 0.001 } else { 0.0 };
        match given.filter(|given: &f64| given.is_finite() && *given >= least) {
            Some(given) => *amount = given,
            None => return Err(Problem::Value(format!("`{key}` is not an amount from {least}"))),
        }
        Ok(())
    }

    fn text(&mut self, key: &str) -> Option<&mut String> {
        match key {
            "name" => Some(&mut self.name),
            "date" => Some(&mut self.date),
            "machine.name" => Some(&mut self.machine),
            _ => None,
        }
    }

    fn amount(&mut self, key: &str) -> Option<&mut f64> {
        match key {
            "storage.reads_per_million" => Some(&mut self.reads_per_million),
            "storage.writes_per_million" => Some(&mut self.writes_per_million),
            "storage.lists_per_million" => Some(&mut self.lists_per_million),
            "functions.gib_second" => Some(&mut self.gib_second),
            "functions.invocations_per_million" => Some(&mut self.invocations_per_million),
            "machine.hour" => Some(&mut self.machine_hour),
            "machine.cpus" => Some(&mut self.machine_cpus),
            "machine.memory_gib" => Some(&mut self.machine_memory_gib),
            _ => None,
        }
    }
}

/// The reason why a key of the user's file is refused: an unknown key, or a value that is wrong.
enum Problem {
    Unknown(String),
    Value(String),
}

impl Problem {
    fn report(self, file: &PriceFile, offset: usize) -> Error {
        let report = match self {
            Self::Value(message) => refused(file, offset, message),
            Self::Unknown(key) => {
                let report = refused(file, offset, format!("there is no price `{key}`"));
                let keys = || TEXTS.iter().chain(&AMOUNTS).copied();
                // A key without its section is compared with the names in the sections.
                let own = |known: &'static str| match key.contains('.') {
                    true => known,
                    false => known.rsplit('.').next().unwrap_or(known),
                };
                let near = nearest(&key, keys().map(own));
                report.hint(match keys().find(|known| near == Some(own(known))) {
                    Some(known) => Cow::Owned(format!("did you mean `{known}`?")),
                    None => {
                        Cow::Borrowed("docs/reference/query.md lists the prices of such a file")
                    }
                })
            }
        };
        setting(report)
    }
}

fn refused(file: &PriceFile, offset: usize, message: String) -> ErrorReport {
    let before = file.text.as_bytes().iter().take(offset);
    ErrorReport::new(Code::OPTION, message).location(SourceLocation {
        file: file.file.clone(),
        line: 1 + before.filter(|byte| **byte == b'\n').count() as u32,
        within: None,
    })
}

fn setting(report: ErrorReport) -> Error {
    Error::Setting(Box::new(report))
}

#[cfg(test)]
mod tests {
    use snowmelt_types::Report;

    use super::*;

    fn of(text: &str) -> Result<Prices> {
        Prices::of(Some(&PriceFile { file: "mine.toml".to_owned(), text: text.to_owned() }))
    }

    #[test]
    fn the_shipped_list_has_every_price_and_a_date() {
        let mut prices = Prices::of(None).unwrap();
        for key in AMOUNTS {
            assert!(*prices.amount(key).unwrap() > 0.0, "{key}");
        }
        let list = prices.list();
        assert!(list.date.len() == 10 && list.name.contains("AWS"), "{list:?}");
        // Lambada 4.4.4: a second of a worker with 2 GiB costs 3.3e-5 dollars.
        assert!((prices.gib_second * 2.0 - 3.3e-5).abs() < 1e-6);
    }

    #[test]
    fn a_file_replaces_what_it_names() {
        let prices = of("name = \"ours\"\n[storage]\nreads_per_million = 1\n").unwrap();
        assert_eq!((prices.reads_per_million, prices.writes_per_million), (1.0, 5.0));
        assert_eq!(prices.list().name, "ours");
        assert_eq!(of("").unwrap().list().name, "prices of mine.toml");
        assert_eq!(of("").unwrap().list().date, "");
    }

    #[test]
    fn a_wrong_key_or_amount_is_refused_with_its_line() {
        for (text, line, part) in [
            ("[storage]\nread_per_million = 1", 2, "did you mean `storage.reads_per_million`?"),
            ("gib_second = 1", 1, "did you mean `functions.gib_second`?"),
            ("[machine]\n\ncpus = 0", 3, "`machine.cpus` is not an amount"),
            ("[machine]\nhour = -1", 2, "`machine.hour` is not an amount"),
            ("[machine]\nhour = \"1\"", 2, "`machine.hour` is not an amount"),
            ("[machine]\nhour = nan", 2, "`machine.hour` is not an amount"),
            ("date = 3", 1, "`date` is a text"),
            ("[machine\n", 1, "not TOML"),
        ] {
            let report = of(text).unwrap_err().report();
            assert_eq!(report.location.as_ref().unwrap().line, line, "{text}");
            assert_eq!(report.location.as_ref().unwrap().file, "mine.toml");
            let shown = report.to_string();
            assert!(shown.contains(part) && shown.contains("SM-0110"), "{text}: {shown}");
        }
    }
}
