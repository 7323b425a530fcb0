//! A few small seed inputs for each target.

use std::fs;
use std::path::Path;

use snowmelt_image::block::{BlobWriter, BlockSize, OciDigest, encode};
use snowmelt_image::layer::{LayerLimits, read_layer};
use snowmelt_image::manifest::{Descriptor, OCI_CONFIG, OCI_MANIFEST};
use snowmelt_image::source::Config;
use snowmelt_image::tree::Tree;
use snowmelt_image::{Image, Result, erofs};
use tar::EntryType::{Block, Directory, Fifo, Link, Regular, Symlink, XHeader};

type Member<'a> = (tar::EntryType, &'a str, &'a str, &'a [u8]);

fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, path, link, content) in members {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// Writes the seeds to the folder of each target.
pub fn write_all() -> Result<()> {
    let lower = archive(&[
        (Directory, "usr/lib/", "", b""),
        (Symlink, "lib", "usr/lib", b""),
        (XHeader, "x", "", b"25 SCHILY.xattr.user.a=b\n13 mtime=1.5\n14 path=lib/f\n"),
        (Regular, "lib/f", "", b"content"),
        (Link, "same", "lib/f", b""),
        (Fifo, "pipe", "", b""),
    ]);
    let upper = archive(&[
        (Regular, "usr/.wh.lib", "", b""),
        (Regular, "usr/.wh..wh..opq", "", b""),
        (Directory, "usr/share/", "", b""),
        (Block, "sda", "", b""),
        (Regular, "usr/share/g", "", &[7; 5000]),
    ]);
    let both = [&[(lower.len() / 512) as u8], &lower[..], &upper[..]].concat();
    write("layer", "two", &both);
    write("layer", "one", &[&[0], &upper[..]].concat());

    let mut tree = Tree::default();
    let mut layers = Vec::new();
    let mut blobs = Vec::new();
    for archive in [&lower, &upper] {
        let writer = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
        let (layer, blob) = read_layer(&archive[..], LayerLimits::default(), writer)?;
        tree.apply(&layer.entries)?;
        layers.push(layer.blob);
        blobs.push(blob);
    }
    let devices: Vec<u64> = layers.iter().map(|layer| layer.raw_size).collect();
    let metadata = erofs::write(&tree, &devices)?;
    write("erofs", "two", &metadata);
    write("erofs", "none", &erofs::write(&Tree::default(), &[])?);

    volume(&metadata)?;

    let mut writer = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
    writer.append(&metadata)?;
    let (summary, _) = writer.finish()?;
    for (name, (layer, blob)) in ["lower", "upper"].into_iter().zip(layers.iter().zip(&blobs)) {
        write("table", name, &blob[layer.table_offset as usize..]);
    }
    let frame = encode(&[5; 4096])?;
    write("table", "block", &[&[0xff, 0xf], &frame[..]].concat());
    write("table", "frames", &[&[0xff, 0x1f], &frame[..], &frame[..]].concat());
    let saved =
        br#"[{"Config":"c.json","RepoTags":["a:b"],"Layers":["l/layer.tar","m/layer.tar"]}]"#;
    let saved = archive(&[
        (Regular, "l/layer.tar", "", &upper),
        (Symlink, "m/layer.tar", "../l/layer.tar", b""),
        (Regular, "c.json", "", b"{}"),
        (Regular, "manifest.json", "", saved),
    ]);
    write("archive", "saved", &saved);
    let image = Image {
        metadata: summary,
        layers,
        config: Descriptor::new(OCI_CONFIG, OciDigest::of(b"{}"), 2),
        original: Some(Descriptor::new(OCI_MANIFEST, OciDigest::of(b"m"), 1)),
    };
    write("manifest", "image", &image.encode()?);
    write("manifest", "config", &Config::plain(vec![OciDigest::of(b"")]).encode()?);
    let digest = OciDigest::of(b"");
    write("manifest", "reference", format!("localhost:5000/a/b:t@{digest}").as_bytes());
    Ok(())
}

/// Metadata parts that are preceded by requests.
fn volume(metadata: &[u8]) -> Result<()> {
    let request = |opcode: u8, node: u8, number: u64, room: u16, last: [u8; 8]| {
        [&[opcode, node][..], &room.to_le_bytes(), &number.to_le_bytes(), &last].concat()
    };
    let none = [0; 8];
    let mut requests: Vec<Vec<u8>> =
        (0..9).map(|opcode| request(opcode, 2, 0, 4096, none)).collect();
    // Unlisted numbers, listings that start inside a block and far past the end, a name.
    requests
        .extend((0..9).map(|opcode| request(opcode, 0, u64::MAX - u64::from(opcode), 100, none)));
    requests.extend(
        [3, 1 << 9, 1 << 60].map(|offset: u64| request(8, 1, 0, 300, offset.to_le_bytes())),
    );
    requests.push(request(0, 1, 0, 0, *b"usr\0\0\0\0\0"));
    let input = [&[requests.len() as u8], &requests.concat()[..], metadata].concat();
    write("volume", "asked", &input);

    // Folders of several blocks, content in blocks of its own, and attributes.
    let names: Vec<String> = (0..50).map(|n| format!("many/{n}{}", "n".repeat(90))).collect();
    let target = "t".repeat(90);
    let record = b"26 SCHILY.xattr.user.ab=b\n29 SCHILY.xattr.security.a=b\n";
    let mut members = vec![(Directory, "many/", "", &b""[..]), (XHeader, "x", "", record)];
    members.extend(names.iter().map(|name| (Symlink, name.as_str(), target.as_str(), &b""[..])));
    let writer = BlobWriter::new(std::io::sink(), Path::new("nowhere"), BlockSize::MIN);
    let (layer, _) = read_layer(&archive(&members)[..], LayerLimits::default(), writer)?;
    let mut tree = Tree::default();
    tree.apply(&layer.entries)?;
    let metadata = erofs::write(&tree, &[layer.blob.raw_size])?;
    write("volume", "blocks", &[&[0], &metadata[..]].concat());
    // An attribute whose name contains a zero byte.
    let at = metadata.windows(3).position(|found| found == b"abb").expect("the attribute");
    let mut metadata = metadata;
    metadata[at] = 0;
    write("volume", "attribute", &[&[0], &metadata[..]].concat());
    Ok(())
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new("../../fuzz/seeds").join(target);
    fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(name), bytes)).unwrap();
}
