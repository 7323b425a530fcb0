//! The trees through which the image and the files of a function come to its hosts.

use snowmelt_api::FileRefs;
use snowmelt_node::{file_tree, has_registry};
use snowmelt_types::{Code, ErrorReport, FunctionName, Tenant};

use super::GatewayPlatform;
use crate::cluster::trees::image;
use crate::state::records::{FunctionId, FunctionRecord};

impl GatewayPlatform {
    /// Returns those of `all` trees that belong to a name: to the deployed function and to the last
    /// version of the registered UDF of that name. If there is neither, returns the trees of images
    /// that begin with the name.
    ///
    /// # Errors
    /// The text could be the name of a function, but there is no such function, and no such image.
    pub async fn trees_of(
        &self,
        tenant: Tenant,
        name: &str,
        mut all: Vec<String>,
    ) -> Result<Vec<String>, ErrorReport> {
        let mut own = self
            .udfs
            .find(&tenant, name)
            .await?
            .map(|udf| trees_of_udf(udf.source.image.as_ref(), &udf.source.files));
        let mut missing = None;
        if let Ok(name) = name.parse::<FunctionName>() {
            match self.functions.record(&FunctionId { tenant, name }).await {
                Ok(record) => own.get_or_insert_default().extend(trees_of_function(&record)),
                Err(error) if error.known_code() == Code::FUNCTION_MISSING => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        match &own {
            Some(own) => all.retain(|tree| own.contains(tree)),
            None => all.retain(|tree| tree.starts_with(name)),
        }
        match (own, missing) {
            (None, Some(missing)) if all.is_empty() => Err(missing),
            _ => Ok(all),
        }
    }
}

pub(super) fn trees_of_function(record: &FunctionRecord) -> Vec<String> {
    image(record).into_iter().chain(trees_of_files(&record.spec.files)).collect()
}

pub(super) fn trees_of_udf(image: Option<&String>, files: &FileRefs) -> Vec<String> {
    let image = image.cloned().filter(|image| has_registry(image));
    image.into_iter().chain(trees_of_files(files)).collect()
}

fn trees_of_files(files: &FileRefs) -> impl Iterator<Item = String> {
    files.values().map(|file| file_tree(&file.digest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use snowmelt_api::UdfSource;

    use super::*;
    use crate::platform::rig::{idle_platform, spec};
    use crate::state::records::Existing;

    const IMAGES: [&str; 3] = ["registry.example/app:v1", "registry.example/app:v2", "f2"];

    fn files(digest: &str) -> FileRefs {
        serde_json::from_value(json!({"model": {"digest": digest, "size": 1}})).unwrap()
    }

    #[tokio::test]
    async fn of_a_name_are_its_function_and_its_udf_or_else_images() {
        let idle = idle_platform().await;
        let tenant = Tenant::default();
        let one = "1".repeat(64);
        let two = "2".repeat(64);
        let images = IMAGES.map(str::to_owned).into_iter();
        let all: Vec<_> = images.chain([&one, &two].map(|digest| file_tree(digest))).collect();
        let asked = async |name: &str| {
            let found = idle.platform.trees_of(tenant.clone(), name, all.clone()).await;
            found.map_err(|error| error.known_code())
        };
        assert_eq!(asked("registry.example/app:v").await.unwrap(), IMAGES[..2]);
        assert_eq!(asked("f2").await.unwrap(), ["f2"], "an image of this name");
        assert_eq!(asked("g").await.unwrap_err(), Code::FUNCTION_MISSING);

        let signature = json!({"kind": "scalar", "name": "f", "batch": "scalar", "schema": "",
            "on_error": "raise", "deterministic": false, "packages": []});
        let source = UdfSource {
            code: spec("").code,
            packages: Vec::new(),
            signatures: None,
            image: Some(IMAGES[1].to_owned()),
            files: files(&one),
            secrets: Default::default(),
        };
        let made = [(serde_json::from_value(signature).unwrap(), source)];
        let records = &idle.records;
        records.put_udfs(&tenant, &made, Existing::Replaced, 1).await.unwrap();
        let of_udf = [IMAGES[1].to_owned(), file_tree(&one)];
        assert_eq!(asked("f").await.unwrap(), of_udf);
        assert_eq!(asked("F").await.unwrap(), of_udf, "SQL does not distinguish the case");

        let mut spec = spec("");
        spec.files = files(&two);
        let deployed_ms = 1;
        let files = None;
        let packed = None;
        let record = FunctionRecord { tenant: tenant.clone(), spec, deployed_ms, files, packed };
        records.put_function(&record).await.unwrap();
        let of_both = [&of_udf[..], &[file_tree(&two)]].concat();
        assert_eq!(asked("f").await.unwrap(), of_both);
        let other = "acme".parse().unwrap();
        let found = idle.platform.trees_of(other, "f", all[..2].to_vec()).await;
        assert_eq!(found.unwrap_err().known_code(), Code::FUNCTION_MISSING);
    }
}
