//! Filters that hash joins make while they run (`dynamic_filters`), as an operator above a scan
//! (`row_filter`).

mod dynamic_filters;
mod row_filter;

pub(crate) use dynamic_filters::apply_dynamic_filters;
