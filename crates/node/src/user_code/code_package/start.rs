//! A mounted code package as a unit that a node can start.
//!
//! Invariant: functions that share zygotes have one tenant and the same layers of wheels, so that
//! what a zygote sees is what each of them declares (SOCK 4.2).

use std::collections::BTreeSet;
use std::sync::Arc;

use snowmelt_image::build as layout;
use snowmelt_package::{Python, Runtime};
use snowmelt_types::{Digest, Tenant};

use super::OpenedPackage;
use crate::Unit;
use crate::import_cache::{CodeBinds, Packages, Want, ZygoteScope, ZygoteSource};
use crate::user_code::unit::{
    CODE, Forked, Own, PACKAGES, RUNTIME, RUNTIME_MODULES, WarmStart, base, base_digest, digest,
    set,
};

impl Unit {
    /// Makes the unit of a mounted code package. Its zygotes are shared with functions that have
    /// the same layers of wheels, and with no others: the kernel shows all layers or none.
    pub(crate) fn packed(
        tenant: &Tenant,
        opened: OpenedPackage,
        python: &Python,
        runtime: &Runtime,
    ) -> Self {
        let base_digest = base_digest(python, runtime);
        let layers = opened.layers.iter().map(Digest::as_str);
        let packages = Digest::of_parts(["code-package-1"].into_iter().chain(layers));
        // The socket of the daemon names the mount: zygotes on a mount that was given up are of no
        // use.
        let served_at = opened.image.socket.to_string_lossy().into_owned();
        let scope = ZygoteScope {
            tenant: tenant.clone(),
            base: Digest::of_parts([base_digest.as_str(), packages.as_str(), &served_at]),
        };
        let mut root = base(python, runtime);
        let base = base(python, runtime);
        let shown = opened.show(layout::PACKAGES, PACKAGES);
        if !opened.layers.is_empty() {
            root.image_binds.push(shown.clone());
        }
        let code = opened.show(layout::CODE, CODE);
        root.image_binds.push(code.clone());
        let OpenedPackage { contents, image, layers } = opened;
        let brought = contents.layers.iter().map(|wheels| {
            let modules = wheels.iter().flat_map(|wheel| &wheel.modules);
            Arc::new(modules.cloned().collect::<BTreeSet<_>>())
        });
        let image = Digest::of(&image.digest);
        let set = set(layers.into_iter().zip(brought).collect(), contents.modules, &image);
        let want = Want { scope, set };
        let digest = digest(&want, &packages, &image);
        let source = ZygoteSource {
            base,
            packages: Packages::Mounted(shown),
            code: CodeBinds { binds: Vec::new(), images: vec![code] },
            python: python.executable.clone(),
            python_path: vec![RUNTIME.to_owned(), PACKAGES.to_owned()],
            runtime_modules: RUNTIME_MODULES.map(str::to_owned).to_vec(),
        };
        let start = WarmStart::Zygote(Box::new(Forked { want, source }));
        Self { digest, tenant: tenant.clone(), start, root, own: Own::default() }
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_sandbox::MountedImage;

    use super::*;
    use crate::user_code::code_package::label::{Contents, MadeFor, PackedWheel};

    fn opened_at(socket: &str, image: &str, layers: &[&str], python: &Python) -> OpenedPackage {
        let opened = opened(image, layers, python);
        let image = MountedImage { socket: socket.into(), ..opened.image };
        OpenedPackage { image, ..opened }
    }

    fn opened(image: &str, layers: &[&str], python: &Python) -> OpenedPackage {
        let wheel = |name: &&str| PackedWheel {
            name: (*name).to_owned(),
            version: "1".to_owned(),
            modules: vec![(*name).to_owned(), format!("_{name}")],
        };
        OpenedPackage {
            contents: Contents {
                made_for: MadeFor::from(python),
                handler: "handler".to_owned(),
                modules: layers.iter().map(|name| (*name).to_owned()).collect(),
                layers: layers.iter().map(|name| vec![wheel(name)]).collect(),
            },
            image: MountedImage { socket: "/socket".into(), digest: image.to_owned() },
            layers: layers.iter().map(Digest::of).collect(),
        }
    }

    #[test]
    fn zygotes_are_for_one_tenant_and_the_same_layers() {
        let state = tempfile::tempdir().unwrap();
        let python = Python::discover(None, state.path()).unwrap();
        let runtime = snowmelt_package::runtime_files(state.path(), &python).unwrap();
        let unit = |tenant: &str, image: &str, layers: &[&str]| {
            let tenant = tenant.parse().unwrap();
            Unit::packed(&tenant, opened(image, layers, &python), &python, &runtime)
        };
        let want = |unit: &Unit| match &unit.start {
            WarmStart::Zygote(forked) => forked.want.clone(),
            WarmStart::Program(_) => panic!("it is forked"),
        };
        let one = unit("a", "sha256:1", &["numpy", "six"]);
        let same = unit("a", "sha256:2", &["numpy", "six"]);
        assert_eq!(want(&one), want(&same));
        assert_ne!(one.digest, same.digest, "instances are of one code");
        let wheels = want(&one).set.wheels;
        let brought: Vec<_> = wheels.values().flat_map(|names| names.iter()).collect();
        assert_eq!(brought.len(), 4, "every name of every wheel");
        for other in [
            unit("b", "sha256:1", &["numpy", "six"]),
            unit("a", "sha256:1", &["numpy"]),
            unit("a", "sha256:1", &["six", "numpy"]),
            unit("a", "sha256:1", &[]),
        ] {
            assert_ne!(want(&one).scope, want(&other).scope);
        }
        let again = opened_at("/socket-2", "sha256:1", &["numpy", "six"], &python);
        let again = Unit::packed(&"a".parse().unwrap(), again, &python, &runtime);
        assert_ne!(want(&one).scope, want(&again).scope, "the mount is another one");
        assert_ne!(one.digest, again.digest);
        let folders = |unit: &Unit| {
            let shown = unit.root.image_binds.iter();
            shown.map(|bind| bind.folder.clone()).collect::<Vec<_>>()
        };
        assert_eq!(folders(&one), ["packages", "code"]);
        assert_eq!(folders(&unit("a", "sha256:1", &[])), ["code"], "there are no packages");
        assert_eq!(one.image().unwrap(), "sha256:1");
    }
}
