//! An aggregate function whose states are in another sandbox.
//!
//! The instance keeps the states of all groups; the worker knows only how many groups there are.
//! Between workers, and on disk when a worker's memory is full, states are bytes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::not_impl_err;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use snowmelt_types::Report;
use snowmelt_udf::{AggregateClient, Groups, STATE_TYPE, group_field, state_schema};
use snowmelt_wire::{Signature as WireSignature, UdfConnection};

use super::coercion::coerce;
use super::remote_function::{blocking, schemas};
use super::{UdfPool, float_arguments};
use crate::{Error, Result};

/// An aggregate function of the query.
pub(crate) struct RemoteAggregate {
    wire: WireSignature,
    types: Vec<DataType>,
    rows: SchemaRef,
    result: FieldRef,
    signature: Signature,
    // SQL folds names to lower case.
    folded: Vec<String>,
    pool: Arc<UdfPool>,
}

impl RemoteAggregate {
    /// The function of a signature. It is called through `pool`.
    pub(crate) fn from_signature(wire: &WireSignature, pool: Arc<UdfPool>) -> Result<Self> {
        let (arguments, result) = schemas(wire)?;
        let types = arguments.fields().iter().map(|field| field.data_type().clone()).collect();
        let folded = Some(wire.name.to_lowercase()).filter(|name| *name != wire.name);
        Ok(Self {
            wire: wire.clone(),
            types,
            rows: rows_of(&arguments),
            result,
            signature: Signature::user_defined(Volatility::Volatile),
            folded: folded.into_iter().collect(),
            pool,
        })
    }

    /// The aggregate function of the user behind a function of a plan; `None` for a built-in one.
    pub(crate) fn inside(function: &AggregateUDF) -> Option<&Self> {
        (function.inner().as_ref() as &dyn std::any::Any).downcast_ref()
    }

    /// The signature from which it was created.
    pub(crate) fn wire_signature(&self) -> &WireSignature {
        &self.wire
    }

    fn groups(&self) -> RemoteGroups {
        RemoteGroups {
            name: self.wire.name.clone(),
            rows: Arc::clone(&self.rows),
            pool: Arc::clone(&self.pool),
            accumulator: self.pool.aggregates.next_accumulator(),
            count: 0,
            bytes: 0,
        }
    }
}

/// Opens a client for an aggregate function on a connection to an instance.
pub(super) fn open(wire: &WireSignature, connection: UdfConnection) -> Result<AggregateClient> {
    let (arguments, result) = schemas(wire)?;
    let UdfConnection { socket, timeout } = connection;
    AggregateClient::open(&wire.name, socket, &rows_of(&arguments), &result, timeout)
        .map_err(|error| Error::Task(Box::new(error.report())))
}

/// Returns the schema of the arguments, all of them nullable whatever is declared, and of the
/// group.
fn rows_of(arguments: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
    let fields = arguments.fields().iter().map(nullable).chain([group_field()]);
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

// Without the pool: plans are compared by this text.
impl fmt::Debug for RemoteAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAggregate").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl PartialEq for RemoteAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.wire == other.wire
    }
}

impl Eq for RemoteAggregate {}

impl Hash for RemoteAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.wire.name.hash(state);
    }
}

impl AggregateUDFImpl for RemoteAggregate {
    fn name(&self) -> &str {
        &self.wire.name
    }

