//! Malicious images.

use std::fs;
use std::path::Path;

use snowmelt_image::block::{BlobWriter, BlockSize};
use snowmelt_image::layer::{Layer, LayerLimits, read_layer};
use snowmelt_image::source::{ConversionSource, DockerArchive, FolderOrigin, OciLayout};
use snowmelt_image::tree::{LayerChange, Tree};
use snowmelt_image::{Error, Options, Result, convert};

/// A tar member that violates the format.
fn member(kind: u8, path: &[u8], link: &[u8], size: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..path.len()].copy_from_slice(path);
    header[100..107].copy_from_slice(b"0000755");
    header[124..124 + size.len()].copy_from_slice(size);
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link);
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = [&header[..], content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn sized(kind: u8, path: &str, content: &[u8]) -> Vec<u8> {
    member(kind, path.as_bytes(), b"", format!("{:011o}", content.len()).as_bytes(), content)
}

fn extended(records: &[(&str, &str)]) -> Vec<u8> {
    header(b'x', records)
}

/// A header for the next member (`x`), or for all following members (`g`).
fn header(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let record = |(key, value): &(&str, &str)| {
        let rest = key.len() + value.len() + 3;
        let length = (1..).find(|length| rest + length.to_string().len() == *length).unwrap();
        format!("{length} {key}={value}\n")
    };
    sized(kind, "x", records.iter().map(record).collect::<String>().as_bytes())
}

fn small() -> LayerLimits {
    LayerLimits { entries: 1000, bytes: 4 << 20, metadata_bytes: 100_000, header_bytes: 10_000 }
}

fn read(bytes: &[u8]) -> Result<Layer> {
    let blob = BlobWriter::new(std::io::sink(), Path::new("nowhere"), BlockSize::MIN);
    read_layer(bytes, small(), blob).map(|(layer, _)| layer)
}

fn is_refused(bytes: &[u8]) -> bool {
    matches!(read(bytes), Err(Error::Refused { .. }))
}

fn is_bomb(bytes: &[u8]) -> bool {
    matches!(read(bytes), Err(Error::Limit { .. }))
}

#[test]
fn files_with_huge_sizes_are_refused_without_allocation() {
    let mut base256 = [0xff; 12];
    base256[0] = 0x80;
    base256[4] = 0x7f;
    let huge = member(b'0', b"huge", b"", &base256, b"few");
    assert!(is_refused(&huge), "{:?}", read(&huge));
    for size in ["18446744073709551615", "9223372036854775807", "18446744073709551616", "-1", "1e9"]
    {
        let huge = [extended(&[("size", size)]), sized(b'0', "huge", b"few")].concat();
        assert!(is_refused(&huge), "{size}: {:?}", read(&huge));
    }
}

#[test]
fn sparse_members_are_refused_in_every_form() {
    assert!(is_refused(&sized(b'S', "old", b"")));
    for key in ["GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.realsize"] {
        let sparse = [extended(&[(key, "1")]), sized(b'0', "new", b"")].concat();
        assert!(is_refused(&sparse), "{key}");
    }
}

#[test]
fn a_sparse_file_in_a_folder_is_read_up_to_the_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::File::create(folder.join("huge")).unwrap().set_len(1 << 40).unwrap();
    let layout = OciLayout::create(&scratch.path().join("store")).unwrap();
    let options = Options { limits: small(), ..Options::default() };
    let error = convert(&FolderOrigin::open(&folder).unwrap(), &layout, options).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
    let blobs = fs::read_dir(scratch.path().join("store/blobs/sha256")).unwrap();
    assert_eq!(blobs.count(), 0);
}

#[test]
fn decompression_bombs_are_stopped_for_every_compression() {
    let zeros = sized(b'0', "zeros", &vec![0; 8 << 20]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut gzip, &zeros).unwrap();
    let gzip = gzip.finish().unwrap();
    let members = [&gzip[..], &gzip[..]].concat();
    for bomb in [&zeros, &gzip, &members, &zstd::encode_all(&zeros[..], 19).unwrap()] {
        assert!(is_bomb(bomb), "{:?}", read(bomb));
    }
    // A frame that requires a window of gigabytes.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0, 0x01, 0x00, 0x00];
    assert!(is_refused(&window), "{:?}", read(&window));
}

