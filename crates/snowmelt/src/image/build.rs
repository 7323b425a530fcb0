//! `image build`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::process::geteuid;
use snowmelt_control::server::FileLinks;
use snowmelt_image::build::{
    Base, BuildSettings, DebianCache, DebianPackages, LayerFolder, LeftOut, Libraries, Recipe,
    debian_package, left_out,
};
use snowmelt_image::exchange;
use snowmelt_image::source::{Access, OciLayout, PackOptions};
use snowmelt_image::{Converted, Options, Result, build};
use snowmelt_package::{Environment, Installer, Python};
use snowmelt_types::{Code, ErrorReport, Report};

use super::base::BaseImage;
use super::progress_watch::{ProgressWatch, WatchedOrigin, blocking};
use super::report::BuildReport;
use super::transfer::{amount, progress_callback, summary};
use super::{display_name, failure, layout, work};
use crate::args::{Content, ImageBuildArgs};
use crate::config::Config;
use crate::input;
use crate::terminal::{CommandOutcome, Printer, ProgressDisplay};

/// Default path of a model in the image.
const MODEL_PATH: &str = "/model";
/// Default path of code in the image.
const CODE_PATH: &str = "/app";

pub(super) fn build(args: &ImageBuildArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let began = Instant::now();
    let settings = settings(args)?;
    let contents = contents(args)?;
    let requirements = input::listed(&args.python, args.python_file.as_deref())?;
    if args.base.is_none()
        && args.debian.is_empty()
        && requirements.is_empty()
        && contents.is_empty()
    {
        let hint = "use --base, --debian, --python, --model or --code";
        return Err(option("the image has no content".to_owned()).hint(hint).into());
    }
    let store = layout(config).map_err(failure)?;
    let options = Options { block_size: args.block_size.unwrap_or_default(), ..Options::default() };
    let label = format!("building {}", display_name(&args.name));
    let (built, names, (missing, scripts), sent) =
        work(config, printer, &label, async |progress| {
            let base =
                BaseImage::find(args.base.as_ref(), &store, progress).await.map_err(reported)?;
            let packages = Packages::unpacked(&requirements, config, progress).await?;
            let libraries = packages.libraries()?;
            let (base, debian) =
                debian(args, &libraries, config, base, &store, options, progress).await?;
            let scripts = debian.as_ref().map(|part| left_out(&part.folder)).unwrap_or_default();
            let parts = debian.into_iter().chain(packages.parts(args)?).chain(contents).collect();
            let (built, names) = build_image(base, parts, settings, &store, options, progress)
                .await
                .map_err(reported)?;
            store.tag(&args.name.to_string(), &built.manifest).map_err(reported)?;
            let missing = libraries.missing(&store, &built.image).await.map_err(reported)?;
            let lacking = (missing, scripts);
            let Some(to) = &args.push else { return Ok((built, names, lacking, None)) };
            let on_progress = progress_callback(progress, "sending");
            let sent = exchange::push(&store, &built.image, to, &Access::own(), &on_progress)
                .await
                .map_err(reported)?;
            Ok::<_, ErrorReport>((built, names, lacking, Some(sent)))
        })?;
    give_to_server(config)?;
    if !missing.is_empty() {
        printer.warning(&missing_libraries(&missing));
    }
    if !scripts.is_empty() {
        printer.warning(&skipped_scripts(&scripts));
    }
    let name = display_name(&args.name);
    let pushed = sent
        .as_ref()
        .map(|sent| format!("; pushed: {}", amount(sent.blobs.len() as u64, sent.bytes)));
    let note = format!("{}{}", summary(&built, &name), pushed.unwrap_or_default());
    BuildReport::new(name, &built, &names, sent, began)
        .lacking(missing)
        .left_out(scripts)
        .print(args.output)?;
    printer.note(&note);
    Ok(0)
}

/// Gives what root has made in the state folder to the user of the server, who may be running and has
/// to read it.
fn give_to_server(config: &Config) -> Result<(), ErrorReport> {
    let state = &config.state.value;
    match &config.user {
        Some(user) if geteuid().is_root() && user.value.owns(state) => {
            user.value.own(state, FileLinks::Kept)
        }
        _ => Ok(()),
    }
}

