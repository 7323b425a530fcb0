//! Copies of records and files: of all kinds, interrupted, and into what is not empty.

use std::path::Path;

use bytes::Bytes;
use snowmelt_store::memory::Memory;
use snowmelt_store::{Clock, Store, Transaction};
use tempfile::TempDir;

use super::*;

struct Rig {
    store: Arc<Memory>,
    folder: TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { store: Arc::new(Memory::new(Clock::real())), folder }
    }

    async fn full() -> Self {
        let rig = Self::new();
        for number in 0..300_usize {
            let value = Bytes::from(vec![7; (number % 7) * 30_000]);
            rig.put(&format!("calls/{number:04}"), value).await;
        }
        rig.put("leader/control", "one".into()).await;
        rig.file(&format!("code/{}/code.json", Digest::of("a")), "a");
        rig.file(&format!("code/{}/files/b.py", Digest::of("b")), "b");
        rig.file(&format!("files/own/acme/blobs/{}", Digest::of("c")), "c");
        rig.file("files/own/acme/trees/x/name", "c");
        rig.file("bursts/j-1.json", "[1]");
        rig.file("bursts/j-2.part", "[1");
        rig.file("cluster/authority.json", "{}");
        rig.file("cluster/host.json", "{}");
        rig.file("logs/f", "text");
        rig
    }

    async fn put(&self, key: &str, value: Bytes) {
        self.store.put(key, value, Expect::Any).await.unwrap();
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn end(&self) -> OpenEnd {
        OpenEnd::of_test(self.store.clone(), self.folder.path())
    }

    async fn has(&self, key: &str) -> bool {
        self.store.get(key).await.unwrap().is_some()
    }
}

async fn done(from: &Rig, to: &Rig) -> Result<StoreCopied, ErrorReport> {
    copied(&from.end(), &to.end(), Arc::new(|_| {})).await
}

#[tokio::test]
async fn all_records_and_the_files_that_servers_share_are_copied() {
    let from = Rig::full().await;
    let to = Rig::new();
    let copied = done(&from, &to).await.unwrap();
    assert_eq!((copied.records, copied.files), (300, 5));
    assert!(to.has("calls/0299").await && !to.has("leader/control").await);
    assert!(!to.has(COPYING_KEY).await, "the copy is complete");
    let there = |name: &str| to.folder.path().join(name).exists();
    assert!(there("bursts/j-1.json") && there("cluster/authority.json"));
    for own in ["bursts/j-2.part", "cluster/host.json", "logs/f", "files/own/acme/trees"] {
        assert!(!there(own), "{own}");
    }
    // Once more, it would be somebody else's records.
    let again = done(&from, &to).await.unwrap_err();
    assert_eq!(again.code, "SM-0541");
    assert!(again.message.contains("calls/0000"), "{again}");
    // And back.
    let back = Rig::new();
    assert_eq!(done(&to, &back).await.unwrap(), copied);
}

#[tokio::test]
async fn an_interrupted_copy_goes_on_and_leaves_nothing_that_the_source_has_not() {
    let from = Rig::full().await;
    let to = Rig::new();
    begin(&from.end(), &to.end()).await.unwrap();
    // What an attempt has copied before the source was used again, and then killed.
    for key in ["calls/0001", "calls/0007-old", "zz"] {
        to.put(key, "old".into()).await;
    }
    to.file("bursts/j-9.request", "{}");
    to.file("bursts/j-1.json", "[0]");
    to.file(&format!("code/.copy-{}/code.json", Digest::of("a")), "half");
    let refused = format::check(&*to.store).await.unwrap_err();
    assert_eq!(refused.code, "SM-0541", "no server serves a part");
    let other = Rig::new();
    let mut of_other = other.end();
    of_other.place = "another".to_owned();
    let refused = copied(&of_other, &to.end(), Arc::new(|_| {})).await.unwrap_err();
    assert!(refused.message.contains("a part of a copy of"), "{refused}");
    assert_eq!(done(&from, &to).await.unwrap().records, 300);
    assert!(!to.has("calls/0007-old").await && !to.has("zz").await);
    assert!(!to.folder.path().join("bursts/j-9.request").exists());
    let answer = std::fs::read_to_string(to.folder.path().join("bursts/j-1.json"));
    assert_eq!(answer.unwrap(), "[1]");
}

#[tokio::test]
async fn a_copy_with_a_damaged_file_is_not_complete() {
    let from = Rig::full().await;
    let to = Rig::new();
    begin(&from.end(), &to.end()).await.unwrap();
    let damaged = format!("code/{}/code.json", Digest::of("a"));
    to.file(&damaged, "damaged");
    let refused = done(&from, &to).await.unwrap_err();
    assert!(refused.message.contains(&Digest::of("a").to_string()), "{refused}");
    assert!(to.has(COPYING_KEY).await);
    std::fs::remove_dir_all(to.folder.path().join(Path::new(&damaged).parent().unwrap())).unwrap();
    done(&from, &to).await.unwrap();
}

#[tokio::test]
async fn a_folder_with_bursts_or_another_authority_is_refused() {
    let from = Rig::full().await;
    for name in ["bursts/j-3.request", "cluster/authority.json"] {
        let to = Rig::new();
        to.file(name, "of another");
        let refused = done(&from, &to).await.unwrap_err();
        assert!(refused.code == "SM-0541" && refused.message.contains(name), "{refused}");
        assert!(to.store.list("", Page::default()).await.unwrap().entries.is_empty());
    }
}

#[tokio::test]
async fn a_record_that_somebody_else_writes_meanwhile_shows() {
    let from = Rig::full().await;
    let to = Rig::new();
    let store = to.store.clone();
    let watch: StepWatch = Arc::new(move |step| {
        if let CopyStep::Compared(64) = step {
            let put = Transaction::new().put("calls/0000", "other", Expect::Any);
            futures::executor::block_on(store.transaction(put)).unwrap();
        }
    });
    let refused = copied(&from.end(), &to.end(), watch).await.unwrap_err();
    assert!(refused.message.contains("the copy differs"), "{refused}");
}

#[tokio::test]
async fn a_copy_is_between_two_kinds_of_stores_and_of_one_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let end = StoreEnd::Folder(folder.path().to_owned());
    let refused = copy_store(&end, &end, None, Arc::new(|_| {})).await.unwrap_err();
    assert_eq!(refused.code, "SM-0541");
    let etcd = super::super::StoreSettings {
        etcd: super::super::EtcdSettings::parse("etcd://127.0.0.1:1").unwrap(),
        folder: folder.path().join("shared"),
    };
    let to = StoreEnd::Etcd(etcd);
    let missing = copy_store(&end, &to, None, Arc::new(|_| {})).await.unwrap_err();
    assert!(missing.code == "SM-0505" && missing.message.contains("no records"), "{missing}");
}
