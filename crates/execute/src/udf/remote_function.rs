//! A scalar function that runs in another sandbox.
//!
//! The function is declared volatile, even if it is deterministic: DataFusion then never evaluates
//! it during planning, and never moves a filter on it below the projection that computes it, which
//! would call it twice for each row. `plan::calls` and [`super::repeats`] know which of its calls
//! are saved.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use snowmelt_udf::Client;
use snowmelt_wire::{Signature as WireSignature, UdfConnection, UdfKind, schema_from_text};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::coercion::coerce;
use super::{UdfPool, float_arguments};
use crate::{Error, Result};

/// A UDF of the query.
#[derive(Debug)]
pub struct RemoteUdf {
    wire: WireSignature,
    types: Vec<DataType>,
    // The schema of the batches of its calls: every argument is nullable, whatever is declared.
    arguments: SchemaRef,
    result: FieldRef,
    signature: Signature,
    pool: Arc<UdfPool>,
}

impl RemoteUdf {
    /// The function of a signature. It is called through `pool`.
    pub fn from_signature(wire: &WireSignature, pool: Arc<UdfPool>) -> Result<Self> {
        let (arguments, result) = schemas(wire)?;
        let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
        let arguments =
            Schema::new(arguments.fields().iter().map(nullable).collect::<Vec<Field>>());
        let types: Vec<DataType> =
            arguments.fields().iter().map(|field| field.data_type().clone()).collect();
        let signature = match types.is_empty() {
            true => Signature::nullary(Volatility::Volatile),
            false => Signature::user_defined(Volatility::Volatile),
        };
        let arguments = Arc::new(arguments);
        Ok(Self { wire: wire.clone(), types, arguments, result, signature, pool })
    }

    /// The UDF behind a function of a plan; `None` for a built-in function.
    pub fn inside(function: &ScalarUDF) -> Option<&Self> {
        (function.inner().as_ref() as &dyn std::any::Any).downcast_ref()
    }

    /// True if equal arguments give the same result throughout a query.
    pub fn is_deterministic(&self) -> bool {
        self.wire.deterministic
    }

    /// True if the function's result is a list of rows.
    pub fn is_table(&self) -> bool {
        self.wire.kind == UdfKind::Table
    }

    /// Returns the type of the function's result.
    pub fn result_type(&self) -> &DataType {
        self.result.data_type()
    }

    /// The batch of a call.
    pub(crate) fn arguments(&self, columns: Vec<ArrayRef>, rows: usize) -> DfResult<RecordBatch> {
        // A function without arguments still has rows: the batch has their number.
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let given = float_arguments::given(&self.arguments, &columns);
        let batch = RecordBatch::try_new_with_options(given, columns, &options)?;
        float_arguments::converted(&self.wire.name, batch, &self.arguments)
    }

    /// Returns the results of the next rows of a batch, of which `done` rows have results already:
    /// as many as one call of a table function answers.
    pub(crate) fn call_part(&self, arguments: &RecordBatch, done: usize) -> DfResult<ArrayRef> {
        let rest = arguments.slice(done, arguments.num_rows() - done);
        blocking(|| self.pool.call_part(&self.wire.name, &rest, done))
    }

    /// The signature from which it was created.
    pub fn wire_signature(&self) -> &WireSignature {
        &self.wire
    }
}

/// The results of several calls. Different functions compute at the same time.
pub(crate) fn call_together(calls: &[(&RemoteUdf, RecordBatch)]) -> DfResult<Vec<ArrayRef>> {
    let Some((first, _)) = calls.first() else { return Ok(Vec::new()) };
    let named = calls.iter().map(|(udf, batch)| (udf.wire.name.as_str(), batch));
    let named: Vec<_> = named.collect();
    blocking(|| first.pool.call_together(&named))
}

/// Opens a client for a UDF on a connection to an instance.
pub(super) fn open(wire: &WireSignature, connection: UdfConnection) -> Result<Client> {
    let (arguments, result) = schemas(wire)?;
    let UdfConnection { socket, timeout } = connection;
    Client::open(&wire.name, socket, arguments, result, timeout)
        .map_err(|error| Error::Task(Box::new(snowmelt_types::Report::report(&error))))
}

/// The declared argument fields, and the result field.
pub(super) fn schemas(wire: &WireSignature) -> Result<(SchemaRef, FieldRef)> {
    let invalid = |why: String| Error::Signature { function: wire.name.clone(), why };
    let schema = schema_from_text(&wire.schema).map_err(|error| invalid(error.to_string()))?;
    match schema.fields().split_last() {
        Some((result, arguments)) if result.name() == "return" => {
            Ok((Arc::new(Schema::new(arguments.to_vec())), Arc::clone(result)))
        }
        _ => Err(invalid("its last field is not named `return`".to_owned())),
    }
}

impl PartialEq for RemoteUdf {
    fn eq(&self, other: &Self) -> bool {
        self.wire == other.wire
    }
}

impl Eq for RemoteUdf {}

impl Hash for RemoteUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.wire.name.hash(state);
    }
}

impl ScalarUDFImpl for RemoteUdf {
    fn name(&self) -> &str {
        &self.wire.name
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

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.iter().map(|value| value.to_array(rows));
        let columns = columns.collect::<DfResult<Vec<_>>>()?;
        let batch = self.arguments(columns, rows)?;
        blocking(|| self.pool.call(&self.wire.name, &batch)).map(ColumnarValue::Array)
    }
}

/// Lets the runtime's other tasks run on other threads while this thread blocks.
pub(super) fn blocking<T>(call: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
        _ => call(),
    }
}
