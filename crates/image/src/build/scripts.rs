//! Does the work of the scripts of Debian packages. A build does not run the scripts: they would
//! run as root, and most of their work is for a machine. The links that they make by
//! `update-alternatives` and `ln -s`, `/bin/sh` and the list of users are made here. The other
//! commands that they call are listed.
//!
//! Invariant: nothing is written outside of the folder, whatever links the packages contain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::commands::{Alternative, commands};
use crate::{Error, Result};

/// The scripts that run when a package is installed.
const SCRIPTS: [&str; 2] = ["preinst", "postinst"];

/// Commands that change what a program finds; other commands of scripts do not matter in an image.
const EFFECTS: [&str; 27] = [
    "addgroup",
    "adduser",
    "chgrp",
    "chmod",
    "chown",
    "cp",
    "dpkg-divert",
    "dpkg-statoverride",
    "fc-cache",
    "glib-compile-schemas",
    "groupadd",
    "gtk-update-icon-cache",
    "install",
    "ln",
    "locale-gen",
    "localedef",
    "mkdir",
    "mktexlsr",
    "mv",
    "setcap",
    "touch",
    "ucf",
    "update-alternatives",
    "update-ca-certificates",
    "update-mime-database",
    "useradd",
    "usermod",
];

/// Packages whose scripts do only work that is done here, or that matters only on a machine that is
/// upgraded.
const DONE: [&str; 1] = ["libc6"];

/// Files that scripts copy if they do not exist.
const COPIED: [(&str, &str); 2] = [
    ("/usr/share/base-passwd/passwd.master", "/etc/passwd"),
    ("/usr/share/base-passwd/group.master", "/etc/group"),
];

/// The commands that a build leaves out of the scripts of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The name of the package.
    pub package: String,
    /// The commands that were not run, such as `adduser`.
    pub commands: Vec<String>,
}

/// Does in the folder of unpacked packages what their scripts would have done; `controls` are the
/// folders of their scripts. Returns the commands that are left out.
pub(super) fn finish(root: &Path, controls: &[PathBuf]) -> Result<Vec<LeftOut>> {
    let mut alternatives: BTreeMap<String, Alternative> = BTreeMap::new();
    let mut links = Vec::new();
    let mut left = Vec::new();
    for control in controls {
        let mut calls = BTreeSet::new();
        for command in SCRIPTS.iter().flat_map(|name| commands(&script(&control.join(name)))) {
            match Alternative::of(&command) {
                Some(found) => {
                    let known = alternatives.entry(found.name.clone());
                    let known = known.or_insert_with(|| found.clone());
                    if found.priority > known.priority {
                        *known = found;
                    }
                }
                None => match link(&command) {
                    Some(found) => links.push(found),
                    None => calls.extend(effect(&command)),
                },
            }
        }
        let about = script(&control.join("control"));
        let package = package(&about);
        if !calls.is_empty() && !is_of_base(&about) && !DONE.contains(&&*package) {
            left.push(LeftOut { package, commands: calls.into_iter().collect() });
        }
    }
    make(root, alternatives.values()).map_err(Error::io("complete", root))?;
    for (to, at) in links.iter().filter(|(to, _)| exists(root, to)) {
        add_link(root, at, to).map_err(Error::io("complete", root))?;
    }
    Ok(left)
}

