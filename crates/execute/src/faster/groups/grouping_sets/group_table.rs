//! The groups of all grouping sets, with the states of their aggregates.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, RecordBatch, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::lattice::Lattice;

fn aggregate(node: &Arc<dyn ExecutionPlan>) -> Result<&AggregateExec> {
    let aggregate = node.downcast_ref::<AggregateExec>();
    aggregate.ok_or_else(|| DataFusionError::Internal("not an aggregation".to_owned()))
}

/// The expressions that are evaluated for each row.
pub(super) struct Rows {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    functions: Vec<FunctionInput>,
    /// The sets to which rows are added.
    sets: Vec<usize>,
}

struct FunctionInput {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
}

impl Rows {
    pub(super) fn new(original: &Arc<dyn ExecutionPlan>, lattice: &Lattice) -> Result<Self> {
        let of = aggregate(original)?;
        let keys = of.group_expr().input_exprs();
        let input = |(function, filter): (&Arc<AggregateFunctionExpr>, &Option<_>)| FunctionInput {
            arguments: function.expressions(),
            filter: filter.clone(),
        };
        let functions = of.aggr_expr().iter().zip(of.filter_expr()).map(input).collect();
        Ok(Self { keys, functions, sets: lattice.of_rows().collect() })
    }

    /// Adds the rows of a batch to the sets that are not derived from others.
    pub(super) fn add_to(&self, groups: &mut Groups, batch: &RecordBatch) -> Result<()> {
        let keys = evaluate_expressions_to_arrays(&self.keys, batch)?;
        let mut evaluated = Vec::with_capacity(self.functions.len());
        for FunctionInput { arguments, filter } in &self.functions {
            let arguments = evaluate_expressions_to_arrays(arguments, batch)?;
            let filter = match filter {
                Some(filter) => Some(filter.evaluate(batch)?.into_array(batch.num_rows())?),
                None => None,
            };
            evaluated.push((arguments, filter));
        }
        for &set in &self.sets {
            let table = &mut groups.tables[set];
            let count = table.intern(&keys, batch.num_rows())?;
            for (states, (arguments, filter)) in table.states.iter_mut().zip(&evaluated) {
                let filter = filter.as_ref().map(|filter| filter.as_boolean());
                states.update_batch(arguments, &table.indices, filter, count)?;
            }
        }
        Ok(())
    }
}

/// The tables of all sets, and the states that are emitted of them.
pub(super) struct Groups {
    lattice: Arc<Lattice>,
    tables: Vec<GroupTable>,
    schema: SchemaRef,
    batch_size: usize,
    /// States that are emitted next.
    output: VecDeque<RecordBatch>,
    /// The next table to emit. `None` while rows are added.
    emitting: Option<usize>,
}

impl Groups {
    pub(super) fn new(
        original: &Arc<dyn ExecutionPlan>,
        lattice: Arc<Lattice>,
        batch_size: usize,
    ) -> Result<Self> {
        let of = aggregate(original)?;
        let key = of.group_expr().group_schema(&of.input_schema())?;
        let table = |columns: &[usize]| GroupTable::new(of, &key, columns.to_vec());
        let tables = lattice.sets().iter().map(|set| table(&set.columns));
        Ok(Self {
            tables: tables.collect::<Result<_>>()?,
            lattice,
            schema: original.schema(),
            batch_size,
            output: VecDeque::new(),
            emitting: None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.count == 0)
    }

    /// The memory of all tables, in bytes.
    pub(super) fn size(&self) -> usize {
        self.tables.iter().map(GroupTable::size).sum()
    }

    /// Begins to emit the groups of all tables.
    pub(super) fn begin_output(&mut self) {
        self.emitting = Some(0);
    }

    /// Returns the next states. `None` if all are emitted, or none are to be.
    pub(super) fn next_states(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(states) = self.output.pop_front() {
                return Ok(Some(states));
            }
            let Some(set) = self.emitting else { return Ok(None) };
            self.emit(set)?;
            self.emitting = Some(set + 1).filter(|next| *next < self.tables.len());
        }
    }

    /// Emits the groups of one set, and merges them into those that are derived from it.
    fn emit(&mut self, set: usize) -> Result<()> {
        let Emitted { keys, states, count } = self.tables[set].take()?;
        if count == 0 {
            return Ok(());
        }
        let id = self.lattice.sets()[set].id;
        // All columns of the key, of which the set's are not null, and the number of the set.
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        let width = self.tables[set].width;
        for (place, field) in self.schema.fields().iter().take(width).enumerate() {
            let own = self.tables[set].columns.iter().position(|column| *column == place);
            columns.push(match own {
                Some(own) => Arc::clone(&keys[own]),
                None => new_null_array(field.data_type(), count),
            });
        }
        for derived in self.lattice.derived_from(set) {
            self.tables[derived].merge(&columns, &states, self.batch_size)?;
        }
        columns.push(number(self.schema.field(width).data_type(), id, count)?);
        columns.extend(states.into_iter().flatten());
        let whole = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let begins = (0..count).step_by(self.batch_size);
        let part = |begin: usize| whole.slice(begin, self.batch_size.min(count - begin));
        self.output.extend(begins.map(part));
        Ok(())
    }
}