#[test]
fn names_and_attributes_are_limited() {
    let attribute = extended(&[("SCHILY.xattr.user.a", &"v".repeat(9000))]);
    let one = [attribute, sized(b'0', "file", b"")].concat();
    assert!(read(&one).is_ok());
    assert!(is_bomb(&one.repeat(20)));
    assert!(is_bomb(&extended(&[("comment", &"c".repeat(20_000))])), "one header");
    let global = sized(b'g', "g", format!("9012 comment={}\n", "c".repeat(8998)).as_bytes());
    let all = [global, sized(b'0', "file", b"").repeat(20)].concat();
    assert!(is_bomb(&all), "a header for all members counts for each: {:?}", read(&all));
    assert!(is_bomb(&sized(b'0', "file", b"").repeat(1001)));
}

#[test]
fn implied_folders_are_counted() {
    // Two paths of 2000 folders each.
    let entry = |n: u32| {
        let path = format!("{n}/{}f", "d/".repeat(1998));
        [extended(&[("path", &path)]), sized(b'0', "f", b"")].concat()
    };
    let layer = read(&[entry(0), entry(1)].concat()).unwrap();
    assert_eq!(layer.entries.len(), 2);
    // With the root and the two files.
    Tree::with_max_files(4001).apply(&layer.entries).unwrap();
    let error = Tree::with_max_files(4000).apply(&layer.entries).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
}

#[test]
fn no_entry_leads_out_of_the_image() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let link =
        |path: &str, to: &str| [extended(&[("linkpath", to)]), sized(b'2', path, b"")].concat();
    let layers = [
        [link("out", target), sized(b'0', "out/file", b"hostile")].concat(),
        [link("up", "../../../../../../.."), sized(b'0', "up/tmp/file", b"hostile")].concat(),
    ];
    for layer in layers {
        let layer = read(&layer).unwrap();
        let mut tree = Tree::default();
        tree.apply(&layer.entries).unwrap();
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    for path in ["../x", "a/../../x", "/../x", "a/..", ".."] {
        assert!(is_refused(&sized(b'0', path, b"x")), "{path}");
        let long = [extended(&[("path", path)]), sized(b'0', "fine", b"x")].concat();
        assert!(is_refused(&long), "{path} in an extended header");
        let link = [extended(&[("linkpath", path)]), sized(b'1', "fine", b"")].concat();
        assert!(is_refused(&link), "a hard link to {path}");
    }
}

#[test]
fn device_nodes_are_omitted_in_every_form() {
    let archive = [
        sized(b'3', "null", b""),
        sized(b'4', "sda", b""),
        [extended(&[("SCHILY.devmajor", "1")]), sized(b'3', "mem", b"")].concat(),
    ];
    let layer = read(&archive.concat()).unwrap();
    assert_eq!((layer.entries.len(), layer.devices), (0, 3));
    // A hard link to a device node has no target.
    let link = [archive[0].clone(), member(b'1', b"link", b"null", b"0", b"")].concat();
    let layer = read(&link).unwrap();
    assert!(Tree::default().apply(&layer.entries).is_err());
}

#[test]
fn the_last_of_duplicate_entries_wins_with_its_content() {
    let archive =
        [sized(b'0', "a", &[1; 5000]), sized(b'0', "./a", &[2; 10]), sized(b'0', "b", b"b")];
    let layer = read(&archive.concat()).unwrap();
    let mut tree = Tree::default();
    tree.apply(&layer.entries).unwrap();
    let puts = layer.entries.iter().filter(|entry| matches!(entry.change, LayerChange::Put(..)));
    assert_eq!((puts.count(), tree.node(Tree::ROOT).children.len()), (3, 2));
}

