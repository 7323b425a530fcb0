//! Decompression of layers. The format is detected from the first bytes, because media types are
//! often wrong.

use std::io::{self, BufRead, BufReader, Read};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The largest window of a zstd stream that is accepted (2^27 is zstd's own default).
const ZSTD_WINDOW_LOG: u32 = 27;

/// Returns the uncompressed bytes of a stream; a gzip stream may have several members.
pub fn decompress<'a>(stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut stream = BufReader::with_capacity(1 << 20, stream);
    let mut start = [0; 4];
    let seen = peek(&mut stream, &mut start)?;
    if start[..seen].starts_with(GZIP) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(stream)));
    }
    if start[..seen].starts_with(ZSTD) {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(stream))
}

/// Returns whether bytes with this start are in a compression format that [`decompress`] supports.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(GZIP) || start.starts_with(ZSTD)
}

/// Reads the first bytes without consuming them. Fewer bytes are returned if the first read of the
/// stream returns fewer.
fn peek(stream: &mut BufReader<impl Read>, start: &mut [u8]) -> io::Result<usize> {
    let available = stream.fill_buf()?;
    let seen = available.len().min(start.len());
    start[..seen].copy_from_slice(&available[..seen]);
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        decompress(bytes).unwrap().read_to_end(&mut found).unwrap();
        found
    }

    #[test]
    fn detects_the_compression() {
        let plain = b"plain text".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        assert!(read(&gzip.finish().unwrap()) == plain);
        assert!(read(&zstd::encode_all(&plain[..], 3).unwrap()) == plain);
        assert!(read(&plain) == plain);
        assert!(read(b"").is_empty());
    }
}
