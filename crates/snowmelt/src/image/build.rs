//! `image build`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use snowmelt_image::build::{
    Base, DebianPackages, DebianShelf, Libraries, Part, Recipe, Settings, debian_package,
};
use snowmelt_image::exchange;
use snowmelt_image::source::{Layout, Shape};
use snowmelt_image::{Converted, Options, Result, build};
use snowmelt_package::{Environment, Installer, Python};
use snowmelt_types::{Code, ErrorReport, Report};

use super::below::Below;
use super::made::Made;
use super::transfer::{amount, summary, told};
use super::watched::{Watch, WatchedOrigin, blocking};
use super::{failure, layout, shown, work_of_several};
use crate::args::{Content, ImageBuildArgs};
use crate::config::Config;
use crate::failure::Outcome;
use crate::input;
use crate::printer::Printer;
use crate::progress::Progress;

/// Where a model stands unless the user says so.
const MODEL: &str = "/model";
/// Where code stands unless the user says so.
const CODE: &str = "/app";

pub(super) fn build(args: &ImageBuildArgs, config: &Config, printer: Printer) -> Outcome {
    let began = Instant::now();
    let settings = settings(args)?;
    let contents = contents(args)?;
    let requirements = input::listed(&args.python, args.python_file.as_deref())?;
    if args.base.is_none()
        && args.debian.is_empty()
        && requirements.is_empty()
        && contents.is_empty()
    {
        let hint = "give --base, --debian, --python, --model or --code";
        return Err(option("an image of nothing".to_owned()).hint(hint).into());
    }
    let store = layout(config).map_err(failure)?;
    let options = Options { block_size: args.block_size.unwrap_or_default(), ..Options::default() };
    let label = format!("building {}", shown(&args.name));
    let (built, names, lacking, sent) =
        work_of_several(config, printer, &label, async |progress| {
            let below =
                Below::find(args.base.as_ref(), &store, progress).await.map_err(reported)?;
            let packages = Packages::unpacked(&requirements, config, progress).await?;
            let libraries = packages.libraries()?;
            let (below, debian) =
                debian((args, &libraries), config, below, (&store, options), progress).await?;
            let parts = debian.into_iter().chain(packages.parts(args)?).chain(contents).collect();
            let (built, names) = pressed((below, parts, settings), (&store, options), progress)
                .await
                .map_err(reported)?;
            store.tag(&args.name.to_string(), &built.manifest).map_err(reported)?;
            let lacking = libraries.lacking(&store, &built.image).await.map_err(reported)?;
            let Some(to) = &args.push else { return Ok((built, names, lacking, None)) };
            let told = told(progress, "sending");
            let sent = exchange::push(&store, &built.image, to, &told).await.map_err(reported)?;
            Ok::<_, ErrorReport>((built, names, lacking, Some(sent)))
        })?;
    if !lacking.is_empty() {
        printer.warning(&lacks(&lacking));
    }
    let name = shown(&args.name);
    let pushed = sent.as_ref().map(|sent| format!("; pushed: {}", amount(sent)));
    let note = format!("{}{}", summary(&built, &name), pushed.unwrap_or_default());
    Made::new(name, &built, &names, sent, began).lacking(lacking).print(args.output)?;
    printer.note(&note);
    Ok(0)
}

/// What packages need and the image does not have.
fn lacks(lacking: &[(String, String)]) -> ErrorReport {
    let told = lacking.iter().map(|(library, by)| format!("{library} (needed by {by})"));
    let message = format!("the image lacks {}", told.collect::<Vec<_>>().join(", "));
    let packages: BTreeSet<_> = lacking.iter().filter_map(|(it, _)| debian_package(it)).collect();
    let report = ErrorReport::new(Code::IMAGE_LIBRARY, message);
    match packages.is_empty() {
        true => report.hint("put them into the image, with a package of Debian or with the code"),
        false => {
            let packages = packages.into_iter().collect::<Vec<_>>().join(",");
            report.hint(format!("add them: --debian {packages}"))
        }
    }
}

fn reported(error: impl Report) -> ErrorReport {
    error.report()
}

fn option(message: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, message)
}

fn settings(args: &ImageBuildArgs) -> Result<Settings, ErrorReport> {
    let words = |text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let words = shlex::split(text).filter(|words| !words.is_empty());
        words.map(Some).ok_or_else(|| option(format!("`{text}` is not a command")))
    };
    let mut environment = args.environment.clone();
    let has_python = !args.python.is_empty() || args.python_file.is_some();
    // For a Python that is not Debian's; the user's own word counts more.
    if let Some(path) = args.python_path.as_ref().filter(|_| has_python)
        && !environment.iter().any(|(name, _)| name == "PYTHONPATH")
    {
        environment.push(("PYTHONPATH".to_owned(), path.clone()));
    }
    Ok(Settings {
        environment,
        entrypoint: words(&args.entrypoint)?,
        command: words(&args.command)?,
        working_folder: args.working_folder.clone(),
        user: args.user.clone(),
        ..Settings::default()
    })
}

/// Models below code: code changes more often.
fn contents(args: &ImageBuildArgs) -> Result<Vec<Part>, ErrorReport> {
    let models = args.model.iter().map(|content| content_part("model", content, MODEL));
    let codes = args.code.iter().map(|content| content_part("code", content, CODE));
    models.chain(codes).collect()
}

