//! Whether the first record of a CSV file has the names of its columns.

use snowmelt_execute::read::Dialect;

use super::csv_types::Guess;

/// The content of the first record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum First {
    Names,
    Values,
    /// Names or values, which cannot be told because all values of the file are texts. They are
    /// taken for names.
    #[default]
    Unknown,
}

/// Decides whether the first record has names or values, from its values and the types of the other
/// records. It has values if each of them in a column with another type than text is of that type.
pub(super) fn first_record(values: &[String], others: &[Guess], dialect: &Dialect) -> First {
    let agree = |(index, (value, guess)): (usize, (&String, &Guess))| {
        guess.agrees(value, dialect.notation_of(index))
    };
    let votes: Vec<Option<bool>> = values.iter().zip(others).enumerate().map(agree).collect();
    if votes.contains(&Some(false)) {
        return First::Names;
    }
    let typed = match others.iter().all(Guess::is_empty) {
        // There is no other record.
        true => {
            let values = values.iter().enumerate();
            let is_text = |index, value: &str| Guess::is_text(value, dialect.notation_of(index));
            values.filter(|(index, value)| !is_text(*index, value)).count()
        }
        false => votes.iter().flatten().count(),
    };
    match typed {
        0 => First::Unknown,
        _ if are_numbered(values) => First::Names,
        _ => First::Values,
    }
}

/// True for names that are numbers: years after each other, beside other names, and what pandas
/// writes for columns without names, which it counts from 0 behind an index without a name.
fn are_numbered(values: &[String]) -> bool {
    let numbers: Vec<i64> = values.iter().filter_map(|value| value.parse().ok()).collect();
    let steps = |step: i64| numbers.windows(2).all(|pair| pair[1] - pair[0] == step);
    let years = numbers.iter().all(|number| (1900..=2100).contains(number));
    let is_index = values.first().is_some_and(String::is_empty);
    match numbers.as_slice() {
        [first, second, ..] if years && numbers.len() < values.len() => {
            first != second && steps(second - first)
        }
        [0, ..] if is_index && numbers.len() + 1 == values.len() => steps(1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_execute::read::Notation;
    use snowmelt_files::Format;

    use super::*;

    fn first(records: &[&str]) -> First {
        let values = |record: &&str| record.split(',').map(str::to_owned).collect::<Vec<_>>();
        let records: Vec<Vec<String>> = records.iter().map(values).collect();
        let mut guesses = vec![Guess::default(); records[0].len()];
        for record in &records[1..] {
            let given = record.iter().zip(&mut guesses).filter(|(value, _)| !value.is_empty());
            given.for_each(|(value, guess)| guess.add(value, &Notation::default()));
        }
        first_record(&records[0], &guesses, &Dialect::of(Format::Csv))
    }

    #[test]
    fn names_are_of_another_type_than_values() {
        for (records, expected) in [
            (&["id,name", "1,a"][..], First::Names),
            (&["1,a", "2,b"], First::Values),
            (&["1.5,", "2,3"], First::Values),
            (&["2024-01-01,x", "2024-01-02 10:00:00,y"], First::Values),
            (&["a,b", "c,d"], First::Unknown),
            (&["a,b"], First::Unknown),
            (&["a,2.5"], First::Values),
            (&["1,n", "2,3"], First::Names),
            (&["country,2019,2020,2021", "x,1,2,3"], First::Names),
            (&["2019,2020,2021", "1,2,3"], First::Values),
            (&[",0,1", "0,5,6", "1,7,8"], First::Names),
            (&["x,7,9", "y,1,2"], First::Values),
        ] {
            assert_eq!(first(records), expected, "{records:?}");
        }
    }
}
