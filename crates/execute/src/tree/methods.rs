//! Methods of `ExecutionPlan` that operators of this project have alike. Macros, because a trait's
//! methods cannot be taken from elsewhere.

/// `apply_expressions` of an operator without expressions.
#[macro_export]
macro_rules! no_expressions {
    () => {
        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &::std::sync::Arc<dyn ::datafusion::physical_plan::PhysicalExpr>,
            ) -> ::datafusion::error::Result<
                ::datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> ::datafusion::error::Result<::datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(::datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

/// The methods of a leaf, which has neither inputs nor expressions.
#[macro_export]
macro_rules! leaf_methods {
    () => {
        $crate::no_expressions!();

        fn children(
            &self,
        ) -> Vec<&::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: ::std::sync::Arc<Self>,
            _: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
            _: ::datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> ::datafusion::error::Result<
            ::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>,
        > {
            Ok(self)
        }

        fn with_new_children(
            self: ::std::sync::Arc<Self>,
            _: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        ) -> ::datafusion::error::Result<
            ::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>,
        > {
            Ok(self)
        }
    };
}

/// `with_new_children` of an operator whose `replace_children` computes its properties anew.
#[macro_export]
macro_rules! children_by_replacement {
    () => {
        fn with_new_children(
            self: ::std::sync::Arc<Self>,
            children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        ) -> ::datafusion::error::Result<
            ::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>,
        > {
            let recompute = ::datafusion::physical_plan::ReplaceChildrenOptions::new(
                ::datafusion::physical_plan::ChildrenPropertiesMode::Recompute,
            );
            self.replace_children(children, recompute)
        }
    };
}
