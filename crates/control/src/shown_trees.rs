//! The trees through which the image and the files of a function come to its hosts.

use snowmelt_node::file_tree;
use snowmelt_types::{Code, ErrorReport, FunctionName, Tenant};

use super::Functions;
use crate::records::{FunctionId, FunctionRecord};
use crate::trees::image;

impl Functions {
    /// Those of `all` trees that are of a function; if there is none of this name, those of images
    /// that begin with it.
    ///
    /// # Errors
    /// It could be the name of a function, but there is none, and no such image.
    pub async fn trees_of(
        &self,
        tenant: Tenant,
        name: &str,
        mut all: Vec<String>,
    ) -> Result<Vec<String>, ErrorReport> {
        let function = match name.parse::<FunctionName>() {
            Ok(name) => Some(self.record(&FunctionId { tenant, name }).await),
            Err(_) => None,
        };
        match function {
            Some(Ok(record)) => {
                let own = trees(&record);
                all.retain(|tree| own.contains(tree));
                Ok(all)
            }
            Some(Err(error)) if error.known_code() != Code::FUNCTION_MISSING => Err(error),
            missing => {
                all.retain(|tree| tree.starts_with(name));
                match missing {
                    Some(Err(missing)) if all.is_empty() => Err(missing),
                    _ => Ok(all),
                }
            }
        }
    }
}

fn trees(record: &FunctionRecord) -> Vec<String> {
    let files = record.spec.files.values().map(|file| file_tree(&file.digest));
    image(record).into_iter().chain(files).collect()
}