/// The number of a set for all its groups.
fn number(kind: &DataType, id: u64, count: usize) -> Result<ArrayRef> {
    Ok(match kind {
        DataType::UInt8 => Arc::new(UInt8Array::from_value(id as u8, count)),
        DataType::UInt16 => Arc::new(UInt16Array::from_value(id as u16, count)),
        DataType::UInt32 => Arc::new(UInt32Array::from_value(id as u32, count)),
        DataType::UInt64 => Arc::new(UInt64Array::from_value(id, count)),
        other => {
            let message = format!("a grouping set is numbered by {other}");
            return Err(DataFusionError::Internal(message));
        }
    })
}

/// The groups of one set.
struct GroupTable {
    /// The columns of the set, by their places in the whole key.
    columns: Vec<usize>,
    /// The number of columns of the whole key.
    width: usize,
    /// The values of the groups. `None` for the set without columns, which has one group.
    values: Option<Box<dyn GroupValues>>,
    states: Vec<Box<dyn GroupsAccumulator>>,
    count: usize,
    /// The group of each row that was added last.
    indices: Vec<usize>,
}

/// The groups that a table had.
struct Emitted {
    /// The columns of the set.
    keys: Vec<ArrayRef>,
    /// The columns of each function's state.
    states: Vec<Vec<ArrayRef>>,
    count: usize,
}

impl GroupTable {
    /// Creates an empty table. `key` has the columns of the whole key, and the number of the set.
    fn new(of: &AggregateExec, key: &Schema, columns: Vec<usize>) -> Result<Self> {
        let fields: Vec<Field> = columns.iter().map(|column| key.field(*column).clone()).collect();
        let values = match fields.is_empty() {
            true => None,
            false => Some(new_group_values(Arc::new(Schema::new(fields)), &GroupOrdering::None)?),
        };
        let states = of.aggr_expr().iter().map(|function| function.create_groups_accumulator());
        let states = states.collect::<Result<_>>()?;
        let width = key.fields().len() - 1;
        Ok(Self { columns, width, values, states, count: 0, indices: Vec::new() })
    }

    /// Finds the groups of rows by the columns of the whole key. Returns the number of all groups.
    fn intern(&mut self, key: &[ArrayRef], rows: usize) -> Result<usize> {
        match &mut self.values {
            Some(values) => {
                let own: Vec<ArrayRef> =
                    self.columns.iter().map(|column| Arc::clone(&key[*column])).collect();
                values.intern(&own, &mut self.indices)?;
                self.count = values.len();
            }
            None => {
                self.indices.clear();
                self.indices.resize(rows, 0);
                self.count = 1;
            }
        }
        Ok(self.count)
    }

    /// Merges the states of the groups of a larger set.
    fn merge(
        &mut self,
        key: &[ArrayRef],
        states: &[Vec<ArrayRef>],
        batch_size: usize,
    ) -> Result<()> {
        let rows = key[0].len();
        for begin in (0..rows).step_by(batch_size) {
            let length = batch_size.min(rows - begin);
            let part = |column: &ArrayRef| column.slice(begin, length);
            let key: Vec<ArrayRef> = key.iter().map(part).collect();
            let count = self.intern(&key, length)?;
            for (own, states) in self.states.iter_mut().zip(states) {
                let states: Vec<ArrayRef> = states.iter().map(part).collect();
                own.merge_batch(&states, &self.indices, count)?;
            }
        }
        Ok(())
    }

    /// Takes all groups, and leaves an empty table.
    fn take(&mut self) -> Result<Emitted> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(Emitted { keys: Vec::new(), states: Vec::new(), count });
        }
        let keys = match &mut self.values {
            Some(values) => {
                let keys = values.emit(EmitTo::All)?;
                // The table of hashes stays otherwise.
                values.clear_shrink(0);
                keys
            }
            None => Vec::new(),
        };
        let states = self.states.iter_mut().map(|states| states.state(EmitTo::All));
        Ok(Emitted { keys, states: states.collect::<Result<_>>()?, count })
    }

    fn size(&self) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.size());
        let indices = self.indices.capacity() * size_of::<usize>();
        values + indices + self.states.iter().map(|states| states.size()).sum::<usize>()
    }
}