fn make<'a>(root: &Path, alternatives: impl Iterator<Item = &'a Alternative>) -> io::Result<()> {
    for Alternative { name, link, path, slaves, .. } in alternatives {
        let slaves = slaves.iter().map(|[link, name, path]| (link, name, path));
        for (link, name, path) in std::iter::once((link, name, path)).chain(slaves) {
            if exists(root, path) {
                let chosen = format!("/etc/alternatives/{name}");
                add_link(root, &chosen, path)?;
                add_link(root, link, &chosen)?;
            }
        }
    }
    for folder in ["/bin", "/usr/bin"] {
        if exists(root, &format!("{folder}/dash")) {
            add_link(root, &format!("{folder}/sh"), "dash")?;
        }
    }
    for (from, to) in COPIED {
        if let (Some(from), Some(to)) = (inside(root, from), inside(root, to))
            && from.is_file()
            && to.symlink_metadata().is_err()
        {
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Adds a link, unless there is a file at its place already.
fn add_link(root: &Path, at: &str, to: &str) -> io::Result<()> {
    let Some(at) = inside(root, at) else { return Ok(()) };
    fs::create_dir_all(at.parent().unwrap_or(root))?;
    match symlink(to, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn exists(root: &Path, path: &str) -> bool {
    inside(root, path).is_some_and(|path| path.symlink_metadata().is_ok())
}

/// Returns the place in the folder of a path of the image; `None` if a link leads elsewhere on the
/// way.
fn inside(root: &Path, path: &str) -> Option<PathBuf> {
    let mut at = root.to_owned();
    let mut components = Path::new(path).strip_prefix("/").ok()?.components().peekable();
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else { return None };
        at.push(name);
        let is_link = at.symlink_metadata().is_ok_and(|found| found.is_symlink());
        if is_link && components.peek().is_some() {
            return None;
        }
    }
    Some(at)
}

/// Returns the target and the place of a symbolic link, if the command is `ln -s` with two absolute
/// paths.
fn link(command: &[String]) -> Option<(String, String)> {
    let (name, arguments) = command.split_first()?;
    let [options @ .., to, at] = arguments else { return None };
    let is_symbolic = options.iter().all(|option| option.starts_with('-'))
        && options.iter().any(|option| option == "--symbolic" || is_short(option, 's'));
    let is_whole = |path: &String| path.starts_with('/') && !path.contains(['$', '*', '?', '`']);
    let is_link = name.rsplit('/').next() == Some("ln") && is_symbolic;
    (is_link && is_whole(to) && is_whole(at) && !at.ends_with('/'))
        .then(|| (to.clone(), at.clone()))
}

fn is_short(option: &str, letter: char) -> bool {
    !option.starts_with("--") && option.contains(letter)
}

/// Returns the name of the command, if it changes what programs find.
fn effect(command: &[String]) -> Option<String> {
    let name = command.first()?.rsplit('/').next()?;
    // That an earlier version is removed has no effect in an image.
    let is_done =
        name == "update-alternatives" && !command.iter().any(|command| command == "--install");
    (EFFECTS.contains(&name) && !is_done).then(|| name.to_owned())
}

/// Reads the text of a script; empty if there is none, or if it is a program.
fn script(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns whether every image has a package. The commands that the scripts of such a package run
/// for a machine are not to be listed each time.
fn is_of_base(control: &str) -> bool {
    control.lines().any(|line| matches!(line, "Essential: yes" | "Priority: required"))
}

/// Returns the name of a package, from its control file.
fn package(control: &str) -> String {
    let name = control.lines().find_map(|line| line.strip_prefix("Package: "));
    name.unwrap_or("a package").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(folder: &Path, package: &str, postinst: &str) -> PathBuf {
        let own = folder.join(package);
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("control"), format!("Package: {package}\nVersion: 1\n")).unwrap();
        fs::write(own.join("postinst"), postinst).unwrap();
        own
    }

    fn write(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_alternative_of_the_highest_priority_and_the_shell_are_there() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        let of = scratch.path();
        for path in ["usr/lib/blas/libblas.so.3", "usr/lib/fast/libblas.so.3", "bin/dash"] {
            write(&root, path);
        }
        let install = |path: &str, priority: u32| {
            format!(
                "#!/bin/sh\nset -e\nif [ \"$1\" = configure ]; then\n  update-alternatives --install \
                 /usr/lib/libblas.so.3 \\\n libblas.so.3-x /usr/lib/{path}/libblas.so.3 {priority} \
                 \\\n --slave /usr/lib/none none /usr/lib/none.1\nfi\n\
                 update-alternatives --remove old /usr/lib/old\n"
            )
        };
        let controls = [
            control(of, "libblas3", &install("blas", 10)),
            control(of, "libfast", &install("fast", 40)),
            control(of, "libgone", &install("gone", 30)),
            control(of, "nginx", "adduser --system www && /bin/chown www /var || true\nldconfig\n"),
            control(of, "base", "chown root /var\n"),
            control(
                of,
                "web",
                "[ -e /x ] || ln -sf /bin/dash /etc/web/default\n\
                ln -s /gone /etc/web/gone; ln -s $to /etc/web/odd\n",
            ),
            control(of, "odd", "update-alternatives --install /usr/bin/odd odd $path 5\n"),
        ];
        fs::write(of.join("base/control"), "Package: base\nEssential: yes\n").unwrap();
        let left = finish(&root, &controls).unwrap();
        let to = |path: &str| fs::read_link(root.join(path)).unwrap().display().to_string();
        assert_eq!(to("usr/lib/libblas.so.3"), "/etc/alternatives/libblas.so.3-x");
        assert_eq!(to("etc/alternatives/libblas.so.3-x"), "/usr/lib/fast/libblas.so.3");
        assert_eq!(to("bin/sh"), "dash");
        assert!(fs::symlink_metadata(root.join("usr/lib/none")).is_err(), "it leads nowhere");
        assert_eq!(to("etc/web/default"), "/bin/dash");
        assert!(fs::symlink_metadata(root.join("etc/web/gone")).is_err(), "it leads nowhere");
        let left: Vec<_> =
            left.iter().map(|left| (&*left.package, left.commands.join(" "))).collect();
        let odd = ("odd", "update-alternatives".to_owned());
        let web = ("web", "ln".to_owned());
        assert_eq!(left, [("nginx", "adduser chown".to_owned()), web, odd]);
        finish(&root, &controls).unwrap();
    }

    #[test]
    fn nothing_is_written_through_links_of_packages() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        let outside = scratch.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        write(&root, "usr/bin/it");
        symlink(&outside, root.join("etc")).unwrap();
        symlink(&outside, root.join("usr/out")).unwrap();
        let install = |link: &str, name: &str| {
            format!("update-alternatives --install {link} {name} /usr/bin/it 1\n")
        };
        let script = install("/usr/out/a", "a") + &install("/usr/../../b", "b");
        finish(&root, &[control(scratch.path(), "bad", &script)]).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!scratch.path().join("b").exists());
    }
}
