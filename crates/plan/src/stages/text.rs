//! Plans as text, for EXPLAIN, the profile and the golden tests.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use snowmelt_execute::exchange::ExchangeReach;
use snowmelt_execute::operator_text::operator_text;
use snowmelt_execute::tree::count;

use super::cut::{Cut, Stage, StageOutput};

/// The workers' programs, stage by stage, and the medium of the exchanges between them.
pub(crate) fn workers_text(cut: &Cut, reach: ExchangeReach) -> String {
    let program = |(index, stage): (usize, &Stage)| {
        let partitions = count(stage.body());
        let output = match &stage.output {
            StageOutput::Results(_) => "results for the driver".to_owned(),
            StageOutput::Exchange(exchange) => {
                let readers = cut.stages.iter().enumerate();
                let readers = readers.filter(|(_, it)| it.reads.contains(&(index as u32)));
                let readers: Vec<String> = readers.map(|(reader, _)| reader.to_string()).collect();
                let medium = exchange.text(reach, reach);
                format!("exchange by {medium} for stage {}", readers.join(" and "))
            }
        };
        let head = format!("stage {index}: {partitions} partitions, {output}\n");
        format!("{head}{}", tree(&stage.plan))
    };
    cut.stages.iter().enumerate().map(program).collect()
}

/// The driver's part.
pub(crate) fn driver_text(cut: &Cut) -> String {
    tree(&cut.driver)
}

fn tree(plan: &Arc<dyn ExecutionPlan>) -> String {
    let mut text = String::new();
    write_tree(plan, 0, &mut text);
    text
}

fn write_tree(plan: &Arc<dyn ExecutionPlan>, depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
    text.push_str(&operator_text(plan, usize::MAX));
    text.push('\n');
    for child in plan.children() {
        write_tree(child, depth + 1, text);
    }
}