    fn aliases(&self) -> &[String] {
        &self.folded
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> DfResult<DataType> {
        Ok(self.result.data_type().clone())
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        coerce(&self.wire.name, &self.types, types)
    }

    fn accumulator(&self, _args: AccumulatorArgs<'_>) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroup(self.groups())))
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _args: AccumulatorArgs<'_>,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.groups()))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> DfResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), STATE_TYPE, true))])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    /// Returns the value for no rows, which only the user's code knows. DataFusion asks for it
    /// where it turns a correlated subquery into a join; null would be a wrong answer.
    fn default_value(&self, _data_type: &DataType) -> DfResult<ScalarValue> {
        let name = self.name();
        not_impl_err!(
            "`{name}` cannot be used in a correlated subquery: join with a subquery that groups"
        )
    }
}

/// The groups of one operator, whose states an instance has.
struct RemoteGroups {
    name: String,
    rows: SchemaRef,
    pool: Arc<UdfPool>,
    accumulator: u64,
    count: usize,
    // Of the states, as the instance estimates.
    bytes: u64,
}

impl RemoteGroups {
    fn here(&self) -> Groups {
        Groups { accumulator: self.accumulator, count: self.count as u64 }
    }

    fn update(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
    ) -> DfResult<()> {
        let rows = with_groups(&float_arguments::given(&self.rows, values), values, group_indices)?;
        let rows = match filter {
            Some(filter) => filter_record_batch(&rows, filter)?,
            None => rows,
        };
        let rows = float_arguments::converted(&self.name, rows, &self.rows)?;
        if rows.num_rows() > 0 {
            let groups = self.here();
            let count = rows.num_rows() as u64;
            let call = |client: &mut AggregateClient| client.update(groups, &rows);
            self.bytes = blocking(|| self.pool.aggregates.call(&self.name, count, call))?;
        }
        Ok(())
    }

    /// Takes the states or the results of the first groups.
    fn take(&mut self, emit_to: EmitTo, take: Take) -> DfResult<ArrayRef> {
        let groups = self.here();
        let first = match emit_to {
            EmitTo::All => self.count,
            EmitTo::First(count) => count.min(self.count),
        };
        let call = |client: &mut AggregateClient| take(client, groups, first as u64);
        let taken = blocking(|| self.pool.aggregates.call(&self.name, 0, call))?;
        let left = self.count - first;
        self.bytes = match self.count {
            0 => 0,
            count => (u128::from(self.bytes) * left as u128 / count as u128) as u64,
        };
        self.count = left;
        Ok(taken)
    }
}

type Take = fn(&mut AggregateClient, Groups, u64) -> Result<ArrayRef, snowmelt_udf::CallError>;

/// A batch of values with the group of each row.
fn with_groups(
    schema: &SchemaRef,
    values: &[ArrayRef],
    group_indices: &[usize],
) -> DfResult<RecordBatch> {
    let groups = UInt64Array::from_iter_values(group_indices.iter().map(|group| *group as u64));
    let columns = values.iter().cloned().chain([Arc::new(groups) as ArrayRef]).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

impl GroupsAccumulator for RemoteGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> DfResult<()> {
        self.count = total_num_groups;
        self.update(values, group_indices, opt_filter)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> DfResult<()> {
        self.count = total_num_groups;
        let states = with_groups(&state_schema(), values, group_indices)?;
        if states.num_rows() > 0 {
            let groups = self.here();
            let count = states.num_rows() as u64;
            let call = |client: &mut AggregateClient| client.merge(groups, &states);
            self.bytes = blocking(|| self.pool.aggregates.call(&self.name, count, call))?;
        }
        Ok(())
    }

    fn state(&mut self, emit_to: EmitTo) -> DfResult<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to, AggregateClient::take_states)?])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        self.take(emit_to, AggregateClient::take_results)
    }

    /// Makes a state of each row: each is a group of an accumulator that is used for this batch
    /// only.
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> DfResult<Vec<ArrayRef>> {
        let count = values.first().map_or(0, |column| column.len());
        let (name, rows, pool) =
            (self.name.clone(), Arc::clone(&self.rows), Arc::clone(&self.pool));
        let accumulator = self.pool.aggregates.next_accumulator();
        let mut alone = Self { name, rows, pool, accumulator, count, bytes: 0 };
        alone.update(values, &(0..count).collect::<Vec<_>>(), opt_filter)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes as usize
    }
}

impl Drop for RemoteGroups {
    fn drop(&mut self) {
        self.pool.aggregates.forget(&self.name, self.accumulator);
    }
}

/// The only group of an operator without GROUP BY.
struct OneGroup(RemoteGroups);

impl fmt::Debug for OneGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OneGroup").field(&self.0.name).finish()
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let rows = values.first().map_or(0, |column| column.len());
        self.0.update_batch(values, &vec![0; rows], None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        let rows = states.first().map_or(0, |column| column.len());
        self.0.merge_batch(states, &vec![0; rows], 1)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        self.0.count = 1;
        let states = self.0.state(EmitTo::All)?;
        states.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        self.0.count = 1;
        ScalarValue::try_from_array(&self.0.evaluate(EmitTo::All)?, 0)
    }

    /// Returns the bytes without the group's state: one group cannot be moved to disk, so the
    /// memory of the worker cannot help, and the limit of the instance applies.
    fn size(&self) -> usize {
        size_of::<Self>()
    }
}
