//! Quotients of decimals, rounded as in PostgreSQL and DuckDB: half away from zero.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeTypeOp, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type,
    DecimalType, i256,
};
use arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result};

use super::{cast_strictly, overflow};

/// The integer type in which a quotient is computed: 128 bits where they are enough, 256 otherwise.
trait QuotientInteger: ArrowNativeTypeOp {
    const TEN: Self;
}

impl QuotientInteger for i128 {
    const TEN: Self = 10;
}

impl QuotientInteger for i256 {
    const TEN: Self = i256::from_i128(10);
}

/// Computes `number * 10^exponent / divisor`, rounded, where the divisor is not zero. `None` if a
/// step does not fit into `N`.
fn rounded<N: QuotientInteger>(number: N, exponent: i32, divisor: N) -> Option<N> {
    let power = N::TEN.pow_checked(exponent.unsigned_abs()).ok()?;
    let (number, divisor) = match exponent < 0 {
        true => (number, divisor.mul_checked(power).ok()?),
        false => (number.mul_checked(power).ok()?, divisor),
    };
    let quotient = number.div_checked(divisor).ok()?;
    let rest = number.sub_checked(quotient.mul_checked(divisor).ok()?).ok()?;
    let size = |value: N| match value.is_lt(N::ZERO) {
        true => value.neg_checked().ok(),
        false => Some(value),
    };
    let half = size(rest)?;
    let left = size(divisor)?.sub_checked(size(rest)?).ok()?;
    match (half.is_ge(left), number.is_lt(N::ZERO) == divisor.is_lt(N::ZERO)) {
        (false, _) => Some(quotient),
        (true, true) => quotient.add_checked(N::ONE).ok(),
        (true, false) => quotient.sub_checked(N::ONE).ok(),
    }
}

/// Returns the quotients of two columns of equal length, whose types are decimals of at most 128
/// bits or of any size, as decimals of a type. `what` names the quotients in the error of one that
/// does not fit.
pub(super) fn quotients(
    numbers: &ArrayRef,
    divisors: &ArrayRef,
    data_type: &DataType,
    what: &str,
) -> Result<ArrayRef> {
    let too_large = || overflow(what, data_type);
    let from = scale_of_decimal(numbers.data_type())?;
    let by = scale_of_decimal(divisors.data_type())?;
    let to = scale_of_decimal(data_type)?;
    let exponent = i32::from(to) - i32::from(from) + i32::from(by);
    let narrow = |array: &ArrayRef| array.as_primitive_opt::<Decimal128Type>().cloned();
    let computed: ArrayRef = match (data_type, narrow(numbers), narrow(divisors)) {
        (DataType::Decimal128(precision, _), Some(numbers), Some(divisors)) => {
            let fits =
                |value: &i128| Decimal128Type::is_valid_decimal_precision(*value, *precision);
            let values = pairs(&numbers, &divisors, |number, divisor| {
                let wide = || {
                    let number = i256::from_i128(number);
                    let divisor = i256::from_i128(divisor);
                    rounded(number, exponent, divisor).and_then(i256::to_i128)
                };
                let quotient = rounded(number, exponent, divisor).or_else(wide);
                quotient.filter(fits).ok_or_else(too_large)
            })?;
            Arc::new(values.with_data_type(data_type.clone()))
        }
        _ => {
            let numbers = widened(numbers)?;
            let divisors = widened(divisors)?;
            let values: PrimitiveArray<Decimal256Type> =
                pairs(numbers.as_primitive(), divisors.as_primitive(), |number, divisor| {
                    rounded(number, exponent, divisor).ok_or_else(too_large)
                })?;
            let wide = DataType::Decimal256(DECIMAL256_MAX_PRECISION, to);
            let wide: ArrayRef = Arc::new(values.with_data_type(wide));
            cast_strictly(&wide, data_type).map_err(|_| too_large())?
        }
    };
    Ok(computed)
}

fn pairs<T: DecimalType>(
    numbers: &PrimitiveArray<T>,
    divisors: &PrimitiveArray<T>,
    quotient: impl Fn(T::Native, T::Native) -> Result<T::Native>,
) -> Result<PrimitiveArray<T>>
where
    T::Native: ArrowNativeTypeOp,
{
    let pairs = numbers.iter().zip(divisors.iter());
    pairs
        .map(|pair| match pair {
            (Some(_), Some(divisor)) if divisor.is_zero() => {
                Err(DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None))
            }
            (Some(number), Some(divisor)) => quotient(number, divisor).map(Some),
            _ => Ok(None),
        })
        .collect()
}

/// The digits behind the point of a decimal; `None` for other types.
pub(super) fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

fn scale_of_decimal(data_type: &DataType) -> Result<i8> {
    match scale(data_type) {
        Some(scale) => Ok(scale),
        None => datafusion::common::internal_err!("{data_type} is no decimal"),
    }
}

/// Decimals of any size in 256 bits.
pub(super) fn widened(array: &ArrayRef) -> Result<ArrayRef> {
    let scale = scale_of_decimal(array.data_type())?;
    Ok(cast(array, &DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (number, exponent, divisor, expected) in [
            (5, 0, 2, 3),
            (-5, 0, 2, -3),
            (5, 0, -2, -3),
            (7, 0, 3, 2),
            (8, 0, 3, 3),
            (25, -1, 1, 3),
        ] {
            assert_eq!(rounded(number, exponent, divisor), Some(expected));
            let wide = rounded(i256::from_i128(number), exponent, i256::from_i128(divisor));
            assert_eq!(wide, Some(i256::from_i128(expected)));
        }
        assert_eq!(rounded(i128::MAX, 1, 3), None);
    }
}
