//! Removes what nothing uses: for a tenant of its own, for an operator of all.
//!
//! Invariants: what a deployed function, a registered one, a running instance or an engine uses
//! stays, by the locks that its users hold, so other processes on the same state folder are safe
//! too. Each part is removed in steps that leave whole things when the server is killed between
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{PlatformPruneRequest, PruneRequest, Pruned, PrunedPart};
use snowmelt_node::{CodeStore, RemovedFiles};
use snowmelt_types::{Code, Digest, ErrorReport, Report, Tenant};

use super::GatewayPlatform;
use crate::access::identity::Identity;
use crate::functions::preparation::code_of;
use crate::state::records::FunctionRecord;
use crate::udfs::blocking;

/// Code and files that were used within this time may belong to a function that is being deployed.
const LATELY: Duration = Duration::from_secs(600);

/// Removes what nothing uses, or only counts it, in a task of its own: a client that disconnects
/// does not end it half-way. Refuses the second one of an owner.
pub(crate) async fn prune(
    platform: Arc<GatewayPlatform>,
    identity: Identity,
    request: PlatformPruneRequest,
) -> Result<Vec<PrunedPart>, ErrorReport> {
    if identity.is_limited() {
        let message = "a key that is limited to names removes nothing of all functions";
        return Err(ErrorReport::new(Code::RIGHT_MISSING, message)
            .hint("ask with a key of the tenant that has no limit"));
    }
    let claim = platform.prunings.claim(identity.only())?;
    let work = async move {
        let _turn = claim.turn().await;
        remove(&platform, &identity, &request).await
    };
    let failed = |error| ErrorReport::new(Code::INTERNAL, format!("cannot remove: {error}"));
    tokio::spawn(work).await.unwrap_or_else(|error| Err(failed(error)))
}

async fn remove(
    platform: &GatewayPlatform,
    identity: &Identity,
    request: &PlatformPruneRequest,
) -> Result<Vec<PrunedPart>, ErrorReport> {
    let of = identity.only();
    let dry = request.dry_run;
    let records = platform.functions.records();
    let (versions, bytes) = platform.udfs.prune_versions(of, dry).await?;
    let mut parts = vec![part("versions", versions, bytes)];
    let (results, bytes) = records.prune_calls(of, request.results, dry).await?;
    parts.push(part("results", results, bytes));
    parts.push(files(platform, of, dry).await?);
    if of.is_none() {
        let deployed = records.all_functions().await?;
        parts.push(code(platform, &deployed, dry).await?);
        parts.push(packages(platform, &deployed, dry).await?);
        parts.extend(images(platform, &deployed, dry).await?);
    }
    Ok(parts)
}

fn part(name: &str, items: u64, bytes: u64) -> PrunedPart {
    PrunedPart { name: name.to_owned(), items, bytes, kept: None }
}

/// Makes a part of which nothing is removed, with the reason.
fn kept(name: &str, why: String) -> PrunedPart {
    PrunedPart { kept: Some(why), ..part(name, 0, 0) }
}

async fn files(
    platform: &GatewayPlatform,
    of: Option<&Tenant>,
    dry: bool,
) -> Result<PrunedPart, ErrorReport> {
    let used = platform.udfs.used_files().await?;
    let node = platform.node.clone();
    let of = of.cloned();
    let prune = move || node.files().prune(&used, LATELY, of.as_ref(), dry);
    let RemovedFiles { files, bytes } =
        blocking(move || prune().map_err(|error| error.report())).await?;
    Ok(part("files", files, bytes))
}

async fn code(
    platform: &GatewayPlatform,
    deployed: &[FunctionRecord],
    dry: bool,
) -> Result<PrunedPart, ErrorReport> {
    let of = |one: &FunctionRecord| [one.files.clone(), CodeStore::digest(&one.spec.code)];
    let used: BTreeSet<Digest> = deployed.iter().flat_map(of).flatten().collect();
    let node = platform.node.clone();
    let sweep = move || node.preparation().codes().sweep(&used, LATELY, dry);
    let RemovedFiles { files, bytes } =
        blocking(move || sweep().map_err(|error| error.report())).await?;
    Ok(part("code", files, bytes))
}

