//! Facts about the rows of an exchange: their orders, equal columns and constants.
//!
//! The operators above were planned with this knowledge: a sort may be left out because a column
//! is constant.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::{
    AcrossPartitions, ConstExpr, EquivalenceProperties, LexOrdering, PhysicalExpr,
};
use datafusion::scalar::ScalarValue;

/// The orders, equal expressions and constants of the rows of an exchange.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Orders of the rows of each partition. Only an output with one writer for each partition can
    /// keep them.
    pub(crate) orderings: Vec<LexOrdering>,
    /// Expressions with equal values in each row.
    pub equal: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    /// Expressions with one value in all rows of a partition.
    pub constant: Vec<(Arc<dyn PhysicalExpr>, Constant)>,
}

/// The partitions in which an expression has one value.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// The expression has one value in each partition, perhaps another one in another partition.
    InPartition,
    /// The expression has one known value in all partitions.
    Everywhere(ScalarValue),
}

impl Facts {
    /// Returns the facts that stay true if partitions are read as they were written.
    pub fn of_partitions(properties: &EquivalenceProperties) -> Self {
        let classes = properties.eq_group().iter();
        let equal = classes.map(|class| class.iter().cloned().collect::<Vec<_>>());
        let constant = |it: ConstExpr| match it.across_partitions {
            AcrossPartitions::Uniform(Some(value)) => (it.expr, Constant::Everywhere(value)),
            // A union takes two unknown values for the same one.
            _ => (it.expr, Constant::InPartition),
        };
        Self {
            orderings: properties.oeq_class().iter().cloned().collect(),
            equal: equal.filter(|class| class.len() > 1).collect(),
            constant: properties.constants().into_iter().map(constant).collect(),
        }
    }

    /// Keeps the facts that stay true if the rows of one partition are divided.
    pub fn divided(mut self) -> Self {
        self.orderings.clear();
        self
    }

    /// Keeps the facts that stay true if rows of several partitions are mixed.
    pub fn mixed(mut self) -> Self {
        self.orderings.clear();
        self.constant.retain(|(_, constant)| matches!(constant, Constant::Everywhere(_)));
        self
    }

    /// Replaces the orders by one order of the rows of each partition.
    pub fn sorted(mut self, order: LexOrdering) -> Self {
        self.orderings = vec![order];
        self
    }

    /// Returns the facts as properties of an operator with this schema.
    ///
    /// # Errors
    /// An expression is of another schema.
    pub fn properties(&self, schema: SchemaRef) -> Result<EquivalenceProperties> {
        let mut properties =
            EquivalenceProperties::new_with_orderings(schema, self.orderings.clone());
        for class in &self.equal {
            for pair in class.windows(2) {
                properties.add_equal_conditions(Arc::clone(&pair[0]), Arc::clone(&pair[1]))?;
            }
        }
        let constant = |(expr, constant): &(Arc<dyn PhysicalExpr>, Constant)| {
            let across = match constant {
                Constant::Everywhere(value) => AcrossPartitions::Uniform(Some(value.clone())),
                Constant::InPartition => AcrossPartitions::Heterogeneous,
            };
            ConstExpr::new(Arc::clone(expr), across)
        };
        properties.add_constants(self.constant.iter().map(constant))?;
        Ok(properties)
    }
}
