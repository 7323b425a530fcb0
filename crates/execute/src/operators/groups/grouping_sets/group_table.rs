//! The groups of all grouping sets, with the states of their aggregates.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, RecordBatch, UInt8Array, UInt16Array, UInt32Array, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::lattice::{GroupingSet, Lattice};
use crate::operators::groups::function_input::{FunctionInput, aggregation};

/// The expressions that are evaluated for each row.
pub(super) struct RowExpressions {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    functions: Vec<FunctionInput>,
    /// The sets to which rows are added.
    sets: Vec<usize>,
}

impl RowExpressions {
    pub(super) fn new(original: &Arc<dyn ExecutionPlan>, lattice: &Lattice) -> Result<Self> {
        let of = aggregation(original)?;
        let keys = of.group_expr().input_exprs();
        Ok(Self { keys, functions: FunctionInput::all(of), sets: lattice.of_rows().collect() })
    }

    /// Adds the rows of a batch to the sets that are not derived from others.
    pub(super) fn add_to(&self, groups: &mut SetGroups, batch: &RecordBatch) -> Result<()> {
        let keys = evaluate_expressions_to_arrays(&self.keys, batch)?;
        let values = self.functions.iter().map(|function| function.evaluate(batch));
        let values = values.collect::<Result<Vec<_>>>()?;
        for &set in &self.sets {
            let table = &mut groups.tables[set];
            let count = table.intern(&keys, batch.num_rows())?;
            for (states, values) in table.states.iter_mut().zip(&values) {
                states.update_batch(&values.arguments, &table.indices, values.filter(), count)?;
            }
        }
        Ok(())
    }
}

/// The tables of all sets, and the groups that are emitted.
pub(super) struct SetGroups {
    lattice: Arc<Lattice>,
    tables: Vec<GroupTable>,
    /// The number of columns of the whole key.
    width: usize,
    schema: SchemaRef,
    batch_size: usize,
    output: GroupOutput,
}

/// The part of the groups that is emitted next.
enum GroupOutput {
    /// Rows are added.
    None,
    /// The groups of the set at this place, which are in its table.
    Table(usize),
    /// Groups of the set at `set`, of which so many are emitted.
    Rest { set: usize, groups: Emitted, emitted: usize },
}

impl SetGroups {
    pub(super) fn new(
        original: &Arc<dyn ExecutionPlan>,
        lattice: Arc<Lattice>,
        batch_size: usize,
    ) -> Result<Self> {
        let of = aggregation(original)?;
        let key = of.group_expr().group_schema(&of.input().schema())?;
        let table = |columns: &[usize]| GroupTable::new(of.aggr_expr(), &key, columns.to_vec());
        let tables = lattice.sets().iter().map(|set| table(&set.columns));
        Ok(Self {
            tables: tables.collect::<Result<_>>()?,
            lattice,
            width: key.fields().len() - 1,
            schema: original.schema(),
            batch_size,
            output: GroupOutput::None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.count == 0)
    }

    pub(super) fn is_emitting(&self) -> bool {
        !matches!(self.output, GroupOutput::None)
    }

    /// The memory of all tables and of what is emitted, in bytes.
    pub(super) fn size(&self) -> usize {
        let emitted = match &self.output {
            GroupOutput::Rest { groups, .. } => groups.size(),
            _ => 0,
        };
        emitted + self.tables.iter().map(GroupTable::size).sum::<usize>()
    }

    /// Begins to emit the groups of all tables.
    pub(super) fn begin_output(&mut self) {
        self.output = GroupOutput::Table(0);
    }

    /// Returns the next states, which are merged into the set that is derived from theirs. `None` if
    /// all are emitted.
    pub(super) fn next_states(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match std::mem::replace(&mut self.output, GroupOutput::None) {
                GroupOutput::None => return Ok(None),
                GroupOutput::Table(set) if set == self.tables.len() => return Ok(None),
                GroupOutput::Table(set) => {
                    let groups = self.tables[set].take()?;
                    self.output = GroupOutput::Rest { set, groups, emitted: 0 };
                }
                GroupOutput::Rest { set, groups, emitted } if emitted == groups.count => {
                    drop(groups);
                    self.output = GroupOutput::Table(set + 1);
                }
                GroupOutput::Rest { set, groups, emitted } => {
                    let count = self.batch_size.min(groups.count - emitted);
                    let states = self.states(set, &groups.slice(emitted, count))?;
                    self.output = GroupOutput::Rest { set, groups, emitted: emitted + count };
                    return Ok(Some(states));
                }
            }
        }
    }