fn content_part(kind: &str, content: &Content, usual: &str) -> Result<Part, ErrorReport> {
    let folder = &content.folder;
    if !folder.is_dir() {
        let message = format!("the {kind} {} is no folder", folder.display());
        return Err(option(message).hint("name a folder: FOLDER or FOLDER:/PATH/IN/THE/IMAGE"));
    }
    let at = content.at.as_deref().unwrap_or(usual);
    let part = Part::content(folder, at).map_err(reported)?;
    Ok(Part { name: format!("{kind} {at}"), ..part })
}

/// The layer of Debian's packages, from the shelf if the same were asked for before.
async fn debian(
    (args, libraries): (&ImageBuildArgs, &Libraries),
    config: &Config,
    below: Below,
    (store, options): (&Layout, Options),
    progress: &Arc<Progress>,
) -> Result<(Below, Option<Part>), ErrorReport> {
    if args.debian.is_empty() {
        return Ok((below, None));
    }
    let shelf = config.state.value.join("debian");
    let shelf = DebianShelf::open(&shelf).map_err(reported)?;
    // Libraries that the wheels leave to the system come along.
    let mut names = args.debian.clone();
    let more =
        libraries.packages().into_iter().filter(|more| !args.debian.iter().any(|it| it == more));
    names.extend(more.map(str::to_owned));
    let refresh = args.refresh;
    let base = below.identity(progress).await.map_err(reported)?;
    let asked = DebianPackages { names: &names, base: &base, refresh };
    let (below, folder) = match shelf.known(&asked) {
        Some(folder) => (below, folder),
        None => {
            let (below, status) =
                below.with_status(store, options, progress).await.map_err(reported)?;
            progress.doing(format!("fetching {} of Debian", names.join(", ")));
            let fetch = move |watch: Watch| {
                let asked = DebianPackages { names: &names, base: &base, refresh };
                shelf.fetch(&asked, status.as_deref(), &|what, bytes| watch.read(what, bytes))
            };
            (below, blocking(progress, fetch).await.map_err(reported)?)
        }
    };
    let name = format!("debian {}", args.debian.join(" "));
    Ok((below, Some(Part { name, ..Part::packages(&folder) })))
}

/// Packages of Python that stay unpacked as long as this is held.
struct Packages(Option<(Installer, Environment)>);

impl Packages {
    async fn unpacked(
        requirements: &[String],
        config: &Config,
        progress: &Arc<Progress>,
    ) -> Result<Self, ErrorReport> {
        if requirements.is_empty() {
            return Ok(Self(None));
        }
        let state = &config.state.value;
        let named = config.python.as_ref().map(|python| python.value.as_path());
        let python = Python::discover(named, state).map_err(reported)?;
        let installer = Installer::new(state.join("packages"), python).map_err(reported)?;
        let told = |step: &snowmelt_package::Progress| progress.doing(step.to_string());
        let environment = installer.environment(requirements, &told).await.map_err(reported)?;
        Ok(Self(Some((installer, environment))))
    }

    /// What they leave to the system.
    fn libraries(&self) -> Result<Libraries, ErrorReport> {
        let mut libraries = Libraries::default();
        let Some((installer, environment)) = &self.0 else { return Ok(libraries) };
        for wheel in &environment.wheels {
            libraries.add(&wheel.name.to_string(), &installer.files(wheel)).map_err(reported)?;
        }
        Ok(libraries)
    }

    /// A layer for each wheel: images that have one in common share it.
    fn parts(&self, args: &ImageBuildArgs) -> Result<Vec<Part>, ErrorReport> {
        let Some((installer, environment)) = &self.0 else { return Ok(Vec::new()) };
        let usual =
            format!("/usr/local/lib/python{}/dist-packages", installer.python().minor_version());
        let at = args.python_path.as_ref().unwrap_or(&usual);
        let part = |wheel: &snowmelt_package::Wheel| {
            let part = Part::content(&installer.files(wheel), at).map_err(reported)?;
            Ok(Part { name: format!("python {} {}", wheel.name, wheel.version), ..part })
        };
        environment.wheels.iter().map(part).collect()
    }
}

/// Builds, and says what each added layer is called.
async fn pressed(
    (below, mut parts, settings): (Below, Vec<Part>, Settings),
    (store, options): (&Layout, Options),
    progress: &Arc<Progress>,
) -> Result<(Converted, Vec<String>)> {
    if let Below::Folder(folder) = &below {
        parts.insert(0, base_part(folder));
    }
    let store = store.clone();
    let press = move |watch: Watch| {
        let names = parts.iter().map(|part| part.name.clone()).collect();
        let told = |what: &str, bytes| watch.read(what, bytes);
        let (origin, blocks);
        let base = match below {
            Below::Nothing | Below::Folder(_) => None,
            Below::Origin(found) => {
                origin = WatchedOrigin::new(found, watch.clone());
                Some(Base::Origin(&origin))
            }
            Below::Blocks(found) => {
                blocks = found;
                Some(Base::Blocks(&blocks.base))
            }
        };
        let recipe = Recipe { base, parts, settings };
        build::build_watched(&recipe, &store, options, &told).map(|built| (built, names))
    };
    blocking(progress, press).await
}

fn base_part(folder: &Path) -> Part {
    let (name, shape) = ("base".to_owned(), Shape::default());
    Part { name, folder: PathBuf::from(folder), shape, identity: None }
}
