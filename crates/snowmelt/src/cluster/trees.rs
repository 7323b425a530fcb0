//! `snowmelt tree`: from which host each host reads the images and files of functions.

use std::collections::BTreeMap;

use snowmelt_api::{ImageTree, StripePlace, TreeHost};
use snowmelt_types::{ByteSize, HostName};

use crate::args::TreeArgs;
use crate::config::Config;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::server::NO_TREES;
use crate::terminal::{CommandOutcome, Printer};

/// Shows the trees of hosts through which images spread, or what each host reads without them.
///
/// # Errors
/// `SM-0503` if no platform is running; `SM-0220` if there is no such function and no such image.
pub fn run(args: &TreeArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let name = args.name.as_deref();
    let (trees, status) = platform::with(platform, printer, async |client, _| {
        tokio::try_join!(client.trees(name), client.status())
    })?;
    if !status.image_trees {
        printer.note(NO_TREES);
    }
    if trees.is_empty() {
        printer.note(&match name {
            Some(name) => format!("no host of a cluster has used an image or a file of {name} yet"),
            None => "no host of a cluster has used an image of a registry or a file yet".to_owned(),
        });
    }
    let headings = [
        "image",
        "stripe",
        "host",
        "parent",
        ">here",
        ">from parents",
        ">from registry",
        ">to children",
        ">failures",
        ">wrong blocks",
    ];
    let rows: Vec<_> = trees.iter().flat_map(tree_rows).collect();
    list::print(args.output, &headings, &rows, &trees)?;
    Ok(0)
}

/// The rows of a tree, with each stripe as a tree of its own. The bytes are those of all stripes,
/// so they are shown in the first stripe only.
fn tree_rows(tree: &ImageTree) -> Vec<Vec<String>> {
    let stripes = tree.hosts.first().map_or(0, |host| host.stripes.len());
    let row = |stripe: usize, host: &TreeHost, place: &StripePlace| {
        let parent = place.parent.as_ref();
        let mut row = vec![
            tree.image.clone(),
            format!("{} of {stripes}", stripe + 1),
            format!("{}{}", "  ".repeat(place.depth as usize), host.host),
            parent.map_or_else(|| "registry".to_owned(), HostName::to_string),
        ];
        row.extend(match &host.bytes {
            Some(bytes) if stripe == 0 => {
                let here = match bytes.of {
                    0 => "-".to_owned(),
                    of => format!("{}% of {}", bytes.here * 100 / of, ByteSize(of)),
                };
                let moved = [bytes.from_parents, bytes.from_registry, bytes.to_children];
                let counts = [bytes.failures, bytes.wrong_blocks];
                let moved = moved.iter().map(|bytes| ByteSize(*bytes).to_string());
                let counts = counts.iter().map(u64::to_string);
                std::iter::once(here).chain(moved).chain(counts).collect()
            }
            _ => vec!["-".to_owned(); 6],
        });
        row
    };
    let below =
        |stripe: usize| depth_first(tree, stripe).into_iter().map(move |host| (stripe, host));
    let rows = (0..stripes).flat_map(below);
    rows.map(|(stripe, (host, place))| row(stripe, host, place)).collect()
}

/// The hosts of a stripe, each followed by all hosts below it.
fn depth_first(tree: &ImageTree, stripe: usize) -> Vec<(&TreeHost, &StripePlace)> {
    let placed = tree.hosts.iter().filter_map(|host| Some((host, host.stripes.get(stripe)?)));
    let mut children: BTreeMap<Option<&HostName>, Vec<_>> = BTreeMap::new();
    for (host, place) in placed {
        children.entry(place.parent.as_ref()).or_default().push((host, place));
    }
    let mut rows = Vec::new();
    let mut next = children.remove(&None).unwrap_or_default();
    while let Some((host, place)) = next.pop() {
        rows.push((host, place));
        let below = children.remove(&Some(&host.host)).unwrap_or_default();
        next.extend(below.into_iter().rev());
    }
    rows
}
