//! Start profiles in registries, with both methods to refer to an image.

use bytes::Bytes;
use snowmelt_image::block::{BlockDigest, OciDigest};
use snowmelt_image::manifest::{Descriptor, OCI_MANIFEST};
use snowmelt_image::profile::{PROFILE, ProfileKeys, Signed, StartProfile, publish, trusted};
use snowmelt_image::source::Registry;

use super::registry::{registry, serve};
use super::server::{Reply, Server};

fn keys(folder: &tempfile::TempDir, name: &str) -> ProfileKeys {
    ProfileKeys::open(&folder.path().join(name), Vec::new()).unwrap()
}

fn start(blocks: &[u32]) -> StartProfile {
    let blob = BlockDigest::of(b"blob");
    StartProfile { blocks: blocks.iter().map(|block| (blob, *block)).collect() }
}

/// A manifest that profiles can refer to.
async fn image(registry: &Registry) -> Descriptor {
    let config = registry.push_document(&Bytes::from_static(b"{}")).await.unwrap();
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{OCI_MANIFEST}","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{config}","size":2}},"layers":[]}}"#
    );
    let bytes = Bytes::from(manifest);
    registry.push_manifest("v1", OCI_MANIFEST, bytes.clone()).await.unwrap();
    Descriptor::new(OCI_MANIFEST, OciDigest::of(&bytes), bytes.len() as u64)
}

#[test]
fn a_profile_is_found_by_its_image_and_untrusted_ones_are_ignored() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let registry = registry(&served.address, None);
        let image = image(&registry).await;
        let ours = keys(&scratch, "ours");
        let others = keys(&scratch, "others");
        assert_eq!(trusted(&registry, &image.digest, &ours).await.unwrap(), None);
        for (keys, blocks) in [(&others, &[8, 9][..]), (&ours, &[3, 1])] {
            let signed = Signed::new(keys, &image.digest, &start(blocks)).unwrap();
            publish(&registry, &image, &signed).await.unwrap();
            publish(&registry, &image, &signed).await.unwrap();
        }
        let forged = Signed {
            key: ours.public(),
            ..Signed::new(&others, &image.digest, &start(&[7])).unwrap()
        };
        publish(&registry, &image, &forged).await.unwrap();
        assert_eq!(registry.referrers(&image.digest, PROFILE).await.unwrap().len(), 3);
        let found = trusted(&registry, &image.digest, &ours).await.unwrap();
        assert_eq!(found, Some(start(&[3, 1])));
        // Two starts on two hosts are merged.
        let signed = Signed::new(&ours, &image.digest, &start(&[1, 5])).unwrap();
        publish(&registry, &image, &signed).await.unwrap();
        let found = trusted(&registry, &image.digest, &ours).await.unwrap().unwrap();
        assert_eq!(found, start(&[1, 5, 3]), "the latest first");
    });
}

#[test]
fn a_registry_with_a_referrers_list_needs_no_tag() {
    let subject = OciDigest::of(b"image");
    let listed = OciDigest::of(b"profile");
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[
            {{"mediaType":"m","digest":"{listed}","size":1,"artifactType":"{PROFILE}"}},
            {{"mediaType":"m","digest":"{subject}","size":1,"artifactType":"other"}}]}}"#
    );
    let server = Server::new(move |request, _| match request.method.as_str() {
        "PUT" => Reply::new(201, "").header("oci-subject", "sha256:it"),
        _ if request.path.contains("/referrers/sha256:") => Reply::new(200, index.clone()),
        _ => Reply::new(404, ""),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let registry = registry(&server.address, None);
    let found = runtime.block_on(registry.referrers(&subject, PROFILE)).unwrap();
    assert_eq!(found.iter().map(|one| &one.digest).collect::<Vec<_>>(), [&listed]);
    let manifest = format!(
        r#"{{"artifactType":"{PROFILE}","subject":{{"mediaType":"m","digest":"{subject}","size":1}}}}"#
    );
    runtime.block_on(registry.push_manifest("x", OCI_MANIFEST, manifest.into())).unwrap();
    let puts = server.requests().into_iter().filter(|request| request.method == "PUT").count();
    assert_eq!(puts, 1);
}