/// The warning about libraries that packages need and the image does not have.
fn missing_libraries(missing: &[(String, String)]) -> ErrorReport {
    let named = missing.iter().map(|(library, by)| format!("{library} (needed by {by})"));
    let message = format!("the image lacks {}", named.collect::<Vec<_>>().join(", "));
    let packages: BTreeSet<_> = missing.iter().filter_map(|(it, _)| debian_package(it)).collect();
    let report = ErrorReport::new(Code::IMAGE_LIBRARY, message);
    match packages.is_empty() {
        true => report.hint("add them to the image, by a Debian package or with the code"),
        false => {
            let packages = packages.into_iter().collect::<Vec<_>>().join(",");
            report.hint(format!("add them: --debian {packages}"))
        }
    }
}

/// The warning about what scripts of Debian packages would have done.
fn skipped_scripts(left: &[LeftOut]) -> ErrorReport {
    let named = left.iter().map(|left| format!("{} ({})", left.package, left.commands.join(", ")));
    let message =
        format!("scripts of packages were not run: {}", named.collect::<Vec<_>>().join("; "));
    ErrorReport::new(Code::IMAGE_SCRIPTS, message).hint(
        "if a program misses what they make (users, folders, generated files), add it with --code, or \
         build on a --base in which the packages are installed",
    )
}

fn reported(error: impl Report) -> ErrorReport {
    error.report()
}

fn option(message: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, message)
}

fn settings(args: &ImageBuildArgs) -> Result<BuildSettings, ErrorReport> {
    let words = |text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let words = shlex::split(text).filter(|words| !words.is_empty());
        words.map(Some).ok_or_else(|| option(format!("`{text}` is not a command")))
    };
    let mut environment = args.environment.clone();
    let has_python = !args.python.is_empty() || args.python_file.is_some();
    // For a Python that is not Debian's. The user's own PYTHONPATH takes precedence.
    if let Some(path) = args.python_path.as_ref().filter(|_| has_python)
        && !environment.iter().any(|(name, _)| name == "PYTHONPATH")
    {
        environment.push(("PYTHONPATH".to_owned(), path.clone()));
    }
    Ok(BuildSettings {
        environment,
        entrypoint: words(&args.entrypoint)?,
        command: words(&args.command)?,
        working_folder: args.working_folder.clone(),
        user: args.user.clone(),
        ..BuildSettings::default()
    })
}

/// Models are below code, because code changes more often.
fn contents(args: &ImageBuildArgs) -> Result<Vec<LayerFolder>, ErrorReport> {
    let models = args.model.iter().map(|content| content_part("model", content, MODEL_PATH));
    let codes = args.code.iter().map(|content| content_part("code", content, CODE_PATH));
    models.chain(codes).collect()
}

fn content_part(kind: &str, content: &Content, default: &str) -> Result<LayerFolder, ErrorReport> {
    let folder = &content.folder;
    if !folder.is_dir() {
        let message = format!("the {kind} {} is not a folder", folder.display());
        return Err(option(message).hint("name a folder: FOLDER or FOLDER:/PATH/IN/THE/IMAGE"));
    }
    let at = content.at.as_deref().unwrap_or(default);
    let part = LayerFolder::content(folder, at).map_err(reported)?;
    Ok(LayerFolder { name: format!("{kind} {at}"), ..part })
}

/// The layer of Debian packages, from the cache if the same were resolved before.
async fn debian(
    args: &ImageBuildArgs,
    libraries: &Libraries,
    config: &Config,
    base_image: BaseImage,
    store: &OciLayout,
    options: Options,
    progress: &Arc<ProgressDisplay>,
) -> Result<(BaseImage, Option<LayerFolder>), ErrorReport> {
    if args.debian.is_empty() {
        return Ok((base_image, None));
    }
    let shelf = config.state.value.join("debian");
    let shelf = DebianCache::open(&shelf).map_err(reported)?;
    // Libraries that the wheels expect from the system are added.
    let mut names = args.debian.clone();
    let more = libraries
        .packages()
        .into_iter()
        .filter(|more| !args.debian.iter().any(|debian| debian == more));
    names.extend(more.map(str::to_owned));
    let refresh = args.refresh;
    let base = base_image.identity(progress).await.map_err(reported)?;
    let essential = matches!(base_image, BaseImage::Nothing);
    let requested = DebianPackages { names: &names, base: &base, essential, refresh };
    let (base_image, folder) = match shelf.get(&requested) {
        Some(folder) => (base_image, folder),
        None => {
            let (base_image, status) =
                base_image.with_status(store, options, progress).await.map_err(reported)?;
            progress.set_label(format!("fetching Debian packages {}", names.join(", ")));
            let fetch = move |watch: ProgressWatch| {
                let requested = DebianPackages { names: &names, base: &base, essential, refresh };
                shelf.fetch(&requested, status.as_deref(), &|what, bytes| watch.read(what, bytes))
            };
            (base_image, blocking(progress, fetch).await.map_err(reported)?)
        }
    };
    let name = format!("debian {}", args.debian.join(" "));
    Ok((base_image, Some(LayerFolder { name, ..LayerFolder::packages(&folder) })))
}