/// Removes packages that nothing uses. Functions that do not run now hold no packages, so these are
/// held here.
async fn packages(
    platform: &GatewayPlatform,
    deployed: &[FunctionRecord],
    dry: bool,
) -> Result<PrunedPart, ErrorReport> {
    let node = &platform.node;
    let held = async {
        let (mut held, (_, analysis)) = (Vec::new(), platform.functions.parts());
        let mut wanted = platform.udfs.requirements().await?;
        for record in deployed {
            wanted.insert(code_of(node, analysis, record).await?.packages);
        }
        for packages in &wanted {
            held.push(
                node.preparation().hold_packages(packages).await.map_err(|error| error.report())?,
            );
        }
        Ok::<_, ErrorReport>(held)
    };
    let held = match held.await {
        Ok(held) => held,
        Err(error) => {
            let why = format!("what functions need is not known: {}", error.message);
            return Ok(kept("packages", why));
        }
    };
    let removed = node.preparation().prune_packages(dry).await.map_err(|error| error.report())?;
    drop(held);
    let items = removed.environments + removed.wheels;
    Ok(part("packages", items as u64, removed.freed.bytes()))
}

async fn images(
    platform: &GatewayPlatform,
    deployed: &[FunctionRecord],
    dry: bool,
) -> Result<Vec<PrunedPart>, ErrorReport> {
    let users: Vec<&str> = deployed
        .iter()
        .filter(|one| one.spec.image.is_some() || one.packed.is_some())
        .map(|one| one.spec.name.as_str())
        .collect();
    let registered = platform.udfs.uses_images().await?;
    let images = platform.images.of_all_tenants();
    let pinned = platform.images.deployed_packages().await?;
    let request = PruneRequest { dry_run: dry, blocks: false };
    let removed = blocking(move || {
        images
            .iter()
            .try_fold(Pruned::default(), |sum, one| Ok(sum.plus(one.prune(&request, &pinned)?)))
    });
    let removed = removed.await;
    let mut parts = Vec::new();
    match removed {
        Ok(removed) => {
            parts.push(part("images", removed.blobs, removed.bytes));
            parts.push(part("raw", removed.raw_files, removed.raw_bytes));
        }
        // An image is being converted or fetched.
        Err(error) => parts.push(kept("images", error.message)),
    }
    // The registry may not have what a function would have to read again.
    if let Some(name) = users.first().copied().or(registered.as_deref()) {
        parts.push(kept("blocks", format!("`{name}` runs in an image")));
        return Ok(parts);
    }
    let images = platform.images.clone();
    parts.push(match blocking(move || images.prune_blocks(dry)).await {
        Ok(bytes) => part("blocks", u64::from(bytes > 0), bytes),
        Err(error) => kept("blocks", error.message),
    });
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use snowmelt_types::Role;

    use super::*;
    use crate::access::identity::KeyHolder;
    use crate::platform::rig::idle_platform;
    use crate::state::records::tests::call;

    fn identity(tenant: &str) -> Identity {
        let tenant = tenant.parse().unwrap();
        let holder = KeyHolder { tenant, role: Role::Developer, grants: Vec::new(), key: None };
        Identity::of_key(holder, &HeaderMap::new()).unwrap()
    }

    #[tokio::test]
    async fn a_key_that_is_limited_to_names_removes_nothing() {
        let idle = idle_platform().await;
        let tenant = "acme".parse().unwrap();
        let grants = vec!["f".parse().unwrap()];
        let holder = KeyHolder { tenant, role: Role::Developer, grants, key: None };
        let limited = Identity::of_key(holder, &HeaderMap::new()).unwrap();
        let request = PlatformPruneRequest { dry_run: true, results: true };
        let refused = prune(Arc::clone(&idle.platform), limited, request).await.unwrap_err();
        assert_eq!(refused.known_code(), Code::RIGHT_MISSING);
    }

    #[tokio::test]
    async fn each_owner_has_one_removal_which_goes_on_without_its_client() {
        let idle = idle_platform().await;
        let records = &idle.records;
        let tenant: Tenant = "acme".parse().unwrap();
        let ended = call("f", "1");
        records.end(&tenant, &ended, u64::MAX).await.unwrap();
        let run = |name: &str| {
            let identity = identity(name);
            let request = PlatformPruneRequest { dry_run: false, results: true };
            prune(Arc::clone(&idle.platform), identity, request)
        };
        let holder = idle.platform.prunings.claim(Some(&"holder".parse().unwrap())).unwrap();
        let turn = holder.turn().await;
        let first = tokio::spawn(run("acme"));
        while !idle.platform.prunings.has(Some(&tenant)) {
            tokio::task::yield_now().await;
        }
        let refused = run("acme").await.unwrap_err();
        assert_eq!(refused.known_code(), Code::PRUNING_RUNS, "{}", refused.message);
        assert!(refused.message.ends_with("for `acme`"), "{}", refused.message);
        let other = tokio::spawn(run("other"));
        first.abort();
        assert!(first.await.is_err());
        drop(turn);
        other.await.unwrap().unwrap();
        let has = async || records.invocation(&tenant, &ended.invocation.id).await.unwrap();
        assert!(has().await.is_none(), "it ended before the one that came later");
        while run("acme").await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