#[test]
fn an_invalid_archive_of_docker_save_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("saved.tar");
    let open = |members: &[Vec<u8>]| {
        fs::write(&path, [members.concat(), vec![0; 1024]].concat()).unwrap();
        let archive = DockerArchive::open(&path, None)?;
        archive.describe()?;
        archive.layer(0).map(|_| ())
    };
    let manifest = |layer: &str| {
        let text = format!(r#"[{{"Config": "config", "RepoTags": null, "Layers": ["{layer}"]}}]"#);
        sized(b'0', "manifest.json", text.as_bytes())
    };
    let config = sized(b'0', "config", b"{}");
    open(&[manifest("layer"), config.clone(), sized(b'0', "layer", b"")]).unwrap();
    for (kind, to) in [(b'1', "a/layer"), (b'2', "layer"), (b'2', "/a/layer"), (b'2', "../a/layer")]
    {
        let link = member(kind, b"a/link", to.as_bytes(), b"", b"");
        open(&[manifest("a/link"), config.clone(), sized(b'0', "a/layer", b""), link]).unwrap();
    }
    for layer in ["/etc/passwd", "../../etc/passwd", "missing"] {
        let error = open(&[manifest(layer), config.clone()]).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{layer}: {error:?}");
    }
    let circle = [member(b'2', b"a", b"b", b"", b""), member(b'2', b"b", b"a", b"", b"")];
    open(&[manifest("a"), config.clone(), circle.concat()]).unwrap_err();
    open(&[sized(b'0', "manifest.json", b"[]")]).unwrap_err();
    open(&[sized(b'0', "manifest.json", b"{")]).unwrap_err();
    let huge = member(b'0', b"manifest.json", b"", b"77777777777", b"[]");
    assert!(matches!(open(&[huge]), Err(Error::Limit { .. })));
    let cut = member(b'0', b"manifest.json", b"", b"77777", b"[]");
    assert!(matches!(open(&[cut]), Err(Error::Refused { .. })));
    let beyond = [extended(&[("size", "18446744073709551000")]), sized(b'0', "a", b"")].concat();
    assert!(matches!(open(&[beyond]), Err(Error::Refused { .. })));
    let long = [extended(&[("path", &"n".repeat(5000))]), sized(b'0', "a", b"")].concat();
    assert!(matches!(open(&[long]), Err(Error::Refused { .. })));
    let many: Vec<_> = (0..10_001).map(|n| sized(b'0', &n.to_string(), b"")).collect();
    assert!(matches!(open(&[many.concat()]), Err(Error::Limit { .. })));
}

#[test]
fn a_damaged_compressed_archive_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("saved.tar.gz");
    let manifest = br#"[{"Config": "config", "RepoTags": null, "Layers": []}]"#;
    let members = [sized(b'0', "manifest.json", manifest), sized(b'0', "config", b"{}")];
    let pressed = zstd::encode_all(&members.concat()[..], 3).unwrap();
    fs::write(&path, &pressed).unwrap();
    DockerArchive::open(&path, None).unwrap().describe().unwrap();
    fs::write(&path, &pressed[..pressed.len() / 2]).unwrap();
    let error = DockerArchive::open(&path, None).err().unwrap();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let bomb = extended(&[("path", &"n".repeat(2 << 20))]);
    fs::write(&path, zstd::encode_all(&bomb[..], 3).unwrap()).unwrap();
    let error = DockerArchive::open(&path, None).err().unwrap();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
}

#[test]
fn global_headers_are_limited() {
    let global = |n: u32| header(b'g', &[(&format!("{n}{}", "k".repeat(900)), "v")]);
    let few = [global(0), global(0), sized(b'0', "a", b"")].concat();
    assert_eq!(read(&few).unwrap().entries.len(), 1);
    let many: Vec<u8> = (0..20).flat_map(global).collect();
    assert!(is_bomb(&[many, sized(b'0', "a", b"")].concat()));
}
