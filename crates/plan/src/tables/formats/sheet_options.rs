//! The options of `read_xlsx`, which are DuckDB's.

use snowmelt_execute::read::{SHEET_COLUMNS, SHEET_ROWS};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::CsvOption;

use super::option_value::{one, truth};

const NAMES: &str = "sheet, header, range, all_varchar, ignore_errors, stop_at_empty, \
                     empty_as_varchar, filename";

/// The options of `read_xlsx`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SheetOptions {
    /// The name of the sheet. `None`: the first sheet.
    pub(super) sheet: Option<String>,
    /// Whether the first row has the names of the columns.
    pub(super) header: Option<bool>,
    /// The cells of the table. `None`: the table is found in the sheet.
    pub(super) range: Option<Area>,
    /// All columns are texts.
    pub(super) all_varchar: bool,
    /// True if errors of cells are null.
    pub(super) ignore_errors: bool,
    /// Whether the table ends before the first empty row. `None`: a table without a given range
    /// does.
    pub(super) stop_at_empty: Option<bool>,
    /// True if a column without a value is one of texts.
    pub(super) empty_as_varchar: bool,
}

/// Cells of a sheet: the first and last row and column, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) rows: (u32, u32),
    pub(super) columns: (u32, u32),
}

/// Sets an option. `of` is the function, for errors.
pub(crate) fn set_sheet(
    options: &mut SheetOptions,
    given: &CsvOption,
    of: &str,
) -> Result<(), ErrorReport> {
    let name = given.name.to_ascii_lowercase();
    let wrong = |what: &str| {
        let value = given.values.join(", ");
        let message = format!("`{name}` of `{of}` is {what}, and `{value}` is not");
        ErrorReport::new(Code::OPTION, message).hint(format!("the options of {of} are {NAMES}"))
    };
    let flag = || truth(given).ok_or_else(|| wrong("true or false"));
    match name.as_str() {
        "sheet" => {
            let sheet = one(given).filter(|name| !name.is_empty()).map(str::to_owned);
            options.sheet = Some(sheet.ok_or_else(|| wrong("the name of a sheet"))?);
        }
        "range" => {
            let range = one(given).and_then(area);
            options.range = Some(range.ok_or_else(|| wrong("two cells such as 'A1:F100'"))?);
        }
        "header" => options.header = Some(flag()?),
        "all_varchar" => options.all_varchar = flag()?,
        "ignore_errors" => options.ignore_errors = flag()?,
        "stop_at_empty" => options.stop_at_empty = Some(flag()?),
        "empty_as_varchar" => options.empty_as_varchar = flag()?,
        _ => {
            let message = format!("`{of}` has no option `{}`", given.name);
            let hint = format!("the options of {of} are {NAMES}");
            return Err(ErrorReport::new(Code::OPTION, message).hint(hint));
        }
    }
    Ok(())
}

/// The cells of `A1:F100`; without a row, `A1:F`, all rows from the first on; `A:F`, all rows.
fn area(text: &str) -> Option<Area> {
    let (from, to) = text.trim().split_once(':')?;
    let ((first_column, first_row), (last_column, last_row)) = (place(from)?, place(to)?);
    let rows = (first_row.unwrap_or(0), last_row.unwrap_or(SHEET_ROWS - 1));
    let fits = rows.0 <= rows.1 && first_column <= last_column;
    fits.then_some(Area { rows, columns: (first_column, last_column) })
}

fn place(text: &str) -> Option<(u32, Option<u32>)> {
    let text = text.replace('$', "");
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (letters, digits) = text.split_at(end);
    let fits = (1..=3).contains(&letters.len()) && digits.len() <= 7;
    let number = |letter: u8| u32::from(letter.to_ascii_uppercase() - b'A') + 1;
    let column = letters.bytes().filter(|_| fits).fold(0, |sum, it| sum * 26 + number(it));
    let column = column.checked_sub(1).filter(|column| *column < SHEET_COLUMNS)?;
    if digits.is_empty() {
        return Some((column, None));
    }
    let row = digits.parse::<u32>().ok()?.checked_sub(1)?;
    (row < SHEET_ROWS).then_some((column, Some(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let all = SHEET_ROWS - 1;
        for (text, expected) in [
            ("A1:F100", Some(((0, 99), (0, 5)))),
            ("$b$2:aa", Some(((1, all), (1, 26)))),
            ("C:C", Some(((0, all), (2, 2)))),
            ("A1:XFD1048576", Some(((0, all), (0, 16_383)))),
            ("A1", None),
            ("F1:A2", None),
            ("A2:F1", None),
            ("A0:B1", None),
            ("A1:XFE2", None),
            ("A1:B1048577", None),
            ("1:2", None),
            ("A1:B-2", None),
            ("AAAAAAAAAA1:B2", None),
        ] {
            let found = area(text).map(|area| (area.rows, area.columns));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn wrong_options_are_refused_with_what_is_right() {
        for (name, value, part) in [
            ("sheet", "", "the name of a sheet"),
            ("range", "A1", "two cells"),
            ("header", "maybe", "true or false"),
            ("sheets", "x", "has no option `sheets`"),
        ] {
            let given = CsvOption {
                name: name.to_owned(),
                keys: Vec::new(),
                values: vec![value.to_owned()],
            };
            let report = set_sheet(&mut SheetOptions::default(), &given, "read_xlsx").unwrap_err();
            let report = report.to_string();
            assert!(report.contains("SM-0110") && report.contains(part), "{report}");
            assert!(report.contains("stop_at_empty"), "{report}");
        }
    }
}