/// The installed Python packages, which stay unpacked until this is dropped.
struct Packages(Option<(Installer, Environment)>);

impl Packages {
    async fn unpacked(
        requirements: &[String],
        config: &Config,
        progress: &Arc<ProgressDisplay>,
    ) -> Result<Self, ErrorReport> {
        if requirements.is_empty() {
            return Ok(Self(None));
        }
        let state = &config.state.value;
        let named = config.python.as_ref().map(|python| python.value.as_path());
        let python = Python::discover(named, state).map_err(reported)?;
        let trusted = config.user.as_ref().map(|user| user.value.user);
        let packages = state.join("packages");
        let installer = Installer::trusting(packages, python, trusted).map_err(reported)?;
        let on_progress =
            |step: &snowmelt_package::InstallProgress| progress.set_label(step.to_string());
        let environment =
            installer.environment(requirements, &on_progress).await.map_err(reported)?;
        Ok(Self(Some((installer, environment))))
    }

    /// The libraries that the packages expect from the system.
    fn libraries(&self) -> Result<Libraries, ErrorReport> {
        let mut libraries = Libraries::default();
        let Some((installer, environment)) = &self.0 else { return Ok(libraries) };
        for wheel in &environment.wheels {
            libraries.add(&wheel.name.to_string(), &installer.files(wheel)).map_err(reported)?;
        }
        Ok(libraries)
    }

    /// The layers of the packages: one for each wheel, which all images with this wheel share.
    fn parts(&self, args: &ImageBuildArgs) -> Result<Vec<LayerFolder>, ErrorReport> {
        let Some((installer, environment)) = &self.0 else { return Ok(Vec::new()) };
        let default =
            format!("/usr/local/lib/python{}/dist-packages", installer.python().minor_version());
        let at = args.python_path.as_ref().unwrap_or(&default);
        let part = |wheel: &snowmelt_package::Wheel| {
            let part = LayerFolder::content(&installer.files(wheel), at).map_err(reported)?;
            Ok(LayerFolder { name: format!("python {} {}", wheel.name, wheel.version), ..part })
        };
        environment.wheels.iter().map(part).collect()
    }
}

/// Builds the image; returns it with the names of the added layers.
async fn build_image(
    base_image: BaseImage,
    mut parts: Vec<LayerFolder>,
    settings: BuildSettings,
    store: &OciLayout,
    options: Options,
    progress: &Arc<ProgressDisplay>,
) -> Result<(Converted, Vec<String>)> {
    if let BaseImage::Folder(folder) = &base_image {
        parts.insert(0, base_part(folder));
    }
    let store = store.clone();
    let run = move |watch: ProgressWatch| {
        let names = parts.iter().map(|part| part.name.clone()).collect();
        let on_progress = |what: &str, bytes| watch.read(what, bytes);
        let (origin, blocks);
        let base = match base_image {
            BaseImage::Nothing | BaseImage::Folder(_) => None,
            BaseImage::Origin(found) => {
                origin = WatchedOrigin::new(found, watch.clone());
                Some(Base::Origin(&origin))
            }
            BaseImage::Blocks(found) => {
                blocks = found;
                Some(Base::Blocks(&blocks.base))
            }
        };
        let recipe = Recipe { base, parts, settings };
        build::build_with_progress(&recipe, &store, options, &on_progress)
            .map(|built| (built, names))
    };
    blocking(progress, run).await
}

fn base_part(folder: &Path) -> LayerFolder {
    let name = "base".to_owned();
    let shape = PackOptions::default();
    LayerFolder { name, folder: PathBuf::from(folder), shape, identity: None }
}
