//! The trees through which the image and the files of a function come to its hosts.

use snowmelt_api::ImageTree;
use snowmelt_node::file_tree;
use snowmelt_types::{ErrorReport, FunctionName, Tenant};

use super::Functions;
use crate::records::{FunctionId, FunctionRecord};
use crate::trees::image;

impl Functions {
    /// Those of `all` that are of a function; if there is none of this name, those of images that
    /// begin with it.
    ///
    /// # Errors
    /// There is no function of this name, and no such image.
    pub async fn trees_of(
        &self,
        tenant: Tenant,
        name: &str,
        mut all: Vec<ImageTree>,
    ) -> Result<Vec<ImageTree>, ErrorReport> {
        let function = match name.parse::<FunctionName>() {
            Ok(name) => Some(self.record(&FunctionId { tenant, name }).await),
            Err(_) => None,
        };
        if let Some(Ok(record)) = &function {
            let own = trees(record);
            all.retain(|tree| own.contains(&tree.image));
            return Ok(all);
        }
        all.retain(|tree| tree.image.starts_with(name));
        match function {
            Some(Err(report)) if all.is_empty() => Err(report),
            _ => Ok(all),
        }
    }
}

fn trees(record: &FunctionRecord) -> Vec<String> {
    let files = record.spec.files.values().map(|file| file_tree(&file.digest));
    image(record).into_iter().chain(files).collect()
}