    /// The states of some groups of a set, merged into the set that is derived from it.
    fn states(&mut self, set: usize, groups: &Emitted) -> Result<RecordBatch> {
        let GroupingSet { columns: own, id, .. } = &self.lattice.sets()[set];
        // All columns of the key, of which the set's are not null, and the number of the set.
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (place, field) in self.schema.fields().iter().take(self.width).enumerate() {
            columns.push(match own.iter().position(|column| *column == place) {
                Some(own) => Arc::clone(&groups.keys[own]),
                None => new_null_array(field.data_type(), groups.count),
            });
        }
        if let Some(derived) = self.lattice.derived_from(set) {
            self.tables[derived].merge(&columns, groups)?;
        }
        columns.push(number(self.schema.field(self.width).data_type(), *id, groups.count)?);
        columns.extend(groups.states.iter().flatten().cloned());
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
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
    /// The schema of the columns of the set.
    schema: SchemaRef,
    functions: Vec<Arc<AggregateFunctionExpr>>,
    /// The values of the groups. `None` for the set without columns, which has one group.
    values: Option<Box<dyn GroupValues>>,
    states: Vec<Box<dyn GroupsAccumulator>>,
    count: usize,
    /// The group of each row that was added last.
    indices: Vec<usize>,
}

/// Groups that a table had.
struct Emitted {
    /// The columns of the set.
    keys: Vec<ArrayRef>,
    /// The columns of each function's state.
    states: Vec<Vec<ArrayRef>>,
    count: usize,
}

impl Emitted {
    fn slice(&self, begin: usize, count: usize) -> Self {
        let part = |column: &ArrayRef| column.slice(begin, count);
        let states = |columns: &Vec<ArrayRef>| columns.iter().map(part).collect();
        Self {
            keys: self.keys.iter().map(part).collect(),
            states: self.states.iter().map(states).collect(),
            count,
        }
    }

    fn size(&self) -> usize {
        let columns = self.keys.iter().chain(self.states.iter().flatten());
        columns.map(|column| column.get_array_memory_size()).sum()
    }
}

impl GroupTable {
    /// Creates an empty table. `key` has the columns of the whole key, and the number of the set.
    fn new(
        functions: &[Arc<AggregateFunctionExpr>],
        key: &Schema,
        columns: Vec<usize>,
    ) -> Result<Self> {
        let fields: Vec<Field> = columns.iter().map(|column| key.field(*column).clone()).collect();
        let mut table = Self {
            columns,
            schema: Arc::new(Schema::new(fields)),
            functions: functions.to_vec(),
            values: None,
            states: Vec::new(),
            count: 0,
            indices: Vec::new(),
        };
        table.renew()?;
        Ok(table)
    }

    /// Makes the table empty. Tables that are only cleared keep their memory.
    fn renew(&mut self) -> Result<()> {
        self.values = match self.columns.is_empty() {
            true => None,
            false => Some(new_group_values(Arc::clone(&self.schema), &GroupOrdering::None)?),
        };
        let states = self.functions.iter().map(|function| function.create_groups_accumulator());
        self.states = states.collect::<Result<_>>()?;
        self.indices = Vec::new();
        self.count = 0;
        Ok(())
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

    /// Merges the states of groups of a larger set. `key` has the columns of the whole key.
    fn merge(&mut self, key: &[ArrayRef], groups: &Emitted) -> Result<()> {
        let count = self.intern(key, groups.count)?;
        for (own, states) in self.states.iter_mut().zip(&groups.states) {
            own.merge_batch(states, &self.indices, count)?;
        }
        Ok(())
    }

    /// Takes all groups, and leaves an empty table.
    fn take(&mut self) -> Result<Emitted> {
        let count = self.count;
        if count == 0 {
            return Ok(Emitted { keys: Vec::new(), states: Vec::new(), count });
        }
        let keys = match &mut self.values {
            Some(values) => values.emit(EmitTo::All)?,
            None => Vec::new(),
        };
        let states = self.states.iter_mut().map(|states| states.state(EmitTo::All));
        let states = states.collect::<Result<_>>()?;
        self.renew()?;
        Ok(Emitted { keys, states, count })
    }

    fn size(&self) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.size());
        let indices = self.indices.capacity() * size_of::<usize>();
        values + indices + self.states.iter().map(|states| states.size()).sum::<usize>()
    }
}
