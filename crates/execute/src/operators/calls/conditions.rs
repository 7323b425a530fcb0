//! The conditions of filters, and the columns that projections between them compute, over the columns
//! of one input.
//!
//! A row has the columns of the input, and behind them the computed columns. Each is computed at
//! most once for a row.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::udf;

/// The conditions, and the columns of the result.
#[derive(Debug)]
pub(super) struct Conditions {
    /// Number of columns of the input.
    pub(super) inputs: usize,
    /// Columns that projections compute, in an order in which each needs only columns before it.
    pub(super) computed: Vec<Over>,
    /// All conditions that need no call, if there are any.
    pub(super) native: Option<Over>,
    /// Conditions that call functions of the user.
    pub(super) calling: Vec<Over>,
    /// The columns of the result, as indexes of columns of the row.
    pub(super) output: Vec<usize>,
}

/// An expression over some columns of a row.
#[derive(Debug)]
pub(super) struct Over {
    whole: Arc<dyn PhysicalExpr>,
    /// Indexes of the columns of the row that the expression needs.
    pub(super) needs: Vec<usize>,
    /// The expression over only the columns of `needs`.
    narrow: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
}

impl Over {
    fn new(whole: Arc<dyn PhysicalExpr>, row: &[Field]) -> Result<Self> {
        let mut needs: Vec<usize> = collect_columns(&whole).iter().map(Column::index).collect();
        needs.sort_unstable();
        let place = |part: Arc<dyn PhysicalExpr>| {
            let Some(column) = part.downcast_ref::<Column>() else {
                return Ok(Transformed::no(part));
            };
            let Ok(place) = needs.binary_search(&column.index()) else {
                return internal_err!("{column} is not a column of the row");
            };
            Ok(Transformed::yes(Arc::new(Column::new(column.name(), place)) as _))
        };
        let narrow = Arc::clone(&whole).transform_up(place).data()?;
        let fields: Vec<Field> = needs.iter().map(|index| row[*index].clone()).collect();
        Ok(Self { whole, needs, narrow, schema: Arc::new(Schema::new(fields)) })
    }

    /// Returns the values of the expression for rows whose `columns` are the ones of `needs`.
    pub(super) fn evaluate(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        self.narrow.evaluate(&batch)?.into_array(rows)
    }
}

impl Conditions {
    /// Collects the conditions of filters and projections, the uppermost first, over an input.
    /// `None` if all of them are evaluated for each row anyway.
    pub(super) fn of(
        parts: &[&Arc<dyn ExecutionPlan>],
        input: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Self>> {
        let mut building = Building::over(&input.schema());
        for part in parts.iter().rev() {
            if let Some(filter) = part.downcast_ref::<FilterExec>() {
                building.filter(filter)?;
            } else if let Some(projection) = part.downcast_ref::<ProjectionExec>() {
                building.projection(projection)?;
            }
        }
        building.finish()
    }

    /// Returns all expressions: conditions and computed columns.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        let conditions = self.native.iter().chain(&self.calling);
        self.computed.iter().chain(conditions).map(|over| &over.whole)
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions = self.native.iter().chain(&self.calling).map(|over| &over.whole);
        conditions.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        conditions.try_for_each(|next| write!(f, " AND {next}"))?;
        if self.computed.is_empty() {
            return Ok(());
        }
        let first = self.inputs;
        let named = self.computed.iter().zip(first..);
        let texts: Vec<String> =
            named.map(|(over, index)| format!("{} as @{index}", over.whole)).collect();
        write!(f, ", computes=[{}]", texts.join(", "))
    }
}

struct Building {
    inputs: usize,
    row: Vec<Field>,
    /// The columns of the part that was added last, as expressions over the row.
    columns: Vec<Arc<dyn PhysicalExpr>>,
    computed: Vec<Arc<dyn PhysicalExpr>>,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
}

