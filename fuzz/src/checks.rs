//! Properties that hold for any input. The fuzz targets call these checks, and so do the crate's
//! tests with the inputs that fuzzing found.

#![allow(dead_code)]

use std::path::Path;

use snowmelt_image::block::{BlobWriter, BlockDigest, BlockEntry, BlockSize, BlockTable, decode};
use snowmelt_image::layer::{LayerLimits, read_layer};
use snowmelt_image::source::{Config, ConversionSource, DockerArchive, Reference};
use snowmelt_image::tree::Tree;
use snowmelt_image::{Image, erofs};

use kernel::{Kernel, OPCODES, Request};

mod kernel;

/// Small, so that a decompression bomb ends early and a missing limit shows in the memory use.
const LIMITS: LayerLimits =
    LayerLimits { entries: 1000, bytes: 16 << 20, metadata_bytes: 1 << 20, header_bytes: 64 << 10 };

/// A manifest is refused, or is equal after encoding and decoding.
pub fn manifest(data: &[u8]) {
    if let Ok(image) = Image::decode(data) {
        let bytes = image.encode().expect("an image that was read can be written");
        assert_eq!(Image::decode(&bytes).expect("encoded bytes can be decoded"), image);
    }
    if let Ok(config) = Config::parse(data) {
        config.encode().expect("a configuration that was read can be written");
    }
    if let Some(name) = std::str::from_utf8(data).ok().and_then(|it| it.parse::<Reference>().ok()) {
        assert_eq!(name.to_string().parse::<Reference>().expect("its text is a name"), name);
    }
}

/// A table with its footer is refused, or is encoded to the same bytes. A block is refused, or has
/// the number of raw bytes in its table entry.
pub fn table(data: &[u8]) {
    if let Ok(table) = BlockTable::decode_unverified(data) {
        assert!(table.encode() == data);
        assert!(table.blob_size() >= table.offset() + data.len() as u64);
        for index in 0..table.entries().len() {
            assert!(table.raw_of(index) > 0);
        }
    }
    if let Some((raw, stored)) = data.split_first_chunk::<2>() {
        let raw = usize::from(u16::from_le_bytes(*raw)) + 1;
        let digest = BlockDigest::of(stored);
        let entry = BlockEntry { stored: stored.len() as u32, digest };
        if let Ok(block) = decode(stored, &entry, raw) {
            assert_eq!(block.len(), raw);
        }
    }
}

/// Two layers are refused, or produce a tree that can be read back from its metadata part. The
/// first byte is the position of the second layer.
pub fn layer(data: &[u8]) {
    let Some((&split, archives)) = data.split_first() else { return };
    let (lower, upper) = archives.split_at(archives.len().min(usize::from(split) * 512));
    let mut tree = Tree::default();
    let mut devices = Vec::new();
    for archive in [lower, upper] {
        let writer = BlobWriter::new(std::io::sink(), Path::new("nowhere"), BlockSize::MIN);
        let Ok((layer, _)) = read_layer(&*repaired(archive), LIMITS, writer) else { return };
        layer.blob.check().expect("the sizes of a blob are consistent");
        if tree.apply(&layer.entries).is_err() {
            return;
        }
        devices.push(layer.blob.raw_size);
    }
    let image = erofs::write(&tree, &devices).expect("a tree can be written");
    check_round_trip(&image, &devices);
}

/// A metadata part is refused, or is equal after encoding and decoding its tree.
pub fn erofs(data: &[u8]) {
    let mut image = data.to_vec();
    seal(&mut image);
    if let Ok((tree, blocks)) = erofs::read(&image) {
        let devices: Vec<u64> = blocks.iter().map(|blocks| u64::from(*blocks) * 4096).collect();
        let written = erofs::write(&tree, &devices).expect("a tree that was read can be written");
        check_round_trip(&written, &devices);
    }
}

/// Files of a metadata part are requested by listed names and by arbitrary numbers. Each reply must
/// be one that the kernel accepts, and listings must agree with single lookups. The requests
/// precede the metadata part; the first byte is their number.
pub fn volume(data: &[u8]) {
    let Some((&count, rest)) = data.split_first() else { return };
    let (requests, image) = rest.split_at(rest.len().min(usize::from(count) * REQUEST_BYTES));
    let mut image = image.to_vec();
    seal(&mut image);
    let slots = image.get(1024 + 86..).and_then(|rest| rest.first_chunk());
    let layers = slots.map_or(0, |bytes| usize::from(u16::from_le_bytes(*bytes)));
    // Some files extend past the end of these layers.
    let layers = vec![1 << 20; layers.min(image.len() / 128)];
    let mut kernel = Kernel::new(&image, &layers);
    kernel.walk(false);
    for request in requests.chunks_exact(REQUEST_BYTES) {
        send(&kernel, request);
    }
    if let Ok((tree, blocks)) = erofs::read(&image) {
        let devices: Vec<u64> = blocks.iter().map(|blocks| u64::from(*blocks) * 4096).collect();
        let written = erofs::write(&tree, &devices).expect("a tree that was read can be written");
        Kernel::new(&written, &devices).walk(true);
    }
}

/// Opcode, index of a listed number or 0 for the following one, buffer size, number, offset or
/// name.
const REQUEST_BYTES: usize = 20;

fn send(kernel: &Kernel, bytes: &[u8]) {
    let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
    let node = match bytes[1] {
        0 => number(4),
        which => kernel.known[usize::from(which - 1) % kernel.known.len()],
    };
    let room = u32::from(u16::from_le_bytes([bytes[2], bytes[3]]));
    let name = bytes[12..].split(|byte| *byte == 0).next().unwrap_or_default();
    let opcode = OPCODES[usize::from(bytes[0]) % OPCODES.len()];
    kernel.try_any(Request { opcode, node, offset: number(12), room, name });
}

fn check_round_trip(image: &[u8], devices: &[u64]) {
    let (tree, blocks) = erofs::read(image).expect("encoded bytes can be decoded");
    assert!(blocks.iter().zip(devices).all(|(blocks, bytes)| u64::from(*blocks) * 4096 >= *bytes));
    assert!(erofs::write(&tree, devices).expect("and written again") == image);
}

/// An archive of `docker save` is refused, or each of its layers ends inside the archive.
pub fn archive(data: &[u8]) {
    let path = Path::new("/dev/shm").join(format!("snowmelt-fuzz-{}", std::process::id()));
    std::fs::write(&path, repaired(data)).expect("memory takes a file");
    if let Ok(archive) = DockerArchive::open(&path, None)
        && let Ok(described) = archive.describe()
    {
        // A manifest of a few bytes may name the same layer many times.
        for index in 0..described.layers.min(16) {
            let Ok(layer) = archive.layer(index) else { continue };
            let bytes = std::io::copy(&mut { layer }, &mut std::io::sink());
            assert!(bytes.is_ok_and(|bytes| bytes <= data.len() as u64));
        }
    }
    std::fs::remove_file(&path).expect("it is there");
}

/// The archive with corrected checksums in its headers, which fuzzing does not guess.
fn repaired(archive: &[u8]) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + 512) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = std::str::from_utf8(&header[124..135]).ok();
        let size = size.and_then(|text| usize::from_str_radix(text, 8).ok()).unwrap_or(0);
        at += 512 + size.next_multiple_of(512);
    }
    bytes
}

/// Corrects the checksum of the superblock.
fn seal(image: &mut [u8]) {
    let Some(head) = image.get_mut(1024..4096) else { return };
    head[4..8].fill(0);
    let sum = head.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    });
    head[4..8].copy_from_slice(&sum.to_le_bytes());
}
