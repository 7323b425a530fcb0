//! The report of `image build`.

use std::time::Instant;

use serde::Serialize;
use snowmelt_image::Converted;
use snowmelt_image::block::OciDigest;
use snowmelt_image::build::{LeftOut, debian_package};
use snowmelt_image::exchange::UploadCounts;
use snowmelt_types::{ByteSize, ErrorReport};

use crate::args::ShowFormat;
use crate::output::{TableLayout, draw, list};
use crate::terminal::printer;

/// The result of a build.
#[derive(Serialize)]
pub(super) struct BuildReport {
    name: String,
    manifest: OciDigest,
    /// The layers from the lowest one.
    layers: Vec<LayerReport>,
    /// Layers that already existed locally.
    reused: usize,
    /// Number of compressed blocks, including those of the metadata part.
    written_blocks: u64,
    /// Blobs that the registry did not have, if the image was pushed.
    sent: Option<UploadCounts>,
    /// Libraries that Python packages need and the image does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacking: Vec<MissingLibrary>,
    /// The effects that the scripts of Debian packages would have had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
    /// Duration of the command.
    seconds: f64,
}

#[derive(Serialize)]
struct MissingLibrary {
    library: String,
    needed_by: String,
    /// The Debian package that contains the library, if known.
    package: Option<&'static str>,
}

#[derive(Serialize)]
struct LayerReport {
    name: String,
    digest: OciDigest,
    bytes: u64,
    raw_bytes: u64,
    /// False if the layer already existed locally.
    written: bool,
}

impl BuildReport {
    /// `names` are the names of the layers above the base.
    pub fn new(
        name: String,
        built: &Converted,
        names: &[String],
        sent: Option<UploadCounts>,
        began: Instant,
    ) -> Self {
        let all = &built.image.layers;
        let base_layers = all.len().saturating_sub(names.len());
        let named = (0..base_layers).map(|_| "base").chain(names.iter().map(String::as_str));
        let layers = all.iter().zip(named).map(|(blob, name)| LayerReport {
            name: name.to_owned(),
            digest: blob.digest.clone(),
            bytes: blob.size,
            raw_bytes: blob.raw_size,
            written: built.written.contains(&blob.digest),
        });
        Self {
            name,
            manifest: built.manifest.digest.clone(),
            layers: layers.collect(),
            reused: built.reused,
            written_blocks: built.written_blocks,
            sent,
            lacking: Vec::new(),
            left_out: Vec::new(),
            seconds: (began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        }
    }

    /// Adds the missing libraries, each with the package that needs it.
    pub fn lacking(self, lacking: Vec<(String, String)>) -> Self {
        let one = |(library, needed_by): (String, String)| {
            let package = debian_package(&library);
            MissingLibrary { library, needed_by, package }
        };
        Self { lacking: lacking.into_iter().map(one).collect(), ..self }
    }

    /// Adds what was left out of the scripts of packages.
    pub fn left_out(self, left_out: Vec<LeftOut>) -> Self {
        Self { left_out, ..self }
    }

    /// Prints the report to stdout.
    pub fn print(&self, format: ShowFormat) -> Result<(), ErrorReport> {
        printer::print(&match format {
            ShowFormat::Json => list::json(self)?,
            ShowFormat::Table => self.table(),
        })
    }

    fn table(&self) -> String {
        let row = |layer: &LayerReport| {
            let what = if layer.written { "written" } else { "reused" };
            let (stored, raw) =
                (ByteSize(layer.bytes).to_string(), ByteSize(layer.raw_bytes).to_string());
            vec![Some(layer.name.clone()), Some(stored), Some(raw), Some(what.to_owned())]
        };
        let rows: Vec<_> = self.layers.iter().map(row).collect();
        draw(&["layer", ">stored", ">raw", ""], &rows, TableLayout::unlimited())
    }
}
