//! Makes a code package of code and requirements on this machine, and sends it to the registry of
//! its name.
//!
//! Invariant: a name leads to a package only once all of it is there.

use std::path::PathBuf;

use snowmelt_api::Packed;
use snowmelt_image::build::{Unpacked, build, function};
use snowmelt_image::source::{OciLayout, Reference};
use snowmelt_image::{Converted, Options, exchange};
use snowmelt_package::{Environment, Installer, Reporter};
use snowmelt_types::{Digest, Tenant};
use snowmelt_wire::SourceCode;

use super::label::{Contents, LABEL};
use crate::images::{TenantImages, has_registry};
use crate::user_code::interpreters::Installed;
use crate::user_code::preparation::Preparation;
use crate::{Error, Result};

/// The most layers of wheels, because the manifest of an image has to fit into one packet. A
/// package with more wheels has them all in one layer.
const MAX_LAYERS: usize = 100;

/// The code of a package, and the requirements and modules that the code needs.
#[derive(Clone, Copy, Debug)]
pub struct PackageSource<'a> {
    /// The code.
    pub code: &'a SourceCode,
    /// The callable in the code.
    pub handler: &'a str,
    /// Requirements of the code.
    pub requirements: &'a [String],
    /// Modules that the code imports.
    pub imports: &'a [String],
}

impl Preparation {
    /// Makes a package of code and the wheels that satisfy its requirements, and sends the package
    /// to the registry if its name has one, with the login of the tenant. The same input gives the
    /// same bytes.
    pub async fn pack(
        &self,
        tenant: &Tenant,
        name: &str,
        source: PackageSource<'_>,
        reporter: &dyn Reporter,
    ) -> Result<Packed> {
        let PackageSource { code, handler, requirements, imports } = source;
        let reference: Reference = name.parse().map_err(Error::Image)?;
        let installed = self.environment_of(requirements, imports, reporter).await?;
        let Installed { environment, interpreter, modules } = installed;
        let (digest, code) = self.codes.put(&without_folder(code))?;
        let (packages, is_one) = unpacked(&environment, &interpreter.installer);
        let python = &interpreter.python;
        let contents = Contents::new(handler, modules, &environment, is_one, python);
        let images = TenantImages::new(&self.state_dir, tenant);
        let is_sent = has_registry(name);
        let made = Making { images, reference, is_sent, contents, environment };
        let runtime = tokio::runtime::Handle::current();
        let making = move || made.make(digest, code, &packages, &runtime);
        let made = tokio::task::spawn_blocking(making).await;
        made.map_err(|error| Error::State {
            path: self.state_dir.clone(),
            source: std::io::Error::other(error),
        })?
    }
}

/// Returns code without the folder of its source file, because a package does not depend on that
/// folder.
fn without_folder(code: &SourceCode) -> SourceCode {
    match code {
        SourceCode::Source { file, text } => {
            let name = file.rsplit('/').next().unwrap_or(file).to_owned();
            SourceCode::Source { file: name, text: text.clone() }
        }
        other => other.clone(),
    }
}

/// Returns the folders that become layers, and whether they are one layer. Wheels that have
/// different files of one name, or more than `MAX_LAYERS` wheels, become one layer: the
/// environment, in which such conflicts are resolved.
fn unpacked(environment: &Environment, installer: &Installer) -> (Vec<Unpacked>, bool) {
    let folder = |folder: PathBuf, digest: &Digest| Unpacked {
        folder,
        identity: digest.as_str().to_owned(),
    };
    let wheels = &environment.wheels;
    if environment.conflicts.is_empty() && wheels.len() <= MAX_LAYERS {
        let each = wheels.iter().map(|wheel| folder(installer.files(wheel), &wheel.digest));
        return (each.collect(), false);
    }
    (vec![folder(environment.path.clone(), &environment.digest)], true)
}

/// A package that is being made.
struct Making {
    images: TenantImages,
    reference: Reference,
    is_sent: bool,
    contents: Contents,
    /// The environment of the package; keeps its wheels from being reclaimed meanwhile.
    environment: Environment,
}

impl Making {
    fn make(
        self,
        digest: Digest,
        code: PathBuf,
        packages: &[Unpacked],
        runtime: &tokio::runtime::Handle,
    ) -> Result<Packed> {
        let layout = OciLayout::create(&self.images.layout_folder())?;
        let code = Unpacked { folder: code, identity: digest.as_str().to_owned() };
        let mut recipe = function(&code, packages)?;
        let label = serde_json::to_string(&self.contents).map_err(|error| Error::State {
            path: self.images.layout_folder(),
            source: std::io::Error::other(error),
        })?;
        recipe.settings.labels.insert(LABEL.to_owned(), label);
        let converted = build(&recipe, &layout, Options::default())?;
        if self.is_sent {
            let access = self.images.access();
            let image = &converted.image;
            let to = &self.reference;
            let sending = exchange::push(&layout, image, to, &access, &|_, _, _| ());
            runtime.block_on(sending)?;
        }
        layout.tag(&self.reference.to_string(), &converted.manifest)?;
        Ok(self.summary(&converted))
    }

    fn summary(&self, converted: &Converted) -> Packed {
        let blobs = || converted.image.blobs();
        Packed {
            name: self.reference.to_string(),
            manifest: converted.manifest.digest.to_string(),
            wheels: self.environment.packages.iter().map(ToString::to_string).collect(),
            layers: converted.image.layers.len() as u64,
            reused: converted.reused as u64,
            bytes: blobs().map(|blob| blob.size).sum(),
            raw_bytes: blobs().map(|blob| blob.raw_size).sum(),
            sent: self.is_sent,
        }
    }
}
