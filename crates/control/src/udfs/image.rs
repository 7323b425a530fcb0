//! UDFs that run in a block image: by the interpreter of the image, with the packages of the image.
//!
//! Nothing is installed: the image must have the packages that the code requires. The UDFs of the
//! code are cached by the digest of the image, because its name may lead to another one later.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use snowmelt_node::{ProgramRequest, Unit, has_registry};
use snowmelt_tasks::{UdfImage, UdfSource as PortableUdf};
use snowmelt_types::{ByteSize, Code, Digest, ErrorReport, Report, Tenant};
use snowmelt_wire::{Signature, SourceCode};

use super::{CodeInputs, MEMORY, UdfCatalog, UdfSet, limits, memory, register};
use crate::functions::preparation::pinned;
use snowmelt_api::UdfSource;

impl UdfCatalog {
    /// Adds the UDFs of a piece of code.
    pub(super) async fn add_in_image(
        &self,
        tenant: &Tenant,
        source: &UdfSource,
        image: &str,
        given: &CodeInputs,
        set: &mut UdfSet,
    ) -> Result<(), ErrorReport> {
        check(source)?;
        let files =
            self.host.node().preparation().store(&source.code).map_err(|error| error.report())?;
        let usual = self.in_image(tenant, &files, image, given, MEMORY).await?;
        let signatures = self.known_in_image(source, &usual).await?;
        let registration = register(&source.code, &[], signatures)?;
        // Other hosts read it from its registry.
        let elsewhere = has_registry(image).then(|| {
            let CodeInputs { files: given, secrets } = given.clone();
            let name = pinned(image, &usual);
            let code = source.code.clone();
            let tree = image.to_owned();
            let image = Some(UdfImage { name, tree, code: files.clone() });
            let packages = Vec::new();
            let imports = Vec::new();
            Arc::new(PortableUdf { code, packages, imports, image, files: given, secrets })
        });
        // A program gets its memory limit, so one with another limit is another program.
        let mut units = HashMap::from([(MEMORY, usual)]);
        for (signature, parsed) in registration.signatures.iter().zip(&registration.parsed) {
            let memory = memory(parsed);
            let unit = match units.entry(memory) {
                Entry::Occupied(unit) => unit.into_mut(),
                Entry::Vacant(vacant) => {
                    vacant.insert(self.in_image(tenant, &files, image, given, memory).await?)
                }
            };
            set.put(unit, signature, parsed, elsewhere.clone())?;
        }
        Ok(())
    }

    async fn in_image(
        &self,
        tenant: &Tenant,
        code: &Digest,
        image: &str,
        given: &CodeInputs,
        memory: ByteSize,
    ) -> Result<Unit, ErrorReport> {
        let place = self.places.of(image);
        let request = ProgramRequest::python_in(image.to_owned());
        let prepared = self
            .host
            .node()
            .preparation()
            .prepare_program(tenant, code, &request, &limits(memory), place.as_ref())
            .await;
        self.give(prepared.map_err(|error| error.report())?, given).await
    }

    async fn known_in_image(
        &self,
        source: &UdfSource,
        unit: &Unit,
    ) -> Result<Vec<Signature>, ErrorReport> {
        if let Some(signatures) = &source.signatures {
            return Ok(signatures.clone());
        }
        let asked = serde_json::to_string(source).unwrap_or_default();
        let image = unit.image().unwrap_or_default();
        let key = Digest::of_parts(["udfs-in-image-2", &asked, &image]);
        if let Some(known) = self.analysis.get(&key) {
            return Ok(known);
        }
        let began = Instant::now();
        match self.ask(unit).await {
            Ok(signatures) => {
                self.analysis.put(&key, &signatures);
                Ok(signatures)
            }
            // What failed in the image may have failed for want of a block of it.
            Err(error) => Err(self
                .host
                .node()
                .preparation()
                .why_image_failed(unit, began)
                .await
                .unwrap_or(error)),
        }
    }
}

fn check(source: &UdfSource) -> Result<(), ErrorReport> {
    if matches!(source.code, SourceCode::Files { .. }) {
        return Err(snowmelt_udf::Error::NotPython.report());
    }
    if source.packages.is_empty() {
        return Ok(());
    }
    let message = "UDFs in an image have the packages of that image";
    let hint = "build an image on it that has them (snowmelt image build --base … --python …)";
    Err(ErrorReport::new(Code::OPTION, message).hint(hint))
}
