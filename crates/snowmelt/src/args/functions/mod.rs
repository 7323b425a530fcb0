//! The grammar of the commands about functions of users.
//!
//! | member | grammar of |
//! |---|---|
//! | `function` | `snowmelt fn` |
//! | `burst` | `snowmelt fn burst` and `snowmelt burst` |
//! | `run` | `snowmelt run` |
//! | `udf` | `snowmelt udf` |
//! | `environment` | the options for environment variables, which several of these commands have |

mod burst;
mod environment;
mod function;
mod run;
mod udf;

pub(super) use burst::EXAMPLES as BURST_EXAMPLES;
pub use burst::{BurstArgs, BurstCommand, BurstLsArgs};
pub use environment::EnvironmentArgs;
pub(super) use environment::variable;
pub(super) use function::EXAMPLES as FUNCTION_EXAMPLES;
pub use function::{
    CallArgs, DeployArgs, FunctionCommand, ListArgs, LogArgs, LogFormat, NewArgs, PackArgs,
    RemoveArgs, ResultArgs, RuntimeName, ShowFunctionArgs,
};
pub use run::RunArgs;
pub(super) use udf::EXAMPLES as UDF_EXAMPLES;
pub use udf::{AddUdfArgs, RemoveUdfArgs, ShowUdfArgs, TestUdfArgs, UdfCommand, UdfLogArgs};
