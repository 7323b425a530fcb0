//! What `image build` tells of its result.

use std::time::Instant;

use serde::Serialize;
use snowmelt_image::Converted;
use snowmelt_image::block::OciDigest;
use snowmelt_image::build::debian_package;
use snowmelt_image::exchange::Sent;
use snowmelt_types::{ByteSize, ErrorReport};

use crate::args::ShowFormat;
use crate::output::{Layout, draw};
use crate::{list, printer};

/// What was made.
#[derive(Serialize)]
pub(super) struct Made {
    name: String,
    manifest: OciDigest,
    /// From below.
    layers: Vec<Layer>,
    /// Layers that were here already.
    reused: usize,
    /// Blocks that were compressed, those of the metadata part too.
    written_blocks: u64,
    /// What a registry did not have, if it was pushed.
    sent: Option<Sent>,
    /// Libraries that packages of Python need and the image does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacking: Vec<Lacking>,
    /// From the command to its end.
    seconds: f64,
}

#[derive(Serialize)]
struct Lacking {
    library: String,
    needed_by: String,
    /// The package of Debian that has it, if it is known.
    package: Option<&'static str>,
}

#[derive(Serialize)]
struct Layer {
    name: String,
    digest: OciDigest,
    bytes: u64,
    raw_bytes: u64,
    /// Read and compressed now; otherwise it was here already.
    written: bool,
}

impl Made {
    /// `names` are those of the layers on the base.
    pub fn new(
        name: String,
        built: &Converted,
        names: &[String],
        sent: Option<Sent>,
        began: Instant,
    ) -> Self {
        let all = &built.image.layers;
        let below = all.len().saturating_sub(names.len());
        let named = (0..below).map(|_| "base").chain(names.iter().map(String::as_str));
        let layers = all.iter().zip(named).map(|(blob, name)| Layer {
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
            seconds: (began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        }
    }

    /// With libraries that the image lacks, each with what needs it.
    pub fn lacking(self, lacking: Vec<(String, String)>) -> Self {
        let one = |(library, needed_by): (String, String)| {
            let package = debian_package(&library);
            Lacking { library, needed_by, package }
        };
        Self { lacking: lacking.into_iter().map(one).collect(), ..self }
    }

    /// On stdout.
    pub fn print(&self, format: ShowFormat) -> Result<(), ErrorReport> {
        printer::print(&match format {
            ShowFormat::Json => list::json(self)?,
            ShowFormat::Table => self.table(),
        })
    }

    fn table(&self) -> String {
        let row = |layer: &Layer| {
            let what = if layer.written { "written" } else { "was here" };
            let (stored, raw) =
                (ByteSize(layer.bytes).to_string(), ByteSize(layer.raw_bytes).to_string());
            vec![Some(layer.name.clone()), Some(stored), Some(raw), Some(what.to_owned())]
        };
        let rows: Vec<_> = self.layers.iter().map(row).collect();
        draw(&["layer", ">stored", ">raw", ""], &rows, Layout::unlimited())
    }
}