impl Building {
    fn over(schema: &Schema) -> Self {
        let fields = schema.fields().iter();
        let column = |(index, field): (usize, &Arc<Field>)| {
            Arc::new(Column::new(field.name(), index)) as Arc<dyn PhysicalExpr>
        };
        Self {
            inputs: fields.len(),
            row: fields.clone().map(|field| field.as_ref().clone()).collect(),
            columns: fields.enumerate().map(column).collect(),
            computed: Vec::new(),
            conditions: Vec::new(),
        }
    }

    fn filter(&mut self, filter: &FilterExec) -> Result<()> {
        for condition in split_conjunction(filter.predicate()) {
            let condition = self.in_row(condition)?;
            self.conditions.push(condition);
        }
        if let Some(kept) = filter.projection() {
            self.columns = kept.iter().map(|index| Arc::clone(&self.columns[*index])).collect();
        }
        Ok(())
    }

    fn projection(&mut self, projection: &ProjectionExec) -> Result<()> {
        let schema = projection.schema();
        let mut columns = Vec::with_capacity(projection.expr().len());
        for (one, field) in projection.expr().iter().zip(schema.fields()) {
            let expression = self.in_row(&one.expr)?;
            if expression.downcast_ref::<Column>().is_some() {
                columns.push(expression);
                continue;
            }
            columns.push(Arc::new(Column::new(field.name(), self.row.len())) as _);
            self.row.push(field.as_ref().clone());
            self.computed.push(expression);
        }
        self.columns = columns;
        Ok(())
    }

    fn in_row(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let source = |part: Arc<dyn PhysicalExpr>| {
            Ok(match part.downcast_ref::<Column>() {
                Some(column) => Transformed::yes(Arc::clone(&self.columns[column.index()])),
                None => Transformed::no(part),
            })
        };
        Arc::clone(expression).transform_up(source).data()
    }

    fn finish(self) -> Result<Option<Conditions>> {
        let mut needs_call = vec![false; self.inputs];
        for expression in &self.computed {
            needs_call.push(calls(expression, &needs_call)?);
        }
        let mut native = Vec::new();
        let mut calling = Vec::new();
        for condition in self.conditions {
            match calls(&condition, &needs_call)? {
                true => calling.push(Over::new(condition, &self.row)?),
                false => native.push(condition),
            }
        }
        let over = |expression| Over::new(expression, &self.row);
        let computed: Vec<Over> = self.computed.into_iter().map(over).collect::<Result<_>>()?;
        match calling.as_slice() {
            [] => return Ok(None),
            // It is evaluated for each row, in whatever way.
            [only] if native.is_empty() => {
                let needed = needed(only, &computed, self.inputs);
                if (self.inputs..).zip(&needed).all(|(at, needed)| *needed || !needs_call[at]) {
                    return Ok(None);
                }
            }
            _ => (),
        }
        let native = match native.is_empty() {
            true => None,
            false => Some(Over::new(conjunction(native), &self.row)?),
        };
        let index = |column: &Arc<dyn PhysicalExpr>| column.downcast_ref().map(Column::index);
        let Some(output) = self.columns.iter().map(index).collect() else {
            return internal_err!("a filter gives columns of its input");
        };
        Ok(Some(Conditions { inputs: self.inputs, computed, native, calling, output }))
    }
}

/// For each computed column, whether a condition needs it.
fn needed(condition: &Over, computed: &[Over], inputs: usize) -> Vec<bool> {
    let mut needed = vec![false; computed.len()];
    let mut open = condition.needs.clone();
    while let Some(index) = open.pop() {
        let Some(at) = index.checked_sub(inputs) else { continue };
        if let Some(over) = computed.get(at)
            && !std::mem::replace(&mut needed[at], true)
        {
            open.extend(&over.needs);
        }
    }
    needed
}

/// True if an expression calls a function, or needs a column that does.
fn calls(expression: &Arc<dyn PhysicalExpr>, needs_call: &[bool]) -> Result<bool> {
    let in_columns = collect_columns(expression).iter().any(|column| needs_call[column.index()]);
    Ok(in_columns || !udf::called_in(expression)?.is_empty())
}
